"""One writer of a directory at a time: the lock is a file in it, and ends with the process that holds it."""

from __future__ import annotations

import os
import platform
import stat
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from triphase.errors import BadData, Busy, LockLost
from triphase.state import cannot_write, make_directory, open_at, replace_file


@dataclass(frozen=True)
class DirectoryLock:
    """A directory whose only writer is this process; writes go to the locked directory even if it is moved."""

    directory: Path
    descriptor: int  # of LOCK
    folder: (
        int | None
    )  # descriptor of the directory; None on Windows, which moves no folder with an open file in it

    def is_held(self) -> bool:
        """Whether the directory is the one that was locked: not if it was moved, or LOCK was removed."""
        try:
            if self.folder is not None and not _same(self.folder, self.directory):
                return False
            return _same(self.descriptor, self.directory / "LOCK")
        except OSError:
            return False

    def check(self) -> None:
        """Raise LockLost if the lock is not held any more."""
        if not self.is_held():
            raise LockLost(
                f"{self.directory} was moved, deleted or unlocked while this process was writing there: nothing "
                "more is written. Bring it back, and run the command again."
            )

    def write(self, path: Path, blob: bytes) -> None:
        """Replace a file of the directory atomically, and make the folders that lead to it."""
        with self._changing(path) as name:
            if not path.parent.is_dir():
                for parent in [*path.relative_to(self.directory).parents][-2::-1]:
                    with suppress(FileExistsError):
                        os.mkdir(self._name(self.directory / parent), dir_fd=self.folder)
            replace_file(name, blob, self.folder)

    def append(self, path: Path, blob: bytes, size: int) -> None:
        """Write `blob` after the first `size` bytes of a file of the directory."""
        with self._changing(path) as name, open_at(name, "ab", self.folder) as file:
            if os.fstat(file.fileno()).st_size > size:
                os.ftruncate(file.fileno(), size)
            file.write(blob)
            file.flush()
            os.fsync(file.fileno())

    def remove(self, path: Path) -> None:
        """Remove a file or an empty folder of the directory, or a link but not what it points to."""
        with self._changing(path) as name, suppress(FileNotFoundError):
            is_folder = path.is_dir() and not path.is_symlink()
            (os.rmdir if is_folder else os.unlink)(name, dir_fd=self.folder)

    def remove_tree(self, path: Path) -> None:
        """Remove a folder of the directory with all that is in it."""
        for inner in sorted(path.rglob("*"), reverse=True):
            self.remove(inner)
        self.remove(path)

    def remove_directory(self) -> None:
        """Remove the directory, which holds nothing but LOCK; whatever takes its place stays unless it is empty."""
        self.check()
        os.unlink(self._name(self.directory / "LOCK"), dir_fd=self.folder)
        os.rmdir(self.directory)

    @contextmanager
    def _changing(self, path: Path) -> Iterator[Path]:
        """The name of a file for one operation; the lock is checked before and after it."""
        self.check()
        try:
            yield self._name(path)
        except OSError as error:
            self.check()
            raise cannot_write(path, error) from error
        self.check()

    def _name(self, path: Path) -> Path:
        """A path as the descriptor of the directory needs it."""
        return path if self.folder is None else path.relative_to(self.directory)


@contextmanager
def locked(directory: Path) -> Iterator[DirectoryLock]:
    """Lock a directory for one writer; the lock of a dead process is free.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder, locked(Path(folder)) as lock:
    ...     (Path(folder) / "LOCK").exists(), lock.is_held()
    (True, True)
    """
    make_directory(directory)
    path = directory / "LOCK"
    with ExitStack() as stack:
        try:
            folder = None
            if sys.platform != "win32":
                folder = os.open(directory, os.O_RDONLY)
                stack.callback(os.close, folder)
            if path.exists() and not stat.S_ISREG(path.stat().st_mode):
                raise BadData(f"{path} is not a regular file; remove it once nothing is writing in {directory}.")
            file = stack.enter_context(open_at(path if folder is None else Path("LOCK"), "a+b", folder))
        except OSError as error:
            raise cannot_write(path, error) from error
        lock = DirectoryLock(directory, file.fileno(), folder)
        try:
            _lock(file.fileno())
            if not lock.is_held():
                raise OSError("the directory was deleted and created again")
        except OSError as error:
            raise Busy(f"{_owner(path)} is at work in {directory}; wait until it is done.") from error
        with suppress(OSError):  # shown to processes that find the lock taken
            os.ftruncate(file.fileno(), 0)
            os.write(file.fileno(), f"Process {os.getpid()} on {platform.node()}\n".encode())
        yield lock


def _owner(lock: Path) -> str:
    """The owner that LOCK names."""
    with suppress(OSError, ValueError):
        text = lock.read_text(encoding="utf-8").strip()
        if text.isprintable() and text:
            return text
    return "Another process"


def _same(descriptor: int, path: Path) -> bool:
    return os.path.samestat(os.fstat(descriptor), os.stat(path, follow_symlinks=path.name != "LOCK"))


def _lock(descriptor: int) -> None:
    """Take the lock that ends with the process, or raise OSError."""
    if sys.platform == "win32":
        import msvcrt

        os.lseek(descriptor, 0, os.SEEK_SET)  # Windows locks the byte at the current position
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
    else:
        import fcntl

        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
