"""Tables for people, drawn by rich."""

from rich.table import Table
from rich.text import Text

from triphase.printable import printable

TEXT_COLUMNS = ("class", "what", "when", "most often confused with", "")


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
