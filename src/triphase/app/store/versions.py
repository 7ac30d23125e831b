"""The versions of a model: they never change, one is in use, and one writer works at a time.

A version is written bottom-up (parts, then the version, then CURRENT) and removed top-down, each file atomically.
So what CURRENT names is complete at any moment, and readers never wait.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from triphase.app.store import identities
from triphase.app.store.checksums import json_copy
from triphase.app.store.files import Directory
from triphase.app.store.history import Event, new_event, now
from triphase.app.store.schema import Current, Version
from triphase.app.store.state_checks import check_state, publishable
from triphase.directory_lock import locked
from triphase.errors import (
    BadData,
    CannotWrite,
    CorruptState,
    InvalidValue,
    LockLost,
    TriphaseError,
)
from triphase.printable import printable
from triphase.state import State

WHERE_IT_BEGAN = "where it began, with the same `triphase teach` or on the page of `triphase serve`"


class Store:
    """The versions of one model in a directory."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self.directory = Directory(self.path)
        self._writer: int | None = None  # the thread that has taken the lock through this object

    @property
    def work(self) -> Path:
        """Where a lesson keeps what it needs to be continued."""
        return self.path / "work"

    def current(self) -> Version | None:
        """The version in use, or None where no model was published yet."""
        while (current := self.directory.read_current()) is not None and current.version:
            try:
                return self.directory.read_version(current.version)
            except CorruptState:
                if self.directory.read_current() == current:  # else a writer has just moved on and removed it
                    raise
        return None

    def version_numbers(self) -> list[int]:
        """The versions that are kept, ascending; those that were undone are among them until pruned."""
        return self.directory.version_numbers()

    def version(self, number: int | None = None) -> Version:
        """A version (by default the one in use) without its state, which is not read; or an error."""
        if number is None:
            version = self.current()
            if version is None:
                where = printable(self.path)
                if self.path.is_file():
                    raise BadData(f"{where} is a file, and a model is a folder: give the folder.")
                if self.work.is_dir():
                    raise BadData(
                        f"{where} holds no model yet: its first lesson is running or was interrupted, and goes on "
                        f"{WHERE_IT_BEGAN}."
                    )
                raise BadData(f"{where} holds no model; teach one with: triphase teach {where} PHOTOS")
            return version
        if number not in (kept := self.version_numbers()):
            listed = ", ".join(map(str, kept)) or "none"
            raise InvalidValue(f"{self.path} has no version {number}; those kept: {listed}.")
        return self.directory.read_version(number)

    def load(
        self, number: int | None = None, *, parts: tuple[str, ...] = ("",), arrays: bool = False
    ) -> tuple[State, Version]:
        """The state of a version (by default the one in use), bit for bit as it was published, or an error.

        With `parts`, the entries whose names begin with one of them are read and no others; with `arrays` there are
        numpy arrays in the place of tensors, and torch is not imported.
        """
        while True:
            version = self.version(number)
            wanted = {name: part for name, part in version.parts.items() if name.startswith(parts)}
            remedy = self._or_undo(version)
            try:
                state = {
                    name: self.directory.read_part(part.sha256, arrays=arrays, remedy=remedy)
                    for name, part in wanted.items()
                }
                self._check(state, version, parts)
                return state, version
            except CorruptState:
                if self.version(number) == version:  # else a writer has just removed or rewritten it
                    raise

    def history(self) -> list[Event]:
        """What happened to the model, oldest first; each event has a `version` (in use after it) and a `time`."""
        while True:
            current = self.directory.read_current()
            try:
                return self.directory.history.read(current.event if current else None)
            except CorruptState:
                if self.directory.read_current() == current:  # else a writer has just begun the next line
                    raise

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the writer lock, and remove what a crashed writer has left; readers never wait.

        Everything that writes takes the lock by itself; inside this block it is held from one call to the next.
        """
        if self._writer == threading.get_ident():
            yield
            return
        self.directory.check_location()
        with locked(self.path) as lock:
            self.directory.held, self._writer = lock, threading.get_ident()
            try:
                self.directory.collect_garbage()
                self.directory.warn_of_damaged_history()
                yield
            except (TriphaseError, OSError):
                if self.directory.held is not None:
                    lock.check()  # what was not found, or not as expected, was taken away
                raise
            finally:
                self.directory.held, self._writer = None, None

    def publish(
        self,
        state: Mapping[str, Any],
        info: Mapping[str, Any],
        event: Mapping[str, Any],
        *,
        replace_current: bool = False,
        renamed: tuple[str, str] | None = None,
    ) -> Version:
        """Make a state the version in use, as the child of the one before; `event` goes into the history.

        `replace_current` makes it the child of the parent of the one before, which `undo` then passes over.
        `renamed` is the old and the new name of a class that is the same as before.
        """
        info, event = json_copy(info), json_copy(event)
        with self.lock():
            before, current = self.current(), self.directory.read_current()
            number = max([current.highest if current else 0, *self.version_numbers()]) + 1
            known = before.identities if before else {}
            document = {
                "number": number,
                "parent": None if before is None else before.parent if replace_current else before.number,
                "created": now(),
                "info": info,
                "identities": identities.inherited(info.get("classes", []), known, number, renamed),
                "parts": {},
            }
            new_event(event, number)
            version = publishable(document, state)
            if current is None:  # from here on, versions without CURRENT mean damage
                self.directory.write_current(Current(version=0, highest=0, event=None))
            version = version.model_copy(update={"parts": self.directory.write_parts(state)})
            self.directory.write_version(version)
            self.set_current(number, event)
        return version

    def undo_hint(self) -> str:
        """How to get rid of the version in use, for an error message."""
        if self.version().parent is None:
            return f"start again: delete {self.path}"
        return f"take it back with: triphase undo {self.path}"

    def undo(self) -> Version:
        """Go back to the parent of the version in use."""
        self.version()
        with self.lock():
            version = self.version()
            if version.parent is None:
                raise InvalidValue(f"Version {version.number} of {self.path} is the first: nothing to undo.")
            if version.parent not in self.version_numbers():
                raise InvalidValue(
                    f"Version {version.parent} of {self.path}, which came before version {version.number}, "
                    f"is no longer kept: cannot undo. Keep more versions with --keep."
                )
            parent = self.load(version.parent)[1]  # all of it: a damaged version must not come into use
            self.set_current(parent.number, {"event": "undone", "undid": version.number})
        return parent

    def prune(self, keep: int) -> list[int]:
        """Remove all but the version in use and its keep - 1 nearest ancestors; the numbers of those removed."""
        if keep < 1:
            raise InvalidValue(f"keep must be at least 1, got {keep}: the version in use is one of those kept.")
        self.version()
        with self.lock():
            version = self.version()
            kept = [version.number]
            numbers = self.version_numbers()
            while len(kept) < keep and version.parent is not None and version.parent in numbers:
                version = self.directory.read_version(version.parent)
                kept.append(version.number)
            gone = [number for number in numbers if number not in kept]
            for number in gone:
                self.directory.remove_version(number)
            self.directory.collect_garbage()
        return gone

    def discard_work(self) -> None:
        """Remove what a lesson kept in `work`."""
        with self.lock():
            self.directory.lock.remove_tree(self.work)

    def remove_if_empty(self) -> None:
        """Remove the directory, with the lock held, if a command that was refused has left nothing but the lock."""
        with suppress(LockLost, OSError):  # where open files cannot be deleted, LOCK stays
            if [file.name for file in self.path.iterdir()] == ["LOCK"]:
                self.directory.lock.remove_directory()
                self.directory.held = None

    # Writing, with the lock held

    def set_current(self, number: int, event: Mapping[str, Any]) -> None:
        """Let CURRENT name a version, together with the event that explains it."""
        before = self.directory.read_current()
        assert before is not None, "CURRENT is written before the first version"
        self.directory.history.append(before.event, self.directory.lock)
        newest = new_event(event, number)
        highest = max(number, before.highest)
        self.directory.write_current(Current(version=number, highest=highest, event=newest))
        with suppress(CannotWrite):  # the version is in use; CURRENT keeps its event until the next writer
            self.directory.history.append(newest, self.directory.lock)

    def _check(self, state: State, version: Version, wanted: tuple[str, ...]) -> None:
        """Refuse parts that are missing or not valid; checksums say nothing about that."""
        try:
            check_state(state, version.info, wanted)
        except ValueError as error:
            raise CorruptState(
                f"Version {version.number} of {self.path} is damaged ({error}); restore it from a copy"
                f"{self._or_undo(version)}."
            ) from error

    def _or_undo(self, version: Version) -> str:
        """What else helps if a version is damaged: the one before, if it is kept."""
        kept = version.parent in self.version_numbers()
        return f", or go back to the version before with: triphase undo {self.path}" if kept else ""


def open_store(path: Path) -> Store:
    """The store of an existing model; nothing is created for a mistyped path."""
    store = Store(path)
    store.version()
    return store
