"""Print results: JSON for programs, aligned columns and sentences for people."""

import json
import sys
from collections.abc import Sequence

from triphase.errors import FEW
from triphase.printable import printable


def print_json(document: object) -> None:
    """Print one document on stdout and nothing else."""
    sys.stdout.write(json.dumps(document, indent=1) + "\n")


def print_rows(rows: Sequence[Sequence[str]]) -> None:
    """Print the rows of a table without header, in columns two spaces apart, names escaped."""
    shown = [[printable(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*shown, strict=True)]
    for row in shown:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def say(line: str) -> None:
    """Print a sentence for people on stdout, names in it escaped."""
    print(printable(line))


def count(n: int, what: str) -> str:
    """A number with its noun, in the singular or plural.

    >>> count(1, "photo"), count(2000, "photo"), count(2, "class")
    ('1 photo', '2,000 photos', '2 classes')
    """
    return f"{n:,} {what}" if n == 1 else f"{n:,} {what}{'es' if what.endswith('s') else 's'}"


def print_skipped(skipped: list[str]) -> None:
    """Print which photos could not be read, if any."""
    if skipped:
        say(f"Skipped {count(len(skipped), 'photo')}:")
        for line in skipped[:FEW]:
            say(f"  {line}")
        if len(skipped) > FEW:
            say(f"  and {len(skipped) - FEW} more.")
