"""Ids of photos as text: JSON readers in other languages do not keep integers of 64 bits."""

from __future__ import annotations

import re

from triphase.errors import InvalidValue


def photo_key(id_: int) -> str:
    """The id of a photo as 16 hexadecimal digits.

    >>> photo_key(-1), photo_key(10)
    ('ffffffffffffffff', '000000000000000a')
    """
    return f"{id_ % 2**64:016x}"


def photo_id(key: str) -> int:
    """The id that `photo_key` wrote.

    >>> photo_id("ffffffffffffffff")
    -1
    """
    if re.fullmatch(r"[0-9a-f]{16}", key, re.ASCII) is None:
        raise InvalidValue("The key of a photo has 16 hexadecimal digits; take one that a list of photos gave.")
    unsigned = int(key, 16)
    return unsigned - 2**64 if unsigned >= 2**63 else unsigned
