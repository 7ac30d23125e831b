"""run(learner, stream) -> Report, resumable at any instant."""

from __future__ import annotations

import io
import json
import math
import platform
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import IO, Any

import torch
from torch import Tensor

from triphase import state as files
from triphase.bench import metrics
from triphase.bench.run.results import Report
from triphase.checkpoint import Checkpoint
from triphase.data.feature_cache import latents, unpack
from triphase.data.images import Images
from triphase.data.recipe import Recipe
from triphase.data.streams import Stream
from triphase.directory_lock import locked
from triphase.errors import BadData, Interrupted, InvalidValue, Mismatch
from triphase.learners.protocol import HasDiagnostics, Learner, Step
from triphase.learners.training import blocks_state, eval_mode
from triphase.stopwatch import PARTS

Event = dict[str, Any]
Watch = Callable[[Event], None]
DRAW_EVERY = 0.1  # seconds between two "step" events: what a person can see
BATCH = 256
TOLD_FIRST = ("benchmark", "learner", "order", "seed")  # of what differs: the cause before its consequences


def run(
    learner: Learner,
    stream: Stream,
    *,
    first: Recipe,
    rest: Recipe | None = None,
    out: Path | str | None = None,
    settings: dict[str, Any] | None = None,
    before: Report | None = None,
    watch: Watch = lambda event: None,
    save_every: float = 1.0,
) -> Report:
    """Learn a stream, experience by experience, and measure.

    With `out`, the run can be killed at any instant: the same call continues it and ends with the same weights,
    bit for bit. `out` then holds the final weights of the network, the report and a log of events; a finished run
    gives its report, and the learner stays as it came. `settings` are recorded and must agree when a run is
    continued; `watch` gets plain events to draw. `before` is the report of the run that learned the first
    experience, if another one did: its time counts here, too.
    """
    rest = rest or first
    if min(rest.epochs, first.epochs if before is None else 1) < 1:
        raise InvalidValue("epochs must be at least 1, got 0: there is no other run that did the training.")
    with locked(Path(out)) if out is not None else nullcontext():
        return _Run(learner, stream, first, rest, out, settings or {}, before, watch, save_every).go()


class _Run:
    def __init__(
        self,
        learner: Learner,
        stream: Stream,
        first: Recipe,
        rest: Recipe,
        out: Path | str | None,
        settings: dict[str, Any],
        before: Report | None,
        watch: Watch,
        save_every: float,
    ) -> None:
        _check_test(stream)
        self.learner, self.stream, self.recipes = learner, stream, (first, rest)
        self.out = Path(out) if out is not None else None
        self.checkpoint = Checkpoint(self.out / "state") if self.out else None
        self.watch, self.save_every = watch, save_every
        self.settings = {
            **settings,
            **learner.state_dict().get("settings", {}),
            "memory": _describe_memory(learner),
            "first": first.to_json(),
            "rest": rest.to_json(),
            "stream": stream.fingerprint,
            "threads": torch.get_num_threads(),
        }
        self.report = Report(self.settings, list(stream.names), evaluation=stream.evaluation, versions=_versions())
        if before is not None:
            self.report.phase_seconds = {"E_1": before.train_seconds}
            self.report.part_seconds, self.report.images = dict(before.part_seconds), before.images
        self.experience = 1  # the one that is being learned
        self.measured: dict[str, Tensor] = {}  # matrices of the report: large, and new at evaluations only
        self.test = _Test(learner, stream.test)
        self.log: IO[bytes] = io.BytesIO()  # events.jsonl, once it is open
        self.saved_at = self.drawn_at = self.resumed_at = 0.0
        self.stopwatch = learner.context.stopwatch
        self._note_parts()

    def go(self) -> Report:
        """Learn what is left."""
        finished = self._open()
        if finished is not None:
            return finished
        model = self.learner.model
        try:
            with self.stopwatch.watch(model.csf, model.head):
                for experience in self.stream.experiences[self.experience - 1 :]:
                    self._learn(experience.index)
                    if experience.index in self.stream.evaluate_after:
                        self._evaluate(experience.index)
                    self.experience = experience.index + 1
                    self._save(boundary=True)
            return self._close()
        except KeyboardInterrupt as error:
            if self.checkpoint is None:
                raise
            self.checkpoint.close()
            saved = f"{self.out} is saved" if self.saved_at else f"there was nothing to save in {self.out} yet"
            raise Interrupted(f"Stopped; {saved}. Run again to continue.") from error
        finally:
            self.log.close()
            if self.checkpoint is not None:
                self.checkpoint.wait()  # the lock on the directory must outlast whoever writes there

    def _learn(self, index: int) -> None:
        experience = self.stream.experiences[index - 1]
        self._emit(
            {
                "event": "begin",
                "experience": index,
                "of": len(self.stream.experiences),
                "images": len(experience.images),
                "classes": [self.stream.names[c] for c in experience.classes],
            }
        )
        self._go_on()
        self.phase = "start"
        self.learner.learn(experience, self.recipes[0 if index == 1 else 1], self._tick)
        self._count(self.phase)

    def _tick(self, step: Step) -> None:
        self._count(step.phase)
        now = time.perf_counter()
        last = step.step == step.steps
        if last or now - self.drawn_at >= DRAW_EVERY:
            event: Event = {
                "event": "epoch" if last else "step",
                "experience": self.experience,
                "phase": step.phase,
            }
            event |= {"epoch": step.epoch, "epochs": step.epochs, "step": step.step, "steps": step.steps}
            event |= {"loss": _finite(step.loss), "lr": step.lr}
            if last and isinstance(self.learner, HasDiagnostics):
                event |= {name: _finite(value) for name, value in self.learner.diagnostics().items()}
            self._emit(event, log=last, live=self.report.profile)
            self.drawn_at = now
        if now - self.saved_at >= self.save_every:
            self._save()
        self._go_on()

    def _go_on(self) -> None:
        """From here on, time is training's."""
        self.resumed_at = time.perf_counter()
        self._note_parts()

    def _note_parts(self) -> None:
        self.parts_at, self.images_at = dict(self.stopwatch.seconds), self.stopwatch.images
        self.borrowed_at = self.stopwatch.borrowed

    def _count(self, phase: str) -> None:
        """Time since training went on belongs to the phase, and to the parts that took it."""
        elapsed = time.perf_counter() - self.resumed_at + self.stopwatch.borrowed - self.borrowed_at
        phases, parts = self.report.phase_seconds, {}
        for part in PARTS:
            parts[part] = self.stopwatch.seconds[part] - self.parts_at[part]
        parts["other"] = elapsed - sum(parts.values())
        for part, seconds in parts.items():
            self.report.part_seconds[part] = self.report.part_seconds.get(part, 0.0) + seconds
        phases[phase] = phases.get(phase, 0.0) + elapsed
        self.report.images += self.stopwatch.images - self.images_at
        self.phase = phase

    def _evaluate(self, index: int) -> None:
        n_seen = self.stream.n_seen[index - 1]
        n_classes = max(len(self.stream.names), self.learner.model.n_classes)
        tested = n_classes if self.stream.evaluation == "all" else n_seen
        predicted, y = self.test.predict(self.learner, tested)
        row = metrics.class_accuracy(predicted, y, n_classes)
        self.report.accuracy.append([None if v != v else v for v in row.tolist()])
        confusion = metrics.confusion(predicted, y, n_classes)
        self.report.confusion = confusion.tolist()
        self.measured = {"accuracy": self.report.matrix, "confusion": confusion}
        self.report.evaluated_after.append(index)
        self.report.n_seen.append(n_seen)
        mean = metrics.mean_class_accuracy(row)
        per_class = dict(zip(self.stream.names, self.report.accuracy[-1], strict=False))
        event = {"event": "evaluated", "experience": index, "accuracy": mean, "classes": per_class}
        self._emit(event, log=True)

    def _open(self) -> Report | None:
        """Create the directory, or take up what is in it; a finished run is not done again."""
        if self.out is None or self.checkpoint is None:
            return None
        settings, report = self.out / "settings.json", self.out / "report.json"
        state = None if report.exists() else self.checkpoint.load()
        if report.exists() or state is not None:
            saved = files.read_json(settings)
            _check_same(self.out, saved, self.settings)
            if state is not None:
                _check_threads(self.out, saved["threads"])
        else:  # nothing was learned here, whatever was tried
            files.write_json(settings, self.settings)
        if report.exists():
            self.checkpoint.delete()  # killed at the very end, a run leaves it behind
            return Report.from_json(files.read_json(report))
        log = 0
        if state is not None:
            progress = state.pop("run")
            self.experience, log = progress["experience"], progress["log"]
            self.measured, self.saved_at = state.pop("measured"), time.perf_counter()
            self.report = Report.from_json({**asdict(self.report), **progress["report"]})
            if self.measured:
                rows = self.measured["accuracy"].tolist()
                self.report.accuracy = [[None if v != v else v for v in row] for row in rows]
                self.report.confusion = self.measured["confusion"].tolist()
            self.learner.load_state_dict(state)
            self._emit({"event": "resumed", "experience": self.experience})
        path = self.out / "events.jsonl"
        try:
            self.log = open(path, "ab")
            self.log.truncate(min(log, path.stat().st_size))
            self.log.seek(0, 2)
        except OSError as error:
            raise files.cannot_write(path, error) from error
        return None

    def _save(self, boundary: bool = False) -> None:
        if self.checkpoint is None:
            return
        if boundary:
            self.checkpoint.close()
        small = ("evaluated_after", "n_seen", "phase_seconds", "part_seconds", "images")
        report = {name: getattr(self.report, name) for name in small}
        progress = {"experience": self.experience, "log": self.log.tell(), "report": report}
        state = {**self.learner.state_dict(), "run": progress, "measured": self.measured}
        self.checkpoint.save(state, wait=self.save_every == 0)
        self.saved_at = time.perf_counter()

    def _close(self) -> Report:
        memory = getattr(self.learner, "memory", None)
        self.report.memory_bytes = memory.nbytes if memory is not None else 0
        done = {"event": "done", "amca": self.report.amca, "final_accuracy": self.report.final_accuracy}
        self._emit(done, log=True)
        if self.out is not None and self.checkpoint is not None:
            self.checkpoint.close()
            files.save(self.out / "weights.safetensors", blocks_state(self.learner.model))
            files.write_json(self.out / "report.json", self.report.to_json())
            self.checkpoint.delete()
        return self.report

    def _emit(self, event: Event, log: bool = False, live: Event | None = None) -> None:
        """Tell the watcher, and the log without what is `live`: the same run always writes the same log."""
        self.watch(event | (live or {}))
        if log and self.out is not None:
            try:
                self.log.write((json.dumps(event) + "\n").encode())
                self.log.flush()
            except OSError as error:
                raise files.cannot_write(self.out / "events.jsonl", error) from error


def _check_test(stream: Stream) -> None:
    """Every evaluation needs images."""
    tested, index = stream.test.labels, stream.evaluate_after[0]
    if len(tested) == 0 or (stream.evaluation == "seen" and int(tested.min()) >= stream.n_seen[index - 1]):
        raise BadData(f"There is no test image of the classes that have been seen after experience {index}.")


class _Test:
    """Test images; their latents are computed once for as long as llf does not change."""

    def __init__(self, learner: Learner, images: Images) -> None:
        self.model, self.context, self.images = learner.model, learner.context, images
        self._key: list[tuple[int, int]] = []
        self._z = torch.empty(0)

    def predict(self, learner: Learner, n_classes: int) -> tuple[Tensor, Tensor]:
        """Predicted and true classes of the test images that belong to the first n classes."""
        key = [(p.data_ptr(), p._version) for p in self.model.llf.state_dict().values()]
        if key != self._key or len(self._z) == 0:
            with eval_mode(self.model):
                self._z = latents(self.model, self.images, context=self.context)
            self._key = key
        rows = (self.images.labels < n_classes).nonzero().view(-1)
        scores = [learner.logits(unpack(self._z[some])).argmax(1).cpu() for some in rows.split(BATCH)]
        return torch.cat(scores), self.images.labels[rows]


def _describe_memory(learner: Learner) -> dict[str, Any] | None:
    memory = getattr(learner, "memory", None)
    if memory is None:
        return None
    return {
        "capacity": memory.capacity,
        "store": memory.store,
        "seed": memory.seed,
        "dtype": str(memory.dtype),
    }


def _finite(number: Tensor | float) -> float | None:
    """A number as JSON knows it."""
    value = float(number)
    return value if math.isfinite(value) else None


def _versions() -> dict[str, str]:
    return {
        "triphase": version("triphase"),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "machine": platform.machine(),
    }


def recorded_threads(out: Path) -> int | None:
    """The number of CPU threads that the unfinished run in this directory was begun with; None if there is none."""
    if (out / "report.json").exists() or not (out / "state" / "index.json").exists():
        return None
    return int(files.read_json(out / "settings.json")["threads"])


def _check_threads(out: Path, begun_with: int) -> None:
    """Refuse to continue a run under another number of threads: sums would be rounded in another order."""
    now = torch.get_num_threads()
    if now != begun_with:
        raise Mismatch(
            f"The run in {out} was begun with {begun_with} CPU thread(s), and this process has {now}, which rounds "
            f"otherwise: call torch.set_num_threads({begun_with}) before run(), or delete {out} to start again."
        )


def _check_same(out: Path, saved: dict[str, Any], now: dict[str, Any], prefix: str = "") -> None:
    """Refuse to continue a run as something else, and say what differs."""
    for name in sorted((saved.keys() | now.keys()) - {"threads"}, key=lambda name: (name not in TOLD_FIRST, name)):
        old, new = saved.get(name), now.get(name)
        if isinstance(old, dict) and isinstance(new, dict):
            _check_same(out, old, new, f"{prefix}{name}.")
        elif old != new:
            what = "another stream" if name == "stream" else f"{prefix}{name} {old!r} (now {new!r})"
            raise Mismatch(f"{out} holds a run with {what}; give another --out, or delete {out} to start again.")
