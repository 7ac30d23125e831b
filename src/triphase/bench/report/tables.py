"""What a table is: cells for a page, records for programs; as Markdown and CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class TableCell:
    """The text of one cell, and a second line for the paper's number."""

    text: str
    under: str = ""
    best: bool = False


@dataclass(frozen=True)
class Table:
    """A table as rows of cells and as records."""

    name: str  # of its files
    title: str
    caption: str
    header: list[str]
    rows: list[list[TableCell]]
    records: list[dict[str, Any]]
    caveats: list[str] = field(default_factory=list)

    def markdown(self) -> str:
        """In GitHub's Markdown."""
        lines = ["| " + " | ".join(map(_escaped, self.header)) + " |", "|---" * len(self.header) + "|"]
        for row in self.rows:
            texts = [f"**{_escaped(c.text)}**" if c.best else _escaped(c.text) for c in row]
            cells = [
                text + (f"<br>{_escaped(c.under)}" if c.under else "") for text, c in zip(texts, row, strict=True)
            ]
            lines.append("| " + " | ".join(cells) + " |")
        caveats = "".join(f"\n- {caveat}" for caveat in self.caveats)
        body = "\n".join(lines)
        return f"## {self.title}\n\n{body}\n\n{self.caption}\n{caveats}\n".rstrip() + "\n"

    def csv(self) -> str:
        """One line per cell, numbers in full."""
        return as_csv(self.records)


def as_csv(records: Sequence[Mapping[str, Any]]) -> str:
    """Records with the same names, one per line.

    >>> as_csv([{"a": 1, "b": None}])
    'a,b\\n1,\\n'
    """
    text = io.StringIO()
    writer = csv.DictWriter(text, list(records[0]) if records else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows(records)
    return text.getvalue()


def signed(value: float) -> str:
    """A difference with its sign, two digits and a true minus.

    >>> signed(-0.5)
    '−0.50'
    """
    return f"{value:+.2f}".replace("-", "−")


def _escaped(text: str) -> str:
    return text.replace("|", "\\|")
