"""Checksums and formats: a document is the one that was written, by a version that this one understands."""

import re
from pathlib import Path
from typing import Any

import pytest
import torch

from store_helpers import fill
from triphase.app.store.checksums import FORMAT, sha256, verify_checksum, with_checksum
from triphase.errors import Mismatch

pytestmark = pytest.mark.usefixtures("no_fsync")


@pytest.mark.parametrize("name", ["CURRENT", "versions/*.json", "parts/*.safetensors"])
def test_newer_format_asks_for_an_upgrade(tmp_path: Path, name: str) -> None:
    store = fill(tmp_path, 1)
    for file in tmp_path.glob(name):
        blob = file.read_bytes()
        newer = re.sub(rb'("format":\s?"?)\d', rb"\g<1>9", blob)
        assert newer != blob
        file.write_bytes(newer)
    with pytest.raises(Mismatch, match=r"newer triphase \(format 9, this one reads \d\); upgrade"):
        store.load()


def test_older_format_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = fill(tmp_path, 1)
    monkeypatch.setattr("triphase.app.store.checksums.FORMAT", FORMAT + 1)
    with pytest.raises(Mismatch, match=rf"older triphase \(format {FORMAT}, .*teach a new model"):
        store.load()


# Values and documents


def test_the_checksum_of_a_value_is_that_of_its_content() -> None:
    w = torch.arange(6.0).view(2, 3)
    value = {"w": w, "names": ["cat", None], "n": 1}
    assert sha256(value) == sha256({"w": w.T.contiguous().T, "names": ("cat", None), "n": 1})
    others: list[Any] = [
        {"w": w.double(), "names": ["cat", None], "n": 1},
        {"w": w.view(3, 2), "names": ["cat", None], "n": 1},
        {"w": w, "names": ["cat"], "n": 1},
        {"w": w, "names": ["cat", None], "n": 1.0},
        {"w": w, "n": 1, "names": ["cat", None]},
    ]
    assert len({sha256(other) for other in (value, *others)}) == 1 + len(others)


def test_a_document_comes_back_and_a_changed_one_does_not(tmp_path: Path) -> None:
    document = {"format": FORMAT, "a": [1, "é", None]}
    blob = with_checksum(document)
    assert verify_checksum(blob, tmp_path) == document
    with pytest.raises(ValueError, match="checksum does not match"):
        verify_checksum(blob.replace(b"1", b"2", 1), tmp_path)


@pytest.mark.parametrize(
    "blob", [b"", b"[]", b"null", b"{}", b'{"a": 1}', b'{"format": null}', b'{"format": true}']
)
def test_what_is_no_document_is_refused(tmp_path: Path, blob: bytes) -> None:
    with pytest.raises((KeyError, TypeError, ValueError)):
        verify_checksum(blob, tmp_path)
