"""What sources of files share: short lists of long paths, and ids that stay the same for ever."""

import os
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import overload

import numpy as np
import torch
from torch import Tensor

from triphase.errors import BadData


class Listed(Sequence[Path]):
    """Files below one folder, kept as names: a million Path objects would take a gigabyte.

    >>> files = Listed(Path("photos"), ["cat/1.jpg", "dog/2.jpg"])
    >>> len(files), files[1].as_posix()
    (2, 'photos/dog/2.jpg')
    """

    def __init__(self, root: Path, names: Sequence[str]) -> None:
        self._root = root
        self._names = names

    @overload
    def __getitem__(self, index: int) -> Path: ...
    @overload
    def __getitem__(self, index: slice) -> "Listed": ...
    def __getitem__(self, index: int | slice) -> "Path | Listed":
        if isinstance(index, slice):
            return Listed(self._root, self._names[index])
        return self._root / self._names[index]

    def __len__(self) -> int:
        return len(self._names)


def digest(content: bytes) -> bytes:
    """Eight bytes that tell contents apart."""
    return blake2b(content, digest_size=8).digest()


def file_digest(path: Path) -> bytes:
    """The digest of a file's content, read piece by piece: files may be larger than memory."""
    running = blake2b(digest_size=8)
    try:
        with open(path, "rb") as file:
            while piece := file.read(1 << 20):
                running.update(piece)
    except OSError as error:
        raise BadData(f"{path} cannot be read ({error.strerror}); allow reading it, or remove it.") from error
    return running.digest()


def ids_from(digests: Iterable[bytes]) -> Tensor:
    """Digests as int64 ids.

    >>> ids_from([bytes(8), b"\\x01" + bytes(7)]).tolist()
    [0, 1]
    """
    return torch.from_numpy(np.frombuffer(b"".join(digests), dtype="<i8").astype(np.int64))


def path_ids(names: Iterable[str]) -> Tensor:
    """One id for each relative path (written with forward slashes): the same on every machine."""
    return ids_from(digest(os.fsencode(name)) for name in names)


def listdir(folder: Path) -> list[str]:
    """The sorted names in a folder without the hidden ones; none if there is no such folder."""
    try:
        return sorted(name for name in os.listdir(folder) if not name.startswith("."))
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise BadData(f"{folder} cannot be listed ({error}); allow reading it.") from error
