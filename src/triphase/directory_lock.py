"""One writer of a directory at a time: the lock is a file in it, and ends with the process that holds it."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from triphase.errors import BadData, Busy
from triphase.state import cannot_write, make_directory


@dataclass(frozen=True)
class DirectoryLock:
    """A lock that this process has taken."""

    file: Path
    descriptor: int

    def is_held(self) -> bool:
        """Whether the file is the one that was locked: not if it was removed, or its directory moved."""
        try:
            return os.path.samestat(os.fstat(self.descriptor), os.stat(self.file, follow_symlinks=False))
        except OSError:
            return False


@contextmanager
def locked(directory: Path) -> Iterator[DirectoryLock]:
    """Be the only writer of a directory; the lock of a process that died is free.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder, locked(Path(folder)) as lock:
    ...     (Path(folder) / "LOCK").exists(), lock.is_held()
    (True, True)
    """
    make_directory(directory)
    path = directory / "LOCK"
    try:
        if path.exists() and not stat.S_ISREG(path.stat().st_mode):
            raise BadData(f"{path} is not a regular file; remove it, and nobody may be writing in {directory}.")
        file = open(path, "a+b")
    except OSError as error:
        raise cannot_write(path, error) from error
    with file:
        lock = DirectoryLock(path, file.fileno())
        try:
            _lock(file.fileno())
            if not lock.is_held():
                raise OSError("the directory was deleted and made anew")
        except OSError as error:
            raise Busy(f"Another process is at work in {directory}; wait for it, or give another path.") from error
        yield lock


def _lock(descriptor: int) -> None:
    """Take the lock that ends with the process, or raise OSError."""
    if sys.platform == "win32":
        import msvcrt

        os.lseek(descriptor, 0, os.SEEK_SET)  # the byte that is locked is the one at hand
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
    else:
        import fcntl

        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
