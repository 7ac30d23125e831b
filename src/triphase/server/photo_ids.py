"""Ids of photos as text: JavaScript cannot hold integers of 64 bits."""

from __future__ import annotations

from triphase.errors import InvalidValue

BITS = 64


def to_text(photo_id: int) -> str:
    """Sixteen hexadecimal digits.

    >>> to_text(-1), from_text(to_text(-1))
    ('ffffffffffffffff', -1)
    """
    return f"{photo_id % (1 << BITS):016x}"


def from_text(text: str) -> int:
    """The id that `to_text` wrote."""
    if len(text) != BITS // 4 or not set(text) <= set("0123456789abcdef"):
        raise InvalidValue(f"The id of a photo has 16 hexadecimal digits, got {text[:20]!r}.")
    number = int(text, 16)
    return number - (1 << BITS) if number >> (BITS - 1) else number
