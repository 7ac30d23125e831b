"""The scheduler: executes the jobs of a sweep as processes, several at a time, and retries one that crashes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import IO

from triphase import state as files
from triphase.bench.benchmarks import find
from triphase.bench.learners import is_joint
from triphase.bench.sweep.jobs import Job, Result, Schedule, read_result
from triphase.budget import Budget
from triphase.directory_lock import locked
from triphase.errors import Busy, Interrupted

COMMAND = (sys.executable, "-m", "triphase")
POLL = 0.2  # seconds between two looks at the processes
TRIES = 2
LATENTS = "latents"  # the folder of latents that the runs of a sweep share


@dataclass
class Progress:
    """How far a sweep is."""

    schedule: Schedule
    results: dict[Job, Result] = field(default_factory=dict)
    failed: dict[Job, str] = field(default_factory=dict)  # with the reason
    running: dict[Job, float] = field(default_factory=dict)  # with the share that is done
    seconds: dict[Job, float] = field(default_factory=dict)  # of the jobs that this process executed
    warnings: list[str] = field(default_factory=list)
    seconds_left: float | None = None


Watch = Callable[[Progress], None]


@dataclass(frozen=True)
class _Process:
    """A job that is being executed."""

    popen: subprocess.Popen[bytes]
    stderr: IO[bytes]
    since: float


def execute(
    schedule: Schedule,
    summary: Path,
    *,
    arguments: Sequence[str] = (),
    workers: int = 1,
    watch: Watch = lambda progress: None,
) -> Progress:
    """Execute every job that is not finished; the summary on disk is always up to date.

    `arguments` are given to every run beside its own. A run that crashes is tried once more; one that was refused
    is not, because it would be refused again.
    """
    written = -1

    def write_and_watch(progress: Progress) -> None:
        nonlocal written
        if written != len(progress.results) + len(progress.failed):
            written = len(progress.results) + len(progress.failed)
            files.write_json(summary, schedule.summary(progress.results, progress.failed))
        watch(progress)

    with locked(summary.parent):
        try:
            progress = _execute(schedule, arguments, workers, write_and_watch)
        except KeyboardInterrupt as error:
            raise Interrupted(f"Stopped; {summary.parent} is saved. Run again to continue.") from error
    if not progress.failed:
        shutil.rmtree(summary.parent / LATENTS, ignore_errors=True)
    return progress


def shared_arguments(
    out: Path, data: Path, *, workers: int, threads: int | None = None, latent_budget: int | None = None
) -> list[str]:
    """Arguments of every run: the data, the latents that runs share, and its part of the threads and of the RAM."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    threads = threads or max(1, cores // workers)
    budget = (Budget().limit >> 20) // workers if latent_budget is None else latent_budget
    shared = ["--latent-cache", str(out / LATENTS)]
    return ["--data", str(data), "--threads", str(threads), "--latent-budget", str(budget), *shared]


def _execute(schedule: Schedule, arguments: Sequence[str], workers: int, watch: Watch) -> Progress:
    progress, processes, tries = Progress(schedule), dict[Job, _Process](), Counter[Job]()
    try:
        ready = _ready(progress, processes)
        while processes or ready:
            for job in list(ready):
                if len(processes) < workers and _is_free(job.directory):
                    ready.remove(job)
                    tries[job] += 1
                    processes[job] = _start([*COMMAND, *job.arguments(), *arguments, "--json"])
            progress.running = {job: _share_done(job) for job in processes}
            progress.seconds_left = _seconds_left(progress, workers)
            watch(progress)
            time.sleep(POLL)
            ended = [job for job, process in processes.items() if process.popen.poll() is not None]
            for job in ended:
                _finish(job, processes.pop(job), progress, retry=tries[job] < TRIES)
            ready = _ready(progress, processes) if ended else ready
        progress.running, progress.seconds_left = {}, 0.0
        watch(progress)
        return progress
    finally:
        _terminate(processes.values())


def _ready(progress: Progress, processes: Mapping[Job, _Process]) -> list[Job]:
    """The jobs that can be started now; the results of those already finished are read."""
    while True:
        jobs = progress.schedule.jobs(progress.results)
        found = {j: r for j in jobs if j not in progress.results and (r := read_result(j.directory)) is not None}
        progress.results |= found
        if not found:
            break
    done = {job.directory for job in progress.results}
    started = {*progress.results, *progress.failed, *processes}
    return [
        job
        for job in jobs
        if job not in started and (job.options.first_from is None or job.options.first_from in done)
    ]


def _is_free(directory: Path) -> bool:
    """Whether no process works there, such as one that outlived an earlier sweep."""
    try:
        with locked(directory):
            return True
    except Busy:
        return False


def _start(command: list[str]) -> _Process:
    stderr = tempfile.TemporaryFile(prefix="triphase-sweep-")
    popen = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=stderr)
    return _Process(popen, stderr, time.monotonic())


def _finish(job: Job, process: _Process, progress: Progress, *, retry: bool) -> None:
    """Record how a job ended: a result, a failure, or a warning that it is tried again."""
    process.stderr.seek(0)
    lines = process.stderr.read().decode(errors="replace").splitlines()
    process.stderr.close()
    for line in lines:
        if line.startswith("warning: ") and line not in progress.warnings:
            progress.warnings.append(line)
    result = read_result(job.directory)
    if result is not None:
        progress.results[job], progress.seconds[job] = result, time.monotonic() - process.since
        return
    last = lines[-1] if lines else f"it ended with status {process.popen.returncode}"
    if last.startswith("error: ") or not retry:
        progress.failed[job] = last.removeprefix("error: ")
    else:
        progress.warnings.append(f"warning: {job.title} crashed ({last}) and is tried again.")


def _terminate(processes: Collection[_Process]) -> None:
    """End all processes; a run can be ended at any instant and continues where it was saved."""
    for process in processes:
        process.popen.terminate()
    for process in processes:
        process.popen.wait()
        process.stderr.close()


def _share_done(job: Job) -> float:
    """How much of a run is done, from the last event in its log."""
    try:
        with open(job.directory / "events.jsonl", "rb") as log:
            log.seek(max(0, log.seek(0, 2) - 65_536))
            event = json.loads(log.read().splitlines()[-1])
    except (OSError, ValueError, IndexError):  # not begun, or a line is being written
        return 0.0
    n = 1 if is_joint(job.options.learner) else find(job.benchmark).n_experiences
    within = event["epoch"] / event["epochs"] if event["event"] == "epoch" else 1.0
    return float(min(1.0, (event.get("experience", n) - 1 + within) / (job.options.experiences or n)))


def _seconds_left(progress: Progress, workers: int) -> float | None:
    """From the mean time of the finished runs of the same learner, or else of all."""
    seconds: dict[tuple[str, str], list[float]] = defaultdict(list)
    for job, result in progress.results.items():
        if job.is_result:
            took = progress.seconds.get(job, result.train_seconds)
            seconds[job.benchmark, job.options.learner].append(took)
    if not seconds:
        return None
    overall = fmean(fmean(values) for values in seconds.values())
    means = {key: fmean(values) for key, values in seconds.items()}
    left = sum(means.get(run[:2], overall) for run in progress.schedule.planned())
    left -= sum(sum(values) for values in seconds.values())
    for job, share in progress.running.items():
        left -= share * means.get((job.benchmark, job.options.learner), overall)
    return max(0.0, left / workers)
