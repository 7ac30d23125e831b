"""Local processes: the jobs of a sweep on this computer, several at a time."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from triphase.bench.sweep.backend import LATENTS, Ended, how_it_ended, shared_arguments
from triphase.bench.sweep.jobs import Job, share_done
from triphase.directory_lock import locked
from triphase.errors import Busy

COMMAND = (sys.executable, "-m", "triphase")


class LocalProcesses:
    """A back end: one process a job, in the job's own directory."""

    def __init__(
        self,
        out: Path,
        data: Path,
        *,
        workers: int = 1,
        threads: int | None = None,
        latent_budget: int | None = None,
        device: str = "cpu",
    ) -> None:
        self.slots = workers
        self._latents = out / LATENTS
        self._arguments = shared_arguments(
            self._latents, data, workers=workers, threads=threads, latent_budget=latent_budget, device=device
        )
        self._processes: dict[Job, _Process] = {}

    def submit(self, job: Job) -> bool:
        """Start a process, unless there are enough or another one works there."""
        if len(self._processes) >= self.slots or not _is_free(job.directory):
            return False
        self._processes[job] = _start([*COMMAND, *job.arguments(), *self._arguments, "--json"])
        return True

    def collect(self, seconds: float) -> dict[Job, Ended]:
        """The jobs whose processes ended."""
        time.sleep(seconds)
        ended = [job for job, process in self._processes.items() if process.popen.poll() is not None]
        return {job: self._processes.pop(job).ended(job) for job in ended}

    def running(self) -> dict[Job, float]:
        """The jobs that have a process, with the share that is done."""
        return {job: share_done(job.directory, job.n_experiences) for job in self._processes}

    def stop(self) -> None:
        """End all processes; a run can be ended at any instant and continues where it was saved."""
        for process in self._processes.values():
            process.popen.terminate()
        for process in self._processes.values():
            process.popen.wait()
            process.stderr.close()
        self._processes.clear()

    def clean_up(self) -> None:
        """Remove the latents that runs shared."""
        shutil.rmtree(self._latents, ignore_errors=True)


@dataclass(frozen=True)
class _Process:
    """A job that is being executed."""

    popen: subprocess.Popen[bytes]
    stderr: IO[bytes]
    since: float

    def ended(self, job: Job) -> Ended:
        with self.stderr:
            self.stderr.seek(0)
            text = self.stderr.read().decode(errors="replace")
        return how_it_ended(job.directory, self.popen.returncode, text, time.monotonic() - self.since)


def _start(command: Sequence[str]) -> _Process:
    stderr = tempfile.TemporaryFile(prefix="triphase-sweep-")
    popen = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=stderr)
    return _Process(popen, stderr, time.monotonic())


def _is_free(directory: Path) -> bool:
    """Whether no process works there, such as one that outlived an earlier sweep."""
    try:
        with locked(directory):
            return True
    except Busy:
        return False
