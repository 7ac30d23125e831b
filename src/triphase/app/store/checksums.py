"""Documents that carry their own checksum and the version of their format, and digests of what a state contains."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from triphase.errors import Mismatch
from triphase.state import dtype_name, is_array, raw_bytes

FORMAT = 7  # of a model directory


def sha256(value: Any) -> str:
    """SHA-256 of a value of a state: of its content, since one content can be written as different files."""
    digest = hashlib.sha256()

    def feed(value: Any) -> None:
        if is_array(value):
            digest.update(f"tensor torch.{dtype_name(value)} {list(value.shape)}\n".encode())
            if 0 not in value.shape:
                digest.update(raw_bytes(value))
        elif isinstance(value, Mapping):
            digest.update(f"mapping {len(value)}\n".encode())
            for key, item in value.items():
                digest.update(json.dumps(str(key)).encode())
                feed(item)
        elif isinstance(value, list | tuple):
            digest.update(f"list {len(value)}\n".encode())
            for item in value:
                feed(item)
        else:
            digest.update(json.dumps(value).encode() + b"\n")

    feed(value)
    return digest.hexdigest()


def json_copy(value: Mapping[str, Any]) -> dict[str, Any]:
    """A copy as JSON gives it back."""
    copy: dict[str, Any] = json.loads(json.dumps(value))
    return copy


def _checksum(document: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(document).encode()).hexdigest()[:16]


def with_checksum(document: Mapping[str, Any], indent: int | None = None) -> bytes:
    """A document with its own checksum, as JSON."""
    return json.dumps({**document, "checksum": _checksum(document)}, indent=indent).encode()


def verify_checksum(blob: bytes, file: Path) -> dict[str, Any]:
    """A document whose checksum is right; ValueError, KeyError or TypeError if it is not."""
    document = json.loads(blob)
    if not isinstance(document, dict):
        raise TypeError("it is no document")
    found = document.get("format", FORMAT)
    if type(found) is not int:
        raise TypeError("its format is no number")
    if found > FORMAT:
        raise Mismatch(
            f"{file} was written by a newer triphase (format {found}, this one reads {FORMAT}); upgrade."
        )
    if document.pop("checksum") != _checksum(document):
        raise ValueError("its checksum does not match")
    if found < FORMAT:
        raise Mismatch(
            f"{file} was written by an older triphase (format {found}, this one reads {FORMAT}): teach a new model "
            "from the photos, or use that version."
        )
    return document
