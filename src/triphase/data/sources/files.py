"""Shared by sources of files: compact lists of paths, and stable ids."""

import os
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import overload

import torch
from torch import Tensor

from triphase.errors import BadData


class LazyPaths(Sequence[Path]):
    """Files below one folder, kept as names: a million Path objects would take a gigabyte.

    >>> files = LazyPaths(Path("photos"), ["cat/1.jpg", "dog/2.jpg"])
    >>> len(files), files[1].as_posix()
    (2, 'photos/dog/2.jpg')
    """

    def __init__(self, root: Path, names: Sequence[str]) -> None:
        self._root = root
        self._names = names

    @overload
    def __getitem__(self, index: int) -> Path: ...
    @overload
    def __getitem__(self, index: slice) -> "LazyPaths": ...
    def __getitem__(self, index: int | slice) -> "Path | LazyPaths":
        if isinstance(index, slice):
            return LazyPaths(self._root, self._names[index])
        return self._root / self._names[index]

    def __len__(self) -> int:
        return len(self._names)


def file_id(path: Path) -> int:
    """The id of a file: 64 bits of a hash of its content, whatever its name.

    The content is read piece by piece: files may be larger than memory.
    """
    digest = blake2b(digest_size=8)
    try:
        with open(path, "rb") as file:
            while piece := file.read(1 << 20):
                digest.update(piece)
    except OSError as error:
        raise BadData(f"{path} cannot be read ({error.strerror}); allow reading it, or remove it.") from error
    return _signed(digest.digest())


def content_id(content: bytes) -> int:
    """The id that `file_id` gives a file with this content."""
    return _signed(blake2b(content, digest_size=8).digest())


def path_ids(names: Iterable[str]) -> Tensor:
    """One id for each relative path (written with forward slashes): the same on every machine.

    >>> path_ids(["s1/o1/C_01_01_000.png"]).tolist()
    [4464803151206144574]
    """
    return torch.tensor(
        [_signed(blake2b(os.fsencode(name), digest_size=8).digest()) for name in names], dtype=torch.long
    )


def _signed(digest: bytes) -> int:
    return int.from_bytes(digest, "little", signed=True)
