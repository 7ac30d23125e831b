"""Tables for people, drawn by rich."""

from rich.table import Table
from rich.text import Text

from triphase.cli.printing import count, say
from triphase.errors import FEW
from triphase.printable import printable

TEXT_COLUMNS = ("class", "what", "when", "most often taken for", "")


def plain_table(*columns: str) -> Table:
    """A table without lines; all but columns of words are figures."""
    table = Table(box=None)
    for name in columns:
        justify = "left" if name in TEXT_COLUMNS else "right"
        table.add_column(name, justify=justify, no_wrap=name in ("when", "version"))  # type: ignore[arg-type]
    return table


def cell(text: object) -> Text:
    """A name or a sentence for a table, escaped."""
    return Text(printable(text))


def print_skipped(skipped: list[str]) -> None:
    """Which photos could not be read, if any."""
    if skipped:
        say(f"Skipped {count(len(skipped), 'photo')}:")
        for line in skipped[:FEW]:
            say(f"  {line}")
        if len(skipped) > FEW:
            say(f"  and {len(skipped) - FEW} more.")
