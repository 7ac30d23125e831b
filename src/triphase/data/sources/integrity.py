"""Whether a dataset is complete: how much was found, and how much is expected."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

from triphase.errors import few

Progress = Callable[[int], None]  # called now and then with the number of files counted since the last time


class DatasetInfo(NamedTuple):
    """Where to get a dataset or a file of weights, and its layout."""

    name: str
    title: str
    page: str  # where it comes from, in words and with its address
    layout: str  # what is expected in the data folder


class Count(NamedTuple):
    """The number found and the number expected, or None."""

    what: str
    found: int
    expected: int | None

    def __str__(self) -> str:
        of = "" if self.expected is None else f" of {self.expected:,}"
        return f"{self.found:,}{of} {self.what}"


@dataclass(frozen=True)
class Integrity:
    """What there is of one dataset or file of weights.

    >>> info = DatasetInfo("marbles", "Marbles", "the toy shop", "marbles/*.png")
    >>> Integrity(info, (Count("marbles", 9, 10),)).state
    'incomplete'
    """

    info: DatasetInfo
    counts: tuple[Count, ...]
    problems: tuple[str, ...] = ()  # sentences
    folders: frozenset[str] = frozenset()  # names in the data folder that belong to it

    @property
    def state(self) -> Literal["absent", "incomplete", "complete"]:
        """Nothing there, all there, or something in between."""
        if self.counts and not any(count.found for count in self.counts):
            return "absent"
        short = any(count.expected not in (None, count.found) for count in self.counts)
        return "incomplete" if short or self.problems else "complete"

    def to_json(self) -> dict[str, Any]:
        """Everything but the folders, for programs."""
        counts = [count._asdict() for count in self.counts]
        return {**self.info._asdict(), "state": self.state, "counts": counts, "problems": list(self.problems)}


def packed_archives(folder: Path, archives: Sequence[str]) -> list[str]:
    """A sentence if the folder holds archives that are not unpacked."""
    there = [name for name in archives if (folder / name).is_file()]
    return [f"Still packed: {few(there)}; unpack it in {folder}."] if there else []
