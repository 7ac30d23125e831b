"""Sets of numbers as text."""

from __future__ import annotations

import pytest

from triphase.bench.ranges import parse_ranges
from triphase.errors import InvalidValue


@pytest.mark.parametrize(
    ("text", "orders"), [("0-3", (0, 1, 2, 3)), ("2", (2,)), ("3,1", (3, 1)), ("0,4-6", (0, 4, 5, 6))]
)
def test_ranges_and_lists_are_parsed(text: str, orders: tuple[int, ...]) -> None:
    assert parse_ranges("--orders", text) == orders


@pytest.mark.parametrize("text", ["", "a", "3-1", "0-3,9-5", "1,1", "-1", "0-", "1.5", "0-99999999999", "¹"])
def test_ranges_that_make_no_sense_are_refused(text: str) -> None:
    with pytest.raises(InvalidValue, match="--orders takes different numbers such as 0-3"):
        parse_ranges("--orders", text)
