"""How help and usage errors are shown."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from typer.core import TyperCommand, TyperGroup

from triphase.printable import printable


class PrintableUsage(TyperGroup):
    """A group of commands whose usage errors escape arguments, as all other messages do."""

    def get_params(self, ctx: Any) -> list[Any]:
        return _without_flag_types(super().get_params(ctx))

    def make_context(self, *arguments: Any, **options: Any) -> Any:
        with _escaped():
            return super().make_context(*arguments, **options)

    def invoke(self, ctx: Any) -> Any:
        with _escaped():
            return super().invoke(ctx)


class Command(TyperCommand):
    """A command whose help shows no type beside flags, which take no value, and that refuses empty arguments."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if "" in args:
            ctx.fail("An argument is empty, as a shell variable without a value leaves it.")
        parsed: list[str] = super().parse_args(ctx, args)
        return parsed

    def get_params(self, ctx: Any) -> list[Any]:
        return _without_flag_types(super().get_params(ctx))


def _without_flag_types(params: list[Any]) -> list[Any]:
    for param in params:
        if getattr(param, "is_flag", False):
            param.metavar = ""
    return params


@contextmanager
def _escaped() -> Iterator[None]:
    try:
        yield
    except Exception as error:
        if hasattr(error, "format_message"):  # errors of typer and click, whichever click typer uses
            message = printable(error.format_message()).replace("Value error, ", "")  # pydantic's words
            error.format_message = lambda: message
        raise
