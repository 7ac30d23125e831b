"""The runs of a sweep, each a process of its own: several at a time, tried again once after a crash."""

from __future__ import annotations

import json
import subprocess
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from statistics import fmean
from typing import IO, Any, NamedTuple, Protocol

from triphase import state as files
from triphase.bench.benchmarks import Benchmark, file_name, find
from triphase.bench.learners import shares_first
from triphase.bench.run.options import RunOptions
from triphase.data.streams import Stream
from triphase.directory_lock import locked
from triphase.errors import Busy, Mismatch

POLL = 0.2  # seconds between two looks at the processes
TRIES = 2
FLAGS = {"compiled": "--compile"}  # options of the command line that are not called like their field
OF_CELLS = ("learner", "order", "lr", "learner_options", "first_from", "experiences")  # a sweep sets these itself


@dataclass(frozen=True)
class Cell:
    """One run: a pure function of its settings and its directory."""

    benchmark: str
    options: RunOptions
    directory: Path

    @property
    def title(self) -> str:
        """For people."""
        return f"{self.benchmark} {self.directory.name}"

    def arguments(self) -> list[str]:
        """What `triphase` is given to do it."""
        return ["bench", "run", self.benchmark, *arguments(self.options), "--out", str(self.directory)]


class Result(NamedTuple):
    """What a sweep needs of a finished run."""

    amca: float
    final_accuracy: float
    train_seconds: float


class Row(NamedTuple):
    """One run that is going to be done, as far as it is known beforehand."""

    benchmark: str
    learner: str
    text: str


class Plan(Protocol):
    """A sweep: a pure function from the results there are to the runs that follow from them."""

    def rows(self) -> list[Row]:
        """All the runs it will take."""

    def cells(self, results: Mapping[Cell, Result]) -> list[Cell]:
        """All the runs that the results allow to name, in the order in which to do them."""

    def document(self, results: Mapping[Cell, Result], failed: Mapping[Cell, str]) -> dict[str, Any]:
        """The records: what was measured so far and what follows from it."""


@dataclass
class Standing:
    """How far it is."""

    plan: Plan
    results: dict[Cell, Result] = field(default_factory=dict)
    failed: dict[Cell, str] = field(default_factory=dict)  # with the reason
    running: dict[Cell, float] = field(default_factory=dict)  # with the share that is done
    seconds: dict[Cell, float] = field(default_factory=dict)  # that runs took which were done just now
    warnings: list[str] = field(default_factory=list)
    seconds_left: float | None = None


@dataclass(frozen=True)
class _Job:
    process: subprocess.Popen[bytes]
    stderr: IO[bytes]
    since: float


def cell(out: Path, benchmark: Benchmark, options: RunOptions) -> Cell:
    """The run with these options, in a directory that is called after what sweeps vary."""
    name = f"{options.learner}-order{options.order}"
    if options.experiences is not None:
        name = f"first-order{options.order}"
    parts = {"seed": options.seed or None, "lr": options.lr, "wd": options.weight_decay}
    name += "".join(f"-{key}{value}" for key, value in parts.items() if value is not None)
    name += "".join(f"-{key}={value}" for key, value in options.own.items())
    name += ("-no-replay" if options.replay == "none" else "") + ("-brn" if options.norm == "brn" else "")
    return Cell(benchmark.name, options, out / file_name(benchmark.name) / name)


def with_first(out: Path, benchmark: Benchmark, options: RunOptions) -> list[Cell]:
    """The run with these options; before it, that of E_1 if all it does there is plain cross-entropy."""
    if not shares_first(options.learner, options.own, pretrained=benchmark.pretrained):
        return [cell(out, benchmark, options)]
    later = ["learner_options", "memory", "replay", "latent_dtype", "n_mbe", "n_mbr"]  # what E_1 does not know of
    if benchmark.first.lr_schedule == "patience":
        later += ["lr", "csf_lr"]  # the first rate of from-scratch training is not searched
    kept: dict[str, Any] = {f.name: f.default for f in fields(RunOptions) if f.name in later}
    first = cell(out, benchmark, replace(options, **kept | {"learner": "finetune", "experiences": 1}))
    return [first, cell(out, benchmark, replace(options, first_from=first.directory))]


def arguments(options: RunOptions) -> list[str]:
    """RunOptions as words of the command line.

    >>> arguments(RunOptions(order=1, lr=0.1, learner_options=(("t", 0.3), ("masking", "none"))))
    ['--order', '1', '--lr', '0.1', '--set', 't=0.3', '--set', 'masking=none']
    """
    words: list[str] = []
    for f in fields(RunOptions):
        value, flag = getattr(options, f.name), FLAGS.get(f.name, f"--{f.name.replace('_', '-')}")
        if f.name == "learner_options":
            for name, own in value:
                words += ["--set", f"{name}={own if isinstance(own, str) else json.dumps(own)}"]
        elif value != f.default:
            words += [flag] if value is True else [flag, str(value)]
    return words


def check_options(out: Path, base: RunOptions, own: Mapping[str, Any]) -> None:
    """Hold a directory to one set of conditions: results under others must not meet in one table."""
    common = {f.name: getattr(base, f.name) for f in fields(RunOptions) if f.name not in OF_CELLS}
    now = {name: str(value) for name, value in [*common.items(), *own.items()] if value is not None}
    path = out / "options.json"
    saved = files.read_json(path) if path.exists() else now
    differing = [name for name in sorted(saved.keys() | now.keys()) if saved.get(name) != now.get(name)]
    if differing:
        name = differing[0]
        raise Mismatch(
            f"{out} holds runs with {name} {saved.get(name, 'not given')} (now {now.get(name, 'not given')}); "
            "give another --out."
        )
    if not path.exists():
        files.write_json(path, now)


def check_stream(done: Cell, stream: Stream) -> None:
    """Refuse a finished run over other data: it would be compared with runs over these."""
    path, options = done.directory / "report.json", done.options
    if not path.exists() or options.learner == "joint" or options.experiences is not None:
        return
    learned = files.read_json(path).get("settings", {}).get("stream", stream.fingerprint)
    if learned != stream.fingerprint:
        raise Mismatch(f"{done.directory} was run on other data than these; delete it, or give another --out.")


def read_result(directory: Path) -> Result | None:
    """What a run measured, or None while it is not finished."""
    path = directory / "report.json"
    return Result(*(files.read_json(path)[name] for name in Result._fields)) if path.exists() else None


def measured(out: Path, where: Cell, results: Mapping[Cell, Result]) -> dict[str, Any]:
    """A run and its numbers for the records; None while it is not done."""
    result = results.get(where)
    numbers = dict.fromkeys(Result._fields) if result is None else result._asdict()
    return {"run": where.directory.relative_to(out).as_posix(), **numbers}


def reasons(out: Path, failed: Mapping[Cell, str]) -> dict[str, str]:
    """The runs that failed, each with its reason, for the records."""
    return {c.directory.relative_to(out).as_posix(): reason for c, reason in failed.items()}


def work(
    plan: Plan,
    *,
    command: Sequence[str],
    extra: Sequence[str] = (),
    workers: int = 1,
    watch: Callable[[Standing], None] = lambda standing: None,
) -> Standing:
    """Do all that the plan asks for and is not done yet.

    `command` is how `triphase` is called here, and `extra` what every run is told beside its settings. A run that
    crashes is tried once more; one that was refused is not, for it would be refused again.
    """
    standing, jobs, tries = Standing(plan), dict[Cell, _Job](), Counter[Cell]()
    try:
        waiting = _waiting(standing, jobs)
        while jobs or waiting:
            for todo in list(waiting):
                if len(jobs) < workers and _free(todo.directory):
                    waiting.remove(todo)
                    tries[todo] += 1
                    jobs[todo] = _start([*command, *todo.arguments(), *extra, "--json"])
            standing.running = {running: _share_done(running) for running in jobs}
            standing.seconds_left = _seconds_left(standing, workers)
            watch(standing)
            time.sleep(POLL)
            ended = [c for c, job in jobs.items() if job.process.poll() is not None]
            for c in ended:
                _note(c, jobs.pop(c), standing, again=tries[c] < TRIES)
            waiting = _waiting(standing, jobs) if ended else waiting
        standing.running, standing.seconds_left = {}, 0.0
        watch(standing)
        return standing
    finally:
        for job in jobs.values():
            job.process.terminate()  # a run can be ended at any instant; it continues where it was saved
        for job in jobs.values():
            job.process.wait()
            job.stderr.close()


def _waiting(standing: Standing, jobs: Mapping[Cell, _Job]) -> list[Cell]:
    """The runs that can be started now; those found done are noted."""
    while True:
        cells = standing.plan.cells(standing.results)
        found = {c: r for c in cells if c not in standing.results and (r := read_result(c.directory)) is not None}
        standing.results |= found
        if not found:
            break
    done = {c.directory for c in standing.results}
    return [
        c
        for c in cells
        if c not in standing.results
        and c not in standing.failed
        and c not in jobs
        and (c.options.first_from is None or c.options.first_from in done)
    ]


def _free(directory: Path) -> bool:
    """Nobody is at work there, such as a process that outlived an earlier sweep."""
    try:
        with locked(directory):
            return True
    except Busy:
        return False


def _start(words: list[str]) -> _Job:
    stderr = tempfile.TemporaryFile(prefix="triphase-sweep-")
    return _Job(
        subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=stderr),
        stderr,
        time.monotonic(),
    )


def _note(ended: Cell, job: _Job, standing: Standing, *, again: bool) -> None:
    """Take note of how a run ended; one that may be tried again is not noted."""
    job.stderr.seek(0)
    lines = job.stderr.read().decode(errors="replace").splitlines()
    job.stderr.close()
    for line in lines:
        if line.startswith("warning: ") and line not in standing.warnings:
            standing.warnings.append(line)
    result = read_result(ended.directory)
    if result is not None:
        standing.results[ended], standing.seconds[ended] = result, time.monotonic() - job.since
        return
    last = lines[-1] if lines else f"it ended with status {job.process.returncode}"
    if last.startswith("error: ") or not again:
        standing.failed[ended] = last.removeprefix("error: ")
    else:
        standing.warnings.append(f"warning: {ended.title} crashed ({last}) and is tried again.")


def _share_done(running: Cell) -> float:
    """How much of a run is done, from the last event in its log."""
    try:
        with open(running.directory / "events.jsonl", "rb") as log:
            log.seek(max(0, log.seek(0, 2) - 65_536))
            event = json.loads(log.read().splitlines()[-1])
    except (OSError, ValueError, IndexError):  # not begun, or a line is being written
        return 0.0
    of = 1 if running.options.learner == "joint" else find(running.benchmark).n_experiences
    within = event["epoch"] / event["epochs"] if event["event"] == "epoch" else 1.0
    return float(min(1.0, (event.get("experience", of) - 1 + within) / (running.options.experiences or of)))


def _seconds_left(standing: Standing, workers: int) -> float | None:
    """From the mean time of the runs of the same learner, or else of all, that are done."""
    seconds: dict[tuple[str, str], list[float]] = defaultdict(list)
    for done, result in standing.results.items():
        if done.options.experiences is None:
            took = standing.seconds.get(done, result.train_seconds)
            seconds[done.benchmark, done.options.learner].append(took)
    if not seconds:
        return None
    overall = fmean(fmean(values) for values in seconds.values())
    means = {key: fmean(values) for key, values in seconds.items()}
    left = sum(means.get(row[:2], overall) for row in standing.plan.rows())
    left -= sum(sum(values) for values in seconds.values())
    for running, share in standing.running.items():
        left -= share * means.get((running.benchmark, running.options.learner), overall)
    return max(0.0, left / workers)
