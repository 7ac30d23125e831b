"""Checks before a sweep starts: equal conditions in one directory, and the data that all its runs need."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from triphase import state as files
from triphase.bench.benchmarks import find
from triphase.bench.learners import is_joint
from triphase.bench.run.benchmark_stream import make_stream
from triphase.bench.run.options import RunOptions, option_infos, upgraded
from triphase.bench.sweep.jobs import Job, Schedule
from triphase.data.streams import Stream
from triphase.errors import Mismatch, TriphaseError

OPTIONS = "options.json"  # the options that all runs in a directory have


def fixed_options(base: RunOptions, own: Mapping[str, Any]) -> dict[str, str]:
    """The options that a sweep does not vary, as they are written down."""
    fixed = {name: getattr(base, name) for name, info in option_infos().items() if info.sweep == "fixed"}
    return {name: str(value) for name, value in [*fixed.items(), *own.items()] if value is not None}


def check_options(out: Path, now: Mapping[str, str]) -> None:
    """Refuse a directory whose runs had other options: one table must not mix them."""
    path = out / OPTIONS
    saved = upgraded(files.read_json(path)) if path.exists() else now
    differing = [name for name in sorted(saved.keys() | now.keys()) if saved.get(name) != now.get(name)]
    if differing:
        name = differing[0]
        raise Mismatch(
            f"{out} holds runs with {name} {saved.get(name, 'not given')} (now {now.get(name, 'not given')}); "
            "give another --out."
        )


def record_options(out: Path, now: Mapping[str, str]) -> None:
    """Write down the options of the first sweep in a directory."""
    if not (out / OPTIONS).exists():
        files.write_json(out / OPTIONS, dict(now))


def check_data(schedule: Schedule, data: Path) -> None:
    """Refuse at once what every run would refuse, such as missing data, or data other than a finished run's."""
    jobs = sorted(schedule.jobs({}), key=_is_finished)
    for benchmark, job in {job.benchmark: job for job in reversed(jobs)}.items():
        try:
            stream = make_stream(find(benchmark), job.options, data)
        except TriphaseError:
            if _is_finished(job):
                continue  # every job known so far is finished: showing the results needs no data
            raise
        for other in jobs:
            if (other.benchmark, other.options.order) == (benchmark, job.options.order):
                check_stream(other, stream)


def check_stream(job: Job, stream: Stream) -> None:
    """Refuse a finished run over other data: it would be compared with runs over these."""
    if not _is_finished(job) or is_joint(job.options.learner) or not job.is_result:
        return
    learned = files.read_json(job.directory / "report.json").get("settings", {}).get("stream", stream.fingerprint)
    if learned != stream.fingerprint:
        raise Mismatch(f"{job.directory} was run on other data than these; delete it, or give another --out.")


def _is_finished(job: Job) -> bool:
    return (job.directory / "report.json").exists()
