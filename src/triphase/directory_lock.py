"""One writer of a directory at a time: the lock is a file in it, and ends with the process that holds it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from triphase.errors import Busy
from triphase.state import cannot_write, make_directory


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Be the only writer of a directory; the lock of a process that died is free.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder, locked(Path(folder)):
    ...     (Path(folder) / "LOCK").exists()
    True
    """
    make_directory(directory)
    try:
        file = open(directory / "LOCK", "a+b")
    except OSError as error:
        raise cannot_write(directory / "LOCK", error) from error
    with file:
        try:
            _lock(file.fileno())
            if not os.path.samestat(os.fstat(file.fileno()), os.stat(file.name)):
                raise OSError("the directory was deleted and made anew")
        except OSError as error:
            raise Busy(f"Another process is at work in {directory}; wait for it, or give another path.") from error
        yield


def _lock(descriptor: int) -> None:
    """Take the lock that ends with the process, or raise OSError."""
    if sys.platform == "win32":
        import msvcrt

        os.lseek(descriptor, 0, os.SEEK_SET)  # the byte that is locked is the one at hand
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
    else:
        import fcntl

        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
