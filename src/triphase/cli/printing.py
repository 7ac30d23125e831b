"""Print results: JSON for programs, aligned columns and sentences for people."""

import json
import sys
from collections.abc import Sequence

from triphase.errors import FEW
from triphase.printable import columns, count, printable


def print_json(document: object) -> None:
    """Print one document on stdout and nothing else."""
    sys.stdout.write(json.dumps(document, indent=1) + "\n")


def print_rows(rows: Sequence[Sequence[str]]) -> None:
    """Print the rows of a table without header, in columns two spaces apart, names escaped."""
    shown = [[printable(cell) for cell in row] for row in rows]
    widths = [max(map(columns, column)) for column in zip(*shown, strict=True)]
    for row in shown:
        padded = [cell + " " * (width - columns(cell)) for cell, width in zip(row, widths, strict=True)]
        print("  ".join(padded).rstrip())


def say(line: str) -> None:
    """Print a sentence for people on stdout, names in it escaped."""
    print(printable(line))


def print_skipped(skipped: list[str]) -> None:
    """Print which photos could not be read, if any."""
    if skipped:
        say(f"Skipped {count(len(skipped), 'photo')}:")
        for line in skipped[:FEW]:
            say(f"  {line}")
        if len(skipped) > FEW:
            say(f"  and {len(skipped) - FEW} more.")
