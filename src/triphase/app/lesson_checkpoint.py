"""What a lesson keeps in `work`, so that after a crash the same call goes on where it was."""

from __future__ import annotations

import hashlib
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import torch

from triphase import state as files
from triphase.app.model import Model
from triphase.app.scan import Photos, Watch
from triphase.app.store.checksums import FORMAT
from triphase.app.store.versions import Store
from triphase.checkpoint import Checkpoint
from triphase.errors import CorruptState, Mismatch, TriphaseError

SAVE_EVERY = 1.0  # seconds of work


class LessonCheckpoint:
    """The newest state of the model, and a mark that says to which lesson it belongs."""

    def __init__(self, store: Store, photos: Photos, model: Model, *, quick_version: bool) -> None:
        digest = hashlib.sha256(photos.ids.numpy().tobytes() + photos.labels.numpy().tobytes())
        digest.update(str((photos.names, asdict(model.options))).encode())
        current = store.current()
        self._mark = {"lesson": digest.hexdigest(), "parent": current.number if current else 0, "format": FORMAT}
        self._threads = torch.get_num_threads()
        self._store, self._model = store, model
        self.quick_version = quick_version  # the version in use has learned this lesson in part
        self._file, self._states = store.work / "lesson.json", Checkpoint(store.work / "state")
        self._saved_at = time.perf_counter()

    def resume(self, notes: list[str], watch: Watch) -> bool:
        """Take up what an interrupted lesson left, if it was this one; `notes` say what became of it."""
        try:
            mark = files.read_json(self._file) if self._file.exists() else None
            state = self._states.load() if mark is not None else None
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
        notes.append("An interrupted lesson was continued.")
        watch({"event": "resumed"})
        return True

    @staticmethod
    def is_published(store: Store) -> bool:
        """Whether a lesson was killed just after it was published, and left its checkpoint behind."""
        file, current = store.work / "lesson.json", store.current()
        return file.exists() and current is not None and files.read_json(file)["parent"] < current.number

    @staticmethod
    def recorded_threads(path: Path) -> int | None:
        """How many threads an interrupted lesson of a model directory runs with."""
        try:
            threads = files.read_json(path / "work" / "lesson.json")["threads"]
        except (TriphaseError, OSError, KeyError, TypeError):
            return None
        return threads if isinstance(threads, int) and 0 < threads <= 1024 else None

    @contextmanager
    def saving(self) -> Iterator[None]:
        """Inside, states are saved in the background; nothing is being written when it ends."""
        self._saved_at = time.perf_counter()
        try:
            yield
        finally:
            self._states.wait()

    def save_if_due(self) -> None:
        """Save in the background what changed, if the last time is a second ago."""
        if time.perf_counter() - self._saved_at >= SAVE_EVERY:
            self._states.save(self._model.state_dict(), wait=False)
            self._saved_at = time.perf_counter()

    def continue_from(self, parent: int) -> None:
        """The lesson goes on from the quick version that it has published itself."""
        self.quick_version = True
        self._mark["parent"] = parent
        self._write_mark()

    def close(self) -> None:
        """Wait for a save under way, and raise what went wrong with it."""
        self._states.close()

    def _obstacle(self, mark: dict[str, object]) -> str | None:
        """Why what is saved cannot be continued."""
        if {name: mark.get(name) for name in self._mark} != self._mark:
            return "The photos or the model changed since a lesson was interrupted: it was started again."
        if mark.get("threads") != self._threads:
            return (
                f"The interrupted lesson ran with {mark.get('threads')} threads and this one runs with "
                f"{self._threads}, which would end with another model: it was started again."
            )
        return None

    def _start(self) -> None:
        if self._store.work.exists():
            shutil.rmtree(self._store.work)
        self._states = Checkpoint(self._store.work / "state")
        files.make_directory(self._store.work)
        self._write_mark()

    def _write_mark(self) -> None:
        files.write_json(self._file, self._mark | {"threads": self._threads})
