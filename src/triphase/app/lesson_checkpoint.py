"""Checkpoints of a lesson in `work`: after a crash, the same call continues where it was."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import torch

from triphase.app.model import Model
from triphase.app.store.schema import LessonMark
from triphase.app.store.state_schema import check_checkpoint
from triphase.app.store.versions import Store
from triphase.checkpoint import Checkpoint
from triphase.device import changed_device
from triphase.errors import CorruptState, Mismatch
from triphase.events import OnEvent
from triphase.learners.protocol import Step, Tick

SAVE_EVERY = 1.0  # seconds of work
DRAW_EVERY = 0.1  # seconds between two "step" events: what a person can see


class LessonCheckpoint:
    """The newest state of the model, and a mark of the lesson that it belongs to."""

    def __init__(
        self, store: Store, content: bytes, model: Model, *, quick_version: bool = False, epochs: int = 0
    ) -> None:
        """`content` identifies what is learned; `epochs` is for training whose length does not follow from it."""
        precision = b"" if model.network.precision == "float32" else model.network.precision.encode()
        digest = hashlib.sha256(content + precision + str(asdict(model.options)).encode())
        current = store.current()
        parent, threads = current.number if current else 0, torch.get_num_threads()
        self._mark = LessonMark(
            lesson=digest.hexdigest(),
            parent=parent,
            threads=threads,
            engine=model.engine,
            device=model.device,
            epochs=epochs,
        )
        self._store, self._model = store, model
        self.quick_version = quick_version  # the version in use has learned this lesson in part
        self._states = Checkpoint(store.work / "state", store.directory.lock)
        self._saved_at = time.perf_counter()

    def resume(self, notes: list[str], on_event: OnEvent) -> bool:
        """Load the state of an interrupted lesson, if it was this one; `notes` get a sentence about it."""
        try:
            mark = self._store.directory.read_lesson()
            state = self._states.load() if mark is not None else None
            if state is not None:
                check_checkpoint(state, Model(self._model.options, blank=True).state_dict())
        except (CorruptState, Mismatch):
            mark, state = None, None
        if mark is None or state is None:
            self._start()
            return False
        if (obstacle := self._obstacle(mark)) is not None:
            notes.append(obstacle)
            self._start()
            return False
        self._model.load_state_dict(state)
        notes.append(f"An interrupted {'consolidation' if mark.epochs else 'lesson'} was continued.")
        if mark.device != self._mark.device:
            notes.append(changed_device(mark.device, self._mark.device))
            how = self._mark.model_dump(include={"threads", "engine", "device"})
            mark = mark.model_copy(update=how)
            self._store.directory.write_lesson(mark)
        self._mark = mark
        on_event({"event": "resumed"})
        return True

    @property
    def epochs(self) -> int:
        """The number of epochs; a resumed lesson keeps the one that it began with."""
        return self._mark.epochs

    @staticmethod
    def is_published(store: Store) -> bool:
        """Whether a lesson was killed just after it was published, and left its checkpoint behind."""
        current = store.current()
        try:
            mark = store.directory.read_lesson()
        except (CorruptState, Mismatch):  # it cannot be continued
            return current is not None
        return mark is not None and current is not None and mark.parent < current.number

    @staticmethod
    def recorded_threads(path: Path) -> int | None:
        """The number of threads of an interrupted lesson in a model directory."""
        try:
            mark = Store(path).directory.read_lesson()
        except (CorruptState, Mismatch):  # it will start again
            return None
        return None if mark is None else mark.threads

    @contextmanager
    def saving(self) -> Iterator[None]:
        """Save states in the background within this block; nothing is being written when it ends."""
        self._saved_at = time.perf_counter()
        try:
            yield
        finally:
            self._states.wait()

    def tick(self, on_event: OnEvent) -> Tick:
        """Report progress as "step" events and save, each at its own pace."""
        drawn_at = 0.0

        def tick(step: Step) -> None:
            nonlocal drawn_at
            now = time.perf_counter()
            if step.step == step.steps or now - drawn_at >= DRAW_EVERY:
                event = {"event": "step", "phase": step.phase, "epoch": step.epoch, "epochs": step.epochs}
                on_event(event | {"step": step.step, "steps": step.steps})
                drawn_at = now
            self.save_if_due()

        return tick

    def save_if_due(self) -> None:
        """Save changes in the background, if the last save was a second ago."""
        if time.perf_counter() - self._saved_at >= SAVE_EVERY:
            self._states.save(self._model.state_dict(), wait=False)
            self._saved_at = time.perf_counter()

    def continue_from(self, parent: int) -> None:
        """Continue from the quick version that this lesson has published."""
        self.quick_version = True
        self._mark = self._mark.model_copy(update={"parent": parent})
        self._store.directory.write_lesson(self._mark)

    def close(self) -> None:
        """Wait for a save in progress and raise its error, if any."""
        self._states.close()

    def _obstacle(self, mark: LessonMark) -> str | None:
        """Why the saved state cannot be continued."""
        if (mark.lesson, mark.parent) != (self._mark.lesson, self._mark.parent):
            return "The photos or the model changed since a lesson was interrupted: it was started again."
        if mark.device != self._mark.device:
            return None  # it goes on, with numbers that are close
        if mark.threads != self._mark.threads:
            return (
                f"The interrupted lesson ran with {mark.threads} threads and this one runs with "
                f"{self._mark.threads}, which would end with another model: it was started again."
            )
        if mark.engine != self._mark.engine:
            return (
                f"The interrupted lesson ran on {mark.engine} and this one runs on {self._mark.engine}, "
                "which would end with another model: it was started again."
            )
        return None

    def _start(self) -> None:
        self._store.discard_work()
        self._states = Checkpoint(self._store.work / "state", self._store.directory.lock)
        self._store.directory.write_lesson(self._mark)
