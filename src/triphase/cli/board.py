"""Draws a sweep: a live table in a terminal, a line per run elsewhere."""

from __future__ import annotations

from collections import Counter

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from triphase.bench.sweep.scheduler import Standing
from triphase.cli.display import Display
from triphase.cli.printing import percent

BAR = 24


class Board(Display):
    """A context in which `watch` draws how far a sweep is."""

    def __init__(self, *, quiet: bool = False) -> None:
        super().__init__(quiet=quiet, per_second=2)
        self._standing: Standing | None = None
        self._told: set[object] = set()

    def watch(self, standing: Standing) -> None:
        """Take note; what is new is told once."""
        self._standing = standing
        lines = {cell: f"{cell.title}  AMCA {percent(result.amca)}" for cell, result in standing.results.items()}
        lines |= {cell: f"{cell.title}  failed: {reason}" for cell, reason in standing.failed.items()}
        for key, line in [*lines.items(), *((warning, warning) for warning in standing.warnings)]:
            if key not in self._told:
                self._told.add(key)
                self.tell(line)

    def draw(self) -> RenderableType:
        standing = self._standing
        if standing is None:
            return Text("preparing", style="dim")
        rows = standing.plan.rows()
        whole = [cell for cell in standing.results if cell.options.experiences is None]
        done = Counter((cell.benchmark, cell.options.learner) for cell in whole)
        best: dict[tuple[str, str], float] = {}
        for cell in whole:
            key = (cell.benchmark, cell.options.learner)
            best[key] = max(best.get(key, 0.0), standing.results[cell].amca)
        table = Table(box=None)
        for name in ("benchmark", "learner", "runs", "best AMCA"):
            table.add_column(name, justify="right" if name in ("runs", "best AMCA") else "left")
        for key, total in Counter(row[:2] for row in rows).items():
            table.add_row(*key, f"{done[key]}/{total}", percent(best.get(key)))
        running = Table.grid(padding=(0, 1))
        for cell, share in standing.running.items():
            running.add_row("", ProgressBar(1.0, share, width=BAR), f"{100 * share:.0f} %", cell.title)
        foot = f"{len(whole)} of {len(rows)} runs, {_left(standing.seconds_left)}"
        return Group(table, running, Text(foot + (f", {len(standing.failed)} failed" if standing.failed else "")))


def _left(seconds: float | None) -> str:
    """The time left as people say it."""
    if seconds is None:
        return "time left not known yet"
    minutes = round(seconds / 60)
    return f"about {minutes // 60} h {minutes % 60} min left" if minutes >= 60 else f"about {minutes} min left"
