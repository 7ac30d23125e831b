"""The scheduler: which jobs of a sweep are executed next, which are tried again, and how far it is."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean

from triphase import state as files
from triphase.bench.run.directory import record_diverged, why_diverged
from triphase.bench.sweep.backend import BackEnd, Ended
from triphase.bench.sweep.jobs import Job, Result, Schedule, read_result
from triphase.directory_lock import locked
from triphase.errors import Interrupted, TriphaseError

POLL = 0.2  # seconds between two polls of the jobs
TRIES = {"crashed": 2, "lost": 10}  # a lost computer is rarely the fault of the job


@dataclass
class Progress:
    """How far a sweep is."""

    schedule: Schedule
    results: dict[Job, Result] = field(default_factory=dict)
    failed: dict[Job, str] = field(default_factory=dict)  # with the reason
    running: dict[Job, float] = field(default_factory=dict)  # with the share that is done
    seconds: dict[Job, float] = field(default_factory=dict)  # of the jobs that this sweep executed
    warnings: list[str] = field(default_factory=list)
    seconds_left: float | None = None


OnProgress = Callable[[Progress], None]


def execute(
    schedule: Schedule, summary: Path, back_end: BackEnd, *, on_progress: OnProgress = lambda progress: None
) -> Progress:
    """Execute every job that is not finished; the summary on disk is always up to date.

    A run that crashes is tried once more, one that is lost with its computer more often; one that was refused is
    not, because it would be refused again. One that diverged is an outcome, and never chosen.
    """
    written = -1

    def write_and_report(progress: Progress) -> None:
        nonlocal written
        if written != len(progress.results) + len(progress.failed):
            written = len(progress.results) + len(progress.failed)
            files.write_json(summary, schedule.summary(progress.results, progress.failed))
        on_progress(progress)

    with locked(summary.parent):
        try:
            progress = _execute(schedule, back_end, write_and_report)
            if not progress.failed:
                back_end.clean_up()
        except KeyboardInterrupt as error:
            raise Interrupted(f"Stopped; {summary.parent} is saved. Run again to continue.") from error
        finally:
            back_end.stop()
    return progress


def _execute(schedule: Schedule, back_end: BackEnd, on_progress: OnProgress) -> Progress:
    progress, submitted, ends = Progress(schedule), set[Job](), Counter[tuple[Job, str]]()
    ready = _ready(progress, submitted)
    while submitted or ready:
        for job in list(ready):
            if back_end.submit(job):
                ready.remove(job)
                submitted.add(job)
        progress.running = back_end.running()
        progress.seconds_left = _seconds_left(progress, back_end.slots)
        on_progress(progress)
        collected = back_end.collect(POLL)
        for job, ended in collected.items():
            submitted.remove(job)
            ends[job, ended.how] += 1
            _record(job, ended, progress, again=ends[job, ended.how] < TRIES.get(ended.how, 0))
        ready = _ready(progress, submitted) if collected else ready
    progress.running, progress.seconds_left = {}, 0.0
    on_progress(progress)
    return progress


def _ready(progress: Progress, submitted: Collection[Job]) -> list[Job]:
    """The jobs that can be started now; the results of those already finished are read."""
    while True:
        jobs = progress.schedule.jobs(progress.results)
        for job in jobs:
            _follow_first(job)
        found = {j: r for j in jobs if j not in progress.results and (r := read_result(j.directory)) is not None}
        progress.results |= found
        if not found:
            break
    done = {job.directory for job in progress.results}
    started = {*progress.results, *progress.failed, *submitted}
    return [
        job
        for job in jobs
        if job not in started and (job.options.first_from is None or job.options.first_from in done)
    ]


def _follow_first(job: Job) -> None:
    """A run whose first experience diverged diverged, too."""
    first = job.options.first_from
    reason = None if first is None else why_diverged(first)
    if reason is not None and why_diverged(job.directory) is None:
        record_diverged(job.directory, reason)


def _record(job: Job, ended: Ended, progress: Progress, *, again: bool) -> None:
    """Record how a job ended: a result, a failure, or a warning that it is tried again."""
    progress.warnings += [line for line in dict.fromkeys(ended.warnings) if line not in progress.warnings]
    if ended.how == "diverged":
        record_diverged(job.directory, ended.reason)  # a node of a cluster cannot
    result = read_result(job.directory) if ended.how in ("finished", "diverged") else None
    if ended.how == "stop":
        raise TriphaseError(ended.reason)
    if result is not None:
        progress.results[job], progress.seconds[job] = result, ended.seconds
    elif again:
        how = "crashed" if ended.how == "crashed" else "was lost"
        progress.warnings.append(f"warning: {job.title} {how} ({ended.reason}) and is tried again.")
    else:
        progress.failed[job] = ended.reason


def _seconds_left(progress: Progress, slots: int) -> float | None:
    """From the mean time of the finished runs of the same learner, or else of all."""
    seconds: dict[tuple[str, str], list[float]] = defaultdict(list)
    for job, result in progress.results.items():
        if job.is_result:
            took = progress.seconds.get(job, result.train_seconds or 0.0)
            seconds[job.benchmark, job.options.learner].append(took)
    if not seconds:
        return None
    overall = fmean(fmean(values) for values in seconds.values())
    means = {key: fmean(values) for key, values in seconds.items()}
    left = sum(means.get(run[:2], overall) for run in progress.schedule.planned())
    left -= sum(sum(values) for values in seconds.values())
    for job, share in progress.running.items():
        left -= share * means.get((job.benchmark, job.options.learner), overall)
    return max(0.0, left / slots)
