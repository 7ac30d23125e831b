"""Checksums and formats: a document is the one that was written, by a version that this one understands."""

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from store_helpers import (
    fill,
)
from triphase.app.store.checksums import FORMAT
from triphase.errors import Mismatch


@pytest.fixture(scope="module", autouse=True)
def _no_waiting_for_the_disk() -> Iterator[None]:
    """What fsync is for shows only where the power fails; the order of the calls is checked by dying at each."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        yield


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
