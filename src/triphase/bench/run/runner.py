"""run(learner, stream) -> Report: learns a stream experience by experience, and resumes after any interruption."""

from __future__ import annotations

import math
import platform
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from triphase.bench.run.directory import RunDirectory
from triphase.bench.run.evaluation import TestImages, check_test_images, evaluate
from triphase.bench.run.results import Report
from triphase.bench.run.several_processes import check_same_in_all, report_in_all, state_in_all
from triphase.bench.run.timing import TrainingTimer
from triphase.data.recipe import Recipe
from triphase.data.streams import Stream
from triphase.device import explain_out_of_memory, record_name
from triphase.directory_lock import locked
from triphase.errors import Interrupted, InvalidValue
from triphase.events import Event, OnEvent, ignore_event
from triphase.learners.placement import move
from triphase.learners.protocol import HasDiagnostics, Learner, Step
from triphase.learners.training import blocks_state

DRAW_EVERY = 0.1  # seconds between two "step" events
COMPILER = ("torch._dynamo.", "torch._inductor.")  # modules of the errors of torch.compile
REMEDY = "go on with another --device, or begin another run with smaller minibatches (--n-mbe, --n-mbr)"


def run(
    learner: Learner,
    stream: Stream,
    *,
    first: Recipe,
    rest: Recipe | None = None,
    out: Path | str | None = None,
    settings: dict[str, Any] | None = None,
    before: Report | None = None,
    on_event: OnEvent = ignore_event,
    save_every: float = 1.0,
    device: str | torch.device | None = None,
) -> Report:
    """Learn a stream, experience by experience, and evaluate.

    With `out`, the run can be killed at any instant: the same call continues it and ends with the same weights,
    bit for bit. `out` then holds the final weights of the network, the report and a log of events. A finished run
    returns its report and leaves the learner unchanged. `settings` are recorded and must agree when a run is
    continued; `on_event` gets progress as events. `before` is the report of the run that learned the first
    experience, if another one did: its time counts here, too. `device` is where the networks compute; a run that
    was begun on another one goes on, with results that are close to what they would have been. Where several
    processes share the work (`Context.processes`), each of them calls this and gets the report; the first writes.
    """
    rest, processes = rest or first, learner.context.processes
    if device is not None:
        move(learner, device)
    if min(rest.epochs, first.epochs if before is None else 1) < 1:
        raise InvalidValue("epochs must be at least 1, got 0: there is no other run that did the training.")
    out = out if processes.is_first else None  # the others write nothing
    with locked(Path(out)) if out is not None else nullcontext() as lock:
        check_test_images(stream)
        directory, recipes = RunDirectory(out, lock), (first, rest)
        settings = _all_settings(settings or {}, learner, stream, recipes)
        check_same_in_all(settings | _versions(), processes)
        finished = report_in_all(directory.finished_report(settings), processes)
        if finished is not None:
            return finished
        return _Run(learner, stream, recipes, directory, settings, before, on_event, save_every).learn()


class _Run:
    """A run that is not finished."""

    def __init__(
        self,
        learner: Learner,
        stream: Stream,
        recipes: tuple[Recipe, Recipe],
        directory: RunDirectory,
        settings: dict[str, Any],
        before: Report | None,
        on_event: OnEvent,
        save_every: float,
    ) -> None:
        self.learner, self.stream, self.recipes, self.directory = learner, stream, recipes, directory
        self.on_event, self.save_every = on_event, save_every
        self.report = Report(settings, list(stream.names), evaluation=stream.evaluation, versions=_versions())
        if before is not None:
            self.report.phase_seconds = {"E_1": before.train_seconds}
            self.report.part_seconds, self.report.images = dict(before.part_seconds), before.images
        self.experience = 1  # the one that is being learned
        self.phase = "start"
        self.matrices: dict[str, Tensor] = {}  # of the report: large, so a checkpoint has them as tensors
        self.test = TestImages(learner, stream.test)
        self.timer = TrainingTimer(learner.context.stopwatch)
        self.saved_at = self.drawn_at = 0.0

    def learn(self) -> Report:
        """Learn the experiences that are left."""
        model = self.learner.model
        try:
            self._resume()
            context = self.learner.context
            with context.stopwatch.time_forward(model.csf, model.head), context.reporting(self.on_event):
                for experience in self.stream.experiences[self.experience - 1 :]:
                    self._learn(experience.index)
                    self._check_finite(experience.index)
                    if experience.index in self.stream.evaluate_after:
                        self._evaluate(experience.index)
                    self.experience = experience.index + 1
                    self._save(may_skip=False)
            return self._finish()
        except KeyboardInterrupt as error:
            out = self.directory.path
            if out is None:
                raise
            self.directory.finish_saving()
            saved = f"{out} is saved" if self.saved_at else f"there was nothing to save in {out} yet"
            raise Interrupted(f"Stopped; {saved}. Run again to continue.") from error
        finally:
            self.directory.close()

    def _resume(self) -> None:
        """Continue at the checkpoint, if there is one."""
        state = state_in_all(self.directory.load_checkpoint(self.report.settings), self.learner.context.processes)
        if state is None:
            self.directory.open_log(0)
            return
        progress = state.pop("run")
        self.experience, self.matrices = progress["experience"], state.pop("matrices")
        self.saved_at = time.perf_counter()
        self.report = Report.from_json({**asdict(self.report), **progress["report"]})
        if self.matrices:
            rows = self.matrices["accuracy"].tolist()
            self.report.accuracy = [[None if v != v else v for v in row] for row in rows]
            self.report.confusion = self.matrices["confusion"].tolist()
        self.learner.load_state_dict(state)
        self._emit({"event": "resumed", "experience": self.experience})
        self.directory.open_log(progress["log"])

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
        self.timer.start()
        self.phase = "start"
        with explain_out_of_memory(REMEDY), _explain_compiler():
            self.learner.learn(experience, self._recipe(index), self._tick)
        self.timer.stop(self.report, self.phase)

    def _recipe(self, index: int) -> Recipe:
        return self.recipes[0 if index == 1 else 1]

    def _check_finite(self, index: int) -> None:
        """Refuse a network that diverged: its predictions would look like a result."""
        model = self.learner.model
        tensors = [*model.csf.state_dict().values(), *model.head.state_dict().values()]
        if not all(bool(tensor.isfinite().all()) for tensor in tensors):
            raise self._diverged(index, "weights are not finite")

    def _diverged(self, index: int, what: str) -> InvalidValue:
        """The error for a network that diverged, which is recorded."""
        reason = (
            f"The network diverged in experience {index} (learning rate {self._recipe(index).lr:g}): its {what}; "
            "lower --lr."
        )
        self.directory.diverged(reason)
        return InvalidValue(reason)

    def _tick(self, step: Step) -> None:
        """After every optimiser step: count its time, report progress, save."""
        self.phase = step.phase
        self.timer.stop(self.report, step.phase)
        now = time.perf_counter()
        if step.step == step.steps or now - self.drawn_at >= DRAW_EVERY:
            self._emit_step(step)
            self.drawn_at = now
        if now - self.saved_at >= self.save_every:
            self._save()
        self.timer.start()

    def _emit_step(self, step: Step) -> None:
        last = step.step == step.steps
        event: Event = {
            "event": "epoch" if last else "step",
            "experience": self.experience,
            "phase": step.phase,
            "epoch": step.epoch,
            "epochs": step.epochs,
            "step": step.step,
            "steps": step.steps,
            "loss": _finite(step.loss),
            "lr": step.lr,
        }
        if last and isinstance(self.learner, HasDiagnostics):
            event |= {name: _finite(value) for name, value in self.learner.diagnostics().items()}
        self._emit(event, log=last, live=self.report.profile)

    def _evaluate(self, index: int) -> None:
        confusion = evaluate(self.learner, self.test, self.stream, index, self.report)
        if confusion is None:  # in float16 activations overflow, and no step is taken that would spoil a weight
            raise self._diverged(index, "scores are no numbers")
        self.matrices = {"accuracy": self.report.matrix, "confusion": confusion}
        per_class = dict(zip(self.stream.names, self.report.accuracy[-1], strict=False))
        event = {"event": "evaluated", "experience": index, "accuracy": self.report.curve[-1], "classes": per_class}
        self._emit(event, log=True)

    def _save(self, *, may_skip: bool = True) -> None:
        if self.directory.path is None:
            return
        small = ("evaluated_after", "n_seen", "phase_seconds", "part_seconds", "images")
        report = {name: getattr(self.report, name) for name in small}
        progress = {"experience": self.experience, "log": self.directory.log_size, "report": report}
        state = {**self.learner.state_dict(), "run": progress, "matrices": self.matrices}
        self.directory.save(state, wait=self.save_every == 0, may_skip=may_skip)
        self.saved_at = time.perf_counter()

    def _finish(self) -> Report:
        memory = getattr(self.learner, "memory", None)
        self.report.memory_bytes = memory.nbytes if memory is not None else 0
        done = {"event": "done", "amca": self.report.amca, "final_accuracy": self.report.final_accuracy}
        self._emit(done, log=True)
        self.directory.finish(self.report, blocks_state(self.learner.model))
        return self.report

    def _emit(self, event: Event, log: bool = False, live: Event | None = None) -> None:
        """Report an event; `live` numbers differ from run to run and stay out of the log."""
        self.on_event(event | (live or {}))
        if log:
            self.directory.log(event)


@contextmanager
def _explain_compiler() -> Iterator[None]:
    """Turn errors of torch.compile within this block, such as a missing C++ compiler, into one sentence."""
    try:
        yield
    except Exception as error:
        if not type(error).__module__.startswith(COMPILER):
            raise
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        raise InvalidValue(f"torch.compile failed ({reason}): leave out --compile.") from error


def _all_settings(
    settings: dict[str, Any], learner: Learner, stream: Stream, recipes: tuple[Recipe, Recipe]
) -> dict[str, Any]:
    """What is recorded of a run, and must be the same when it is continued."""
    return {
        **settings,
        **learner.state_dict().get("settings", {}),
        "memory": _memory_settings(learner),
        "first": recipes[0].to_json(),
        "rest": recipes[1].to_json(),
        "stream": stream.fingerprint,
        "threads": torch.get_num_threads(),
        "device": record_name(learner.model.device),
    } | ({"processes": size} if (size := learner.context.processes.size) > 1 else {})


def _memory_settings(learner: Learner) -> dict[str, Any] | None:
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
    """A number as JSON has it: None for NaN and infinities."""
    value = float(number)
    return value if math.isfinite(value) else None


def _versions() -> dict[str, str]:
    return {
        "triphase": version("triphase"),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "machine": platform.machine(),
    }
