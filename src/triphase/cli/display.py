"""A context that draws in place while it lasts, if stderr is a terminal."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import TypeVar

from rich.console import Console, RenderableType
from rich.live import Live

from triphase.printable import printable

Self = TypeVar("Self", bound="Display")


class Display(ABC):
    """Subclasses take note of events and `draw` how things stand; where there is no terminal, they tell lines."""

    def __init__(self, *, quiet: bool, per_second: float = 8) -> None:
        self.console, self.per_second = Console(stderr=True, quiet=quiet), per_second
        self._live: Live | None = None

    @abstractmethod
    def draw(self) -> RenderableType:
        """How things stand."""

    def tell(self, line: str) -> None:
        """Print a line for good; names in it are escaped, and their brackets are no markup."""
        self.console.print(printable(line), highlight=False, markup=False, soft_wrap=True)

    def __enter__(self: Self) -> Self:
        if self.console.is_terminal:
            self._live = Live(
                console=self.console, get_renderable=self.draw, refresh_per_second=self.per_second, transient=True
            )
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()
