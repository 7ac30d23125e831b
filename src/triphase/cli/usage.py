"""Wrong usage, said without repeating raw what was typed."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from typer.core import TyperGroup

from triphase.printable import printable


class PrintableUsage(TyperGroup):
    """A group of commands whose complaints about arguments escape them, as all other messages do."""

    def make_context(self, *arguments: Any, **options: Any) -> Any:
        with _escaped():
            return super().make_context(*arguments, **options)

    def invoke(self, ctx: Any) -> Any:
        with _escaped():
            return super().invoke(ctx)


@contextmanager
def _escaped() -> Iterator[None]:
    try:
        yield
    except Exception as error:
        if hasattr(error, "format_message"):  # typer's and click's own errors, wherever typer takes click from
            message = printable(error.format_message())
            error.format_message = lambda: message
        raise
