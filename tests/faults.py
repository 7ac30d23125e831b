"""Fault points: a process that ends at the n-th operation on the disk, for every n."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

OPERATIONS = ("fsync", "replace", "unlink", "rmdir", "ftruncate", "mkdir")
KILLED = 9


def die_at(n: int) -> None:
    """End this process at its n-th operation on the disk; the end of what it was writing is lost."""
    operations = 0
    truncate = os.truncate
    for name in OPERATIONS:
        real = getattr(os, name)

        def counted(*args: Any, name: str = name, real: Callable[..., Any] = real, **kwargs: Any) -> Any:
            nonlocal operations
            operations += 1
            if operations == n:
                if name == "fsync" and os.readlink(f"/proc/self/fd/{args[0]}").endswith((".tmp", ".jsonl")):
                    truncate(f"/proc/self/fd/{args[0]}", os.fstat(args[0]).st_size - 7)
                os._exit(KILLED)
            return real(*args, **kwargs)

        setattr(os, name, counted)


@contextmanager
def interfering_at(n: int, do: Callable[[], Any]) -> Iterator[None]:
    """Do something just before the n-th operation on the disk."""
    operations = 0

    def interfere(real: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: Any, **kwargs: Any) -> Any:
            nonlocal operations
            operations += 1
            if operations == n:
                do()  # its own operations have higher numbers
            return real(*args, **kwargs)

        return counted

    with ExitStack() as stack:
        for name in OPERATIONS:
            stack.enter_context(patch.object(os, name, interfere(getattr(os, name))))
        yield


def die_everywhere(folder: Path, do: Callable[[Path], Any], every: int = 1) -> None:
    """Do something in copies of folder/before, one after the other, and die an operation later each time.

    The copies are called 1, 2, 3 ..., or only `every` n-th of these; in the last one it was done to the end.
    Without `before` there is nothing at the beginning.
    """
    status, n = KILLED, 1 - every
    while status == KILLED:
        n += every
        path = folder / str(n)
        if (folder / "before").exists():
            shutil.copytree(folder / "before", path)
        child = os.fork()
        if child == 0:
            status = 1
            try:
                die_at(n)
                do(path)
                status = 0
            finally:
                os._exit(status)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status == 0, f"ended with {status} at operation {n}"


def graves_in(folder: Path) -> list[Path]:
    """The copies, in the order in which they were left; the last one was not."""
    return sorted((path for path in folder.iterdir() if path.name != "before"), key=lambda path: int(path.name))
