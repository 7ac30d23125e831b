"""Tables for people, drawn by rich."""

from rich.table import Table

from triphase.cli.printing import count, say
from triphase.errors import FEW

TEXT_COLUMNS = ("class", "what", "when", "most often taken for", "")


def plain_table(*columns: str) -> Table:
    """A table without lines; all but columns of words are figures."""
    table = Table(box=None)
    for name in columns:
        justify = "left" if name in TEXT_COLUMNS else "right"
        table.add_column(name, justify=justify, no_wrap=name in ("when", "version"))  # type: ignore[arg-type]
    return table


def print_skipped(skipped: list[str]) -> None:
    """Which photos could not be read, if any."""
    if skipped:
        say(f"Skipped {count(len(skipped), 'photo')}:")
        for line in skipped[:FEW]:
            say(f"  {line}")
        if len(skipped) > FEW:
            say(f"  and {len(skipped) - FEW} more.")
