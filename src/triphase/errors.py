"""Errors that tell a person what was wrong, where, and what to do.

TriphaseError
├── InvalidValue (ValueError)    an argument outside its range
├── BadData (ValueError)         images, labels or folders that cannot be used
│   └── PhotosNeeded             what is stored does not suffice: the photos themselves are needed
├── Mismatch (ValueError)        a saved run that belongs to something else
├── CorruptState (ValueError)    a damaged file that triphase wrote
├── CannotWrite (OSError)        the disk refused
├── Unreachable (ConnectionError)  a cluster or a storage that does not answer
├── Busy (RuntimeError)          another process is writing there
├── LockLost (RuntimeError)      a directory that was moved, deleted or unlocked while it was written
├── OutOfMemory (MemoryError)     a device that is too small
├── Interrupted (RuntimeError)   stopped on request; what was done is saved
├── ProcessLost (RuntimeError)   another process of the same run is gone or cannot be reached
└── ProcessFailed (RuntimeError) an error in a process of a run other than the first
"""

from collections.abc import Sequence

from triphase.printable import printable

FEW = 5  # things named in one sentence
# As torch's back ends and ONNX Runtime word it.
NO_ROOM = ("out of memory", "can't allocate memory", "Failed to allocate memory")


class TriphaseError(Exception):
    """Root of every error that a user can cause or fix; names in its message are escaped when it is shown."""

    def __str__(self) -> str:
        return printable(super().__str__())


class InvalidValue(TriphaseError, ValueError):
    """An argument outside its range."""


class BadData(TriphaseError, ValueError):
    """Images, labels or folders that cannot be used."""


class PhotosNeeded(BadData):
    """Some photos are not stored, so the files themselves are needed; `ids` lists them."""

    def __init__(self, sentence: str, ids: Sequence[int]) -> None:
        super().__init__(sentence)
        self.ids = tuple(ids)


class Mismatch(TriphaseError, ValueError):
    """A saved run that belongs to another stream, learner or seed."""


class CorruptState(TriphaseError, ValueError):
    """A saved file that is truncated or altered."""


class CannotWrite(TriphaseError, OSError):
    """The disk refused a write."""


class Unreachable(TriphaseError, ConnectionError):
    """A cluster or a storage does not answer."""


class Busy(TriphaseError, RuntimeError):
    """Another process is writing to the same directory."""


class LockLost(TriphaseError, RuntimeError):
    """A directory was moved, deleted or unlocked while this process was its writer."""


class OutOfMemory(TriphaseError, MemoryError):
    """The memory of the device does not suffice."""


class Interrupted(TriphaseError, RuntimeError):
    """Stopped on request; what was done is saved."""


class ProcessLost(TriphaseError, RuntimeError):
    """Another process of the same run is gone or cannot be reached."""


class ProcessFailed(TriphaseError, RuntimeError):
    """An error in a process of a run other than the first."""


class TriphaseWarning(UserWarning):
    """Something that is allowed and probably not wanted; names in it are escaped as in errors."""

    def __str__(self) -> str:
        return printable(super().__str__())


def few(names: Sequence[object]) -> str:
    """The first few names, and how many more there are.

    >>> few(["a", "b"]), few(list("abcdefgh"))
    ('a, b', 'a, b, c, d, e and 3 more')
    """
    more = f" and {len(names) - FEW:,} more" if len(names) > FEW else ""
    return ", ".join(map(printable, names[:FEW])) + more


def is_out_of_memory(error: Exception) -> bool:
    """Whether a device, or this computer, ran out of memory.

    >>> is_out_of_memory(RuntimeError("CUDA out of memory.")), is_out_of_memory(OSError("disk full"))
    (True, False)
    """
    return isinstance(error, MemoryError) or any(words in str(error) for words in NO_ROOM)
