"""The lock of a model directory: one thread of one process writes, and notices when the directory is taken away."""

from __future__ import annotations

import os
import platform
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from triphase.directory_lock import DirectoryLock, locked
from triphase.errors import Busy, TriphaseError


class WriterLock:
    """The right to write in a model directory."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock: DirectoryLock | None = None
        self._thread: int | None = None

    @property
    def is_mine(self) -> bool:
        """Whether the calling thread has taken the lock through this object."""
        return self._thread == threading.get_ident()

    @contextmanager
    def acquire(self) -> Iterator[None]:
        """Take the lock, or raise Busy and name who has it."""
        with ExitStack() as stack:
            try:
                self._lock = stack.enter_context(locked(self.path))
            except Busy as error:
                raise Busy(f"{self._owner()} is at work in {self.path}; wait until it is done.") from error
            self._thread = threading.get_ident()
            stack.callback(self._release)
            with suppress(OSError):  # a courtesy to whoever finds the lock taken
                os.ftruncate(self._lock.descriptor, 0)
                os.write(self._lock.descriptor, f"Process {os.getpid()} on {platform.node()}\n".encode())
            try:
                yield
            except (TriphaseError, OSError):
                self._lock.check()  # what was not found, or not as expected, was taken away
                raise

    @property
    def held(self) -> DirectoryLock:
        """The lock that was taken: whoever holds it writes through it."""
        assert self._lock is not None, "only a writer that has taken the lock may write"
        return self._lock

    def _release(self) -> None:
        self._lock, self._thread = None, None

    def _owner(self) -> str:
        with suppress(OSError, ValueError):
            text = (self.path / "LOCK").read_text(encoding="utf-8").strip()
            if text.isprintable() and text:
                return text
        return "Another process"
