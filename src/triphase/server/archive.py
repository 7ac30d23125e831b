"""A model directory as a zip, while others may write in it."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from triphase.app.store.versions import Store
from triphase.errors import Busy

PIECE = 1 << 20
ATTEMPTS = 20
Files = dict[str, IO[bytes]]


def snapshot(store: Store) -> Files:
    """The files of a model, all open, so that they stay readable even if a lesson removes them."""
    for _ in range(ATTEMPTS):
        before = _current(store)
        files: Files = {}
        try:
            for path in _paths(store.path):
                files[path.relative_to(store.path).as_posix()] = open(path, "rb")
        except FileNotFoundError:  # a writer has just removed it
            _close(files)
            continue
        if _current(store) == before:
            return files
        _close(files)
    raise Busy(f"{store.path} is being changed again and again; try again in a moment.")


def zipped(files: Files, name: str) -> Iterator[bytes]:
    """The bytes of a zip in which the files lie in one folder; nothing is compressed: weights hardly shrink."""
    sink = _Sink()
    try:
        with zipfile.ZipFile(sink, "w", zipfile.ZIP_STORED) as archive:
            for path, file in files.items():
                with archive.open(zipfile.ZipInfo(f"{name}/{path}"), "w", force_zip64=True) as entry:
                    while piece := file.read(PIECE):
                        entry.write(piece)
                        yield sink.take()
        yield sink.take()
    finally:
        _close(files)


class _Sink(io.RawIOBase):
    """A buffer that the zip writes to and `take` empties."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []

    def writable(self) -> bool:
        return True

    def write(self, piece: bytes) -> int:  # type: ignore[override]
        self._pieces.append(bytes(piece))
        return len(piece)

    def take(self) -> bytes:
        """What was written since the last time."""
        pieces, self._pieces = self._pieces, []
        return b"".join(pieces)


def _paths(root: Path) -> list[Path]:
    """What makes up a model: not its lock, and not what an interrupted lesson keeps."""
    inside = [*root.glob("parts/*.safetensors"), *root.glob("versions/*.json"), root / "history.jsonl"]
    return [path for path in [root / "CURRENT", *sorted(inside)] if path.exists() or path.name == "CURRENT"]


def _current(store: Store) -> bytes:
    return (store.path / "CURRENT").read_bytes()


def _close(files: Files) -> None:
    for file in files.values():
        file.close()
