"""Sets of numbers as text, such as 0-3,7."""

from __future__ import annotations

import re
from collections.abc import Iterable

from triphase.errors import InvalidValue


def parse_ranges(flag: str, text: str) -> tuple[int, ...]:
    """The numbers that a command-line flag names.

    >>> parse_ranges("--orders", "0-3"), parse_ranges("--orders", "2,0")
    ((0, 1, 2, 3), (2, 0))
    """
    numbers: list[int] = []
    for part in text.split(","):
        begin, dash, end = part.strip().partition("-")
        ends = (begin, end if dash else begin)
        if not all(re.fullmatch(r"\d{1,5}", word, re.ASCII) for word in ends) or int(ends[0]) > int(ends[1]):
            numbers = []
            break
        numbers += range(int(ends[0]), int(ends[1]) + 1)
    if not numbers or len(set(numbers)) < len(numbers):
        raise InvalidValue(f"{flag} takes different numbers such as 0-3 or 0,2,5, got {text!r}.")
    return tuple(numbers)


def format_ranges(numbers: Iterable[int]) -> str:
    """Numbers in ascending order, consecutive ones as a range.

    >>> format_ranges([5, 0, 1, 2])
    '0-2,5'
    """
    ranges: list[list[int]] = []
    for number in sorted(numbers):
        if ranges and ranges[-1][-1] == number - 1:
            ranges[-1] = [ranges[-1][0], number]
        else:
            ranges.append([number])
    return ",".join("-".join(map(str, ends)) for ends in ranges)
