"""The view of a sweep: a live table in a terminal, a line per run elsewhere."""

from __future__ import annotations

from collections import Counter

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from triphase.bench.sweep.jobs import Job
from triphase.bench.sweep.scheduler import Progress
from triphase.cli.live import BAR, print_line, progress_console
from triphase.printable import percent


class SweepView:
    """Shows the progress of a sweep."""

    def __init__(self, *, quiet: bool = False) -> None:
        self.console = progress_console(quiet)
        self._progress: Progress | None = None
        self._printed: set[object] = set()

    def on_progress(self, progress: Progress) -> None:
        """Record the progress for the next redraw; results, failures and warnings are printed once."""
        self._progress = progress
        lines: dict[object, str] = {
            **{
                job: f"{job.title}  {result.diverged or f'AMCA {percent(result.amca)}'}"
                for job, result in progress.results.items()
            },
            **{job: f"{job.title}  failed: {reason}" for job, reason in progress.failed.items()},
            **{warning: warning for warning in progress.warnings},
        }
        for key, line in lines.items():
            if key not in self._printed:
                self._printed.add(key)
                print_line(self.console, line)

    def draw(self) -> RenderableType:
        """Learners with what is done of their runs, the runs that are being executed, and the time left."""
        progress = self._progress
        if progress is None:
            return Text("preparing", style="dim")
        finished = [job for job in progress.results if job.is_result]
        foot = f"{len(finished)} of {len(progress.schedule.planned())} runs, {_time_left(progress.seconds_left)}"
        foot += f", {len(progress.failed)} failed" if progress.failed else ""
        return Group(_learners(progress, finished), _running(progress), Text(foot))


def _learners(progress: Progress, finished: list[Job]) -> Table:
    done = Counter((job.benchmark, job.options.learner) for job in finished)
    best: dict[tuple[str, str], float] = {}
    for job in finished:
        key = (job.benchmark, job.options.learner)
        best[key] = max(best.get(key, 0.0), progress.results[job].amca or 0.0)
    table = Table(box=None)
    for name in ("benchmark", "learner", "runs", "best AMCA"):
        table.add_column(name, justify="right" if name in ("runs", "best AMCA") else "left")
    for key, total in Counter(run[:2] for run in progress.schedule.planned()).items():
        table.add_row(*key, f"{done[key]}/{total}", percent(best.get(key)))
    return table


def _running(progress: Progress) -> Table:
    table = Table.grid(padding=(0, 1))
    for job, share in progress.running.items():
        table.add_row("", ProgressBar(1.0, share, width=BAR), f"{100 * share:.0f} %", job.title)
    return table


def _time_left(seconds: float | None) -> str:
    if seconds is None:
        return "time left not known yet"
    minutes = round(seconds / 60)
    return f"about {minutes // 60} h {minutes % 60} min left" if minutes >= 60 else f"about {minutes} min left"
