"""The interface of back ends, which execute the jobs of a sweep, and how a job ended."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NamedTuple, Protocol

from triphase.bench.run.directory import why_diverged
from triphase.bench.sweep.jobs import Job
from triphase.budget import Budget

LATENTS = "latents"  # the folder of latents that the runs of a sweep share


class Ended(NamedTuple):
    """How a job ended.

    finished: its report is in its directory. diverged: it has no result, and never will.
    refused: it would be refused again. crashed: its process died.
    lost: the machine it ran on is gone. stop: every other job would fail, too, until the cause is fixed.
    """

    how: Literal["finished", "diverged", "refused", "crashed", "lost", "stop"]
    reason: str = ""
    warnings: Sequence[str] = ()
    seconds: float = 0.0


class BackEnd(Protocol):
    """Executes jobs; a job that is submitted again goes on where it was saved."""

    @property
    def slots(self) -> int:
        """How many jobs can be executed at the same time."""

    def submit(self, job: Job) -> bool:
        """Take a job; False if there is no room for it now."""

    def collect(self, seconds: float) -> dict[Job, Ended]:
        """The jobs that ended since the last call; waits for one, but not longer than this."""

    def running(self) -> dict[Job, float]:
        """The jobs that are being executed, with the share that is done."""

    def stop(self) -> None:
        """End what is being executed; what is saved of it stays."""

    def clean_up(self) -> None:
        """Remove files that only unfinished jobs need."""


def how_it_ended(directory: Path, status: int | None, stderr: str, seconds: float) -> Ended:
    """How a run ended, from its directory and what its process left behind.

    >>> how_it_ended(Path("nowhere"), 1, "warning: careful\\nerror: There is no data.\\n", 2.0)
    Ended(how='refused', reason='There is no data.', warnings=['warning: careful'], seconds=2.0)
    """
    lines = stderr.splitlines()
    warnings = [line for line in lines if line.startswith("warning: ")]
    if (directory / "report.json").exists():
        return Ended("finished", "", warnings, seconds)
    if (reason := why_diverged(directory)) is not None:
        return Ended("diverged", reason, warnings, seconds)
    last = lines[-1] if lines else f"it ended with status {status}"
    if last.startswith("error: "):
        return Ended("refused", last.removeprefix("error: "), warnings, seconds)
    return Ended("crashed", last, warnings, seconds)


def shared_arguments(
    latents: Path,
    data: Path,
    *,
    workers: int,
    threads: int | None = None,
    latent_budget: int | None = None,
    device: str = "cpu",
) -> list[str]:
    """Arguments of every run: data, device, the latents that runs share, and its part of threads and RAM."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    threads = threads or max(1, cores // workers)
    budget = (Budget().limit >> 20) // workers if latent_budget is None else latent_budget
    shared = ["--data", str(data), "--device", device, "--latent-cache", str(latents)]
    return [*shared, "--threads", str(threads), "--latent-budget", str(budget)]
