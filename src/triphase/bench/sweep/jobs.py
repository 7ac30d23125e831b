"""Jobs: the single runs of a sweep, their directories and their results."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, NamedTuple, Protocol, TypeVar

from triphase import state as files
from triphase.bench.benchmarks import Benchmark, file_name, find
from triphase.bench.learners import is_joint, shares_first
from triphase.bench.run.directory import why_diverged
from triphase.bench.run.options import RunOptions, default, option_infos

NUMBERS = ("amca", "final_accuracy", "train_seconds")  # of a result
Setting = TypeVar("Setting")


@dataclass(frozen=True)
class Job:
    """One run: a pure function of its options and its directory."""

    benchmark: str
    options: RunOptions
    directory: Path

    @property
    def title(self) -> str:
        """For messages."""
        return f"{self.benchmark} {self.directory.name}"

    @property
    def is_result(self) -> bool:
        """False for a run over E_1 alone, which other jobs start from."""
        return self.options.experiences is None

    @property
    def n_experiences(self) -> int:
        """How many experiences it learns."""
        n = 1 if is_joint(self.options.learner) else find(self.benchmark).n_experiences
        return self.options.experiences or n

    def arguments(self) -> list[str]:
        """The arguments of `triphase` that execute it."""
        return ["bench", "run", self.benchmark, *self.options.arguments(), "--out", str(self.directory)]


class Result(NamedTuple):
    """What a sweep needs of a finished run; one that diverged has no numbers."""

    amca: float | None
    final_accuracy: float | None
    train_seconds: float | None
    diverged: str = ""  # why


class PlannedRun(NamedTuple):
    """One run as it can be listed before any other is done."""

    benchmark: str
    learner: str
    text: str


class Schedule(Protocol):
    """A sweep: a pure function from the results so far to the jobs that follow from them."""

    def planned(self) -> list[PlannedRun]:
        """All the runs it takes."""

    def jobs(self, results: Mapping[Job, Result]) -> list[Job]:
        """All the jobs that the results allow to name, in the order in which to execute them."""

    def summary(self, results: Mapping[Job, Result], failed: Mapping[Job, str]) -> dict[str, Any]:
        """The results so far and what was chosen by them, as a JSON document."""


def make_job(out: Path, benchmark: Benchmark, options: RunOptions) -> Job:
    """The run with these options, in a directory that is called after what sweeps vary."""
    name = f"{options.learner}-order{options.order}"
    if options.experiences is not None:
        name = f"first-order{options.order}"
    parts = {
        "seed": options.seed or None,
        "lr": options.lr,
        "wd": options.weight_decay,
        "labelled": options.labelled,
    }
    name += "".join(f"-{key}{value}" for key, value in parts.items() if value is not None)
    name += "".join(f"-{key}={value}" for key, value in options.own.items())
    name += ("-no-replay" if options.replay == "none" else "") + ("-brn" if options.norm == "brn" else "")
    return Job(benchmark.name, options, out / file_name(benchmark.name) / name)


def with_shared_first(out: Path, benchmark: Benchmark, options: RunOptions) -> list[Job]:
    """The run with these options; before it that of E_1, if other learners can share it."""
    if not shares_first(options.learner, options.own, pretrained=benchmark.pretrained):
        return [make_job(out, benchmark, options)]
    unused = [name for name, info in option_infos().items() if not info.affects_first]
    if benchmark.first.lr_schedule == "patience":
        unused += ["lr", "csf_lr"]  # the rate of training from scratch has a schedule of its own
    shared = {name: default(name) for name in unused} | {"learner": "finetune", "experiences": 1}
    first = make_job(out, benchmark, replace(options, **shared))
    return [first, make_job(out, benchmark, replace(options, first_from=first.directory))]


def read_result(directory: Path) -> Result | None:
    """The result of a run, or None while it is not finished."""
    path = directory / "report.json"
    if path.exists():
        return Result(*(files.read_json(path)[name] for name in NUMBERS))
    reason = why_diverged(directory)
    return None if reason is None else Result(None, None, None, reason)


def best(settings: Sequence[Setting], results: Sequence[Result | None]) -> Setting | None:
    """The setting with the highest AMCA; None until all of them were tried, and if all diverged.

    >>> best(["a", "b"], [Result(0.5, 0.5, 1.0), Result(None, None, None, "It diverged.")])
    'a'
    """
    if None in results:
        return None
    amca = [-1.0 if result is None or result.amca is None else result.amca for result in results]
    return settings[amca.index(max(amca))] if max(amca) >= 0 else None


def share_done(directory: Path, n_experiences: int) -> float:
    """How much of a run is done, from the last event in its log."""
    try:
        with open(directory / "events.jsonl", "rb") as log:
            log.seek(max(0, log.seek(0, 2) - 65_536))
            event = json.loads(log.read().splitlines()[-1])
    except (OSError, ValueError, IndexError):  # not begun, or a line is being written
        return 0.0
    within = event["epoch"] / event["epochs"] if event["event"] == "epoch" else 1.0
    return float(min(1.0, (event.get("experience", n_experiences) - 1 + within) / n_experiences))


def record(out: Path, job: Job, results: Mapping[Job, Result]) -> dict[str, Any]:
    """A job and its numbers for a summary; None while it is not finished, and if it diverged."""
    result = results.get(job)
    numbers = {name: getattr(result, name, None) for name in NUMBERS}
    why = {"diverged": result.diverged} if result is not None and result.diverged else {}
    return {"run": job.directory.relative_to(out).as_posix(), **numbers, **why}


def record_failed(out: Path, failed: Mapping[Job, str]) -> dict[str, str]:
    """The jobs that failed, each with its reason, for a summary."""
    return {job.directory.relative_to(out).as_posix(): reason for job, reason in failed.items()}


def mean_and_std(records: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, float | None]]:
    """Mean and standard deviation (of a sample) of each number; None where there is nothing to average."""
    found: dict[str, dict[str, float | None]] = {}
    for name in NUMBERS:
        values = [each[name] for each in records if each[name] is not None]
        found[name] = {
            "mean": fmean(values) if values else None,
            "std": stdev(values) if len(values) > 1 else None,
        }
    return found
