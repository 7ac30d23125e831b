"""Progress in a terminal: a view is redrawn in place; elsewhere it prints lines."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol, TypeVar

from rich.console import Console, RenderableType
from rich.live import Live

from triphase.printable import printable

BAR = 24


class View(Protocol):
    """What is redrawn."""

    console: Console

    def draw(self) -> RenderableType:
        """The current state."""


V = TypeVar("V", bound=View)


@contextmanager
def live(view: V, *, per_second: float = 8) -> Iterator[V]:
    """Redraw a view in place while the context lasts, if its console is a terminal."""
    if not view.console.is_terminal:
        yield view
        return
    with Live(console=view.console, get_renderable=view.draw, refresh_per_second=per_second, transient=True):
        yield view


def progress_console(quiet: bool) -> Console:
    """The console for progress: standard error, or nothing."""
    return Console(stderr=True, quiet=quiet)


def print_line(console: Console, line: str) -> None:
    """Print a line above the view; names in it are escaped, and their brackets are no markup."""
    console.print(printable(line), highlight=False, markup=False, soft_wrap=True)


def bar(share: float) -> str:
    """A share as a bar of blocks.

    >>> bar(0.25)
    '██████░░░░░░░░░░░░░░░░░░'
    """
    full = round(BAR * min(max(share, 0.0), 1.0))
    return "█" * full + "░" * (BAR - full)
