"""The versions of a model: they never change, one is in use, and one writer works at a time.

A version is written from below (parts, then the version, then CURRENT) and removed from above, each file in one
instant, so what CURRENT names is complete at any moment and readers never wait. Everything carries a checksum.
"""

from __future__ import annotations

import os
import platform
import shutil
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from triphase import state as files
from triphase.app.store.checksums import json_copy
from triphase.app.store.files import Current, Directory, Event, Info, Part, Version
from triphase.directory_lock import locked
from triphase.errors import BadData, Busy, CannotWrite, CorruptState, InvalidValue, TriphaseError
from triphase.printable import printable
from triphase.state import State

Transform = Callable[[State, Info], tuple[Mapping[str, Any], Mapping[str, Any]] | None]


class Store:
    """The versions of one model in a directory.

    >>> import tempfile, torch
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = Store(Path(folder) / "my-model")
    ...     _ = store.publish({"head": torch.zeros(1)}, {"classes": ["cat"]}, {"event": "taught"})
    ...     _ = store.publish({"head": torch.ones(1)}, {"classes": ["cat", "dog"]}, {"event": "taught"})
    ...     _ = store.undo()
    ...     state, version = store.load()
    ...     [event["event"] for event in store.history()]
    ['taught', 'taught', 'undone']
    >>> state["head"], version.number, version.info
    (tensor([0.]), 1, {'classes': ['cat']})
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self.directory = Directory(self.path)
        self._owner: int | None = None  # the thread that holds the lock through this object

    @property
    def exists(self) -> bool:
        """Whether a model was ever published here."""
        return self.current() is not None

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
                raise BadData(f"{where} holds no model; teach one with: triphase teach {where} PHOTOS")
            return version
        if number not in (kept := self.version_numbers()):
            listed = ", ".join(map(str, kept)) or "none"
            raise InvalidValue(f"{self.path} has no version {number}; those kept: {listed}.")
        return self.directory.read_version(number)

    def load(self, number: int | None = None, *, parts: tuple[str, ...] = ("",)) -> tuple[State, Version]:
        """The state of a version (by default the one in use), bit for bit as it was published, or an error.

        With `parts`, only the entries whose names begin with one of them.
        """
        while True:
            version = self.version(number)
            try:
                read = self.directory.read_part
                wanted = {name: part for name, part in version.parts.items() if name.startswith(parts)}
                return {name: read(part.sha256) for name, part in wanted.items()}, version
            except CorruptState:
                if self.version(number) == version:  # else a writer has just removed or rewritten it
                    raise

    def history(self) -> list[Event]:
        """What happened to the model, oldest first; each event has a `version` (in use after it) and a `time`."""
        pending = self.directory.pending_event()
        events = [event for event in self.directory.read_history() if event != pending]
        return events if pending is None else [*events, pending]

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Be the only writer, and clear away what a writer that died has left; readers are not kept waiting.

        Everything that writes takes the lock by itself; inside this block it is held from one call to the next.
        """
        if self._owner == threading.get_ident():
            yield
            return
        self.directory.check_location()
        with ExitStack() as stack:
            try:
                stack.enter_context(locked(self.path))
            except Busy as error:
                raise Busy(
                    f"{self.directory.lock_owner()} is at work in {self.path}; wait until it is done."
                ) from error
            with suppress(OSError):  # only a courtesy to whoever finds the lock taken
                (self.path / "LOCK").write_text(f"Process {os.getpid()} on {platform.node()}\n", encoding="utf-8")
            self._owner = threading.get_ident()
            stack.callback(setattr, self, "_owner", None)
            self.directory.collect_garbage()
            yield

    def publish(
        self,
        state: Mapping[str, Any],
        info: Mapping[str, Any],
        event: Mapping[str, Any],
        *,
        replace_current: bool = False,
    ) -> Version:
        """Make a state the version in use, as the child of the one before; `event` goes into the history.

        `replace_current` makes it the child of the parent of the one before, which `undo` then passes over.
        """
        info, event = json_copy(info), json_copy(event)
        with self.lock():
            before = self.directory.read_current()
            if before is None:
                before = Current(0, 0, None)
                self.directory.write_current(before)  # from here on, versions without CURRENT mean damage
            number = max([before.highest, *self.version_numbers()]) + 1
            parent = self.version().parent if replace_current else before.version or None
            version = Version(number, parent, _now(), info, self._write_parts(state))
            self.directory.write_version(version)
            self._set_current(number, event)
        return version

    def undo_hint(self) -> str:
        """What to tell somebody who wants to be rid of the version in use."""
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
            self._set_current(parent.number, {"event": "undone", "undid": version.number})
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
            self._remove_versions(gone)
            self.directory.collect_garbage()
        return gone

    def rewrite(
        self,
        transform: Transform,
        events: Callable[[Event], Event],
        event: Mapping[str, Any],
    ) -> Version:
        """Change every version that is kept, and every event of the past; of what was there before nothing stays.

        A version of which `transform` leaves nothing (None) is removed; not so the one in use. Both functions must
        give back unchanged what they have changed already: after a crash, the same call again finishes the work.
        The version in use is changed last: once it is, only removing remains, which any writer does. An interrupted
        lesson in `work` goes, too.
        """
        event = json_copy(event)
        self.version()
        with self.lock():
            state, in_use = self.load()
            result = transform(state, json_copy(in_use.info))
            if result is None:
                raise InvalidValue(f"Nothing would be left of version {in_use.number}, which is in use.")
            others = [number for number in self.version_numbers() if number != in_use.number]
            for number in others:
                self.load(number)  # all of them, before any is changed: a damaged one must be restored first
            self.directory.append_pending_event()
            for number in others:
                state, version = self.load(number)
                self._rewrite_version(version, transform(state, json_copy(version.info)))
            self._rewrite_history(events)
            self.discard_work()
            version = self._rewrite_version(in_use, result)
            self._set_current(in_use.number, event)
            self.directory.collect_garbage()
        return version

    def discard_work(self) -> None:
        """Remove what a lesson kept in `work`."""
        with self.lock():
            try:
                shutil.rmtree(self.work)
            except FileNotFoundError:
                pass
            except OSError as error:
                raise files.cannot_write(self.work, error) from error

    # Writing, with the lock held

    def _set_current(self, number: int, event: Event) -> None:
        """Let CURRENT name a version, together with the event that explains it."""
        self.directory.append_pending_event()
        before = self.directory.read_current()
        highest = max(number, before.highest if before else 0)
        self.directory.write_current(Current(number, highest, {**event, "version": number, "time": _now()}))
        with suppress(CannotWrite):  # the deed is done, and CURRENT keeps its event until the history can take it
            self.directory.append_pending_event()

    def _write_parts(self, state: Mapping[str, Any]) -> dict[str, Part]:
        """All of a state, or nothing."""
        try:
            return {str(name): self.directory.write_part(value) for name, value in state.items()}
        except Exception:
            with suppress(TriphaseError):
                self.directory.collect_garbage()
            raise

    def _remove_versions(self, numbers: Sequence[int]) -> None:
        """Remove versions, ascending; their numbers are never used again."""
        current = self.directory.read_current()
        if numbers and current is not None and numbers[-1] > current.highest:  # a publisher died too early
            self.directory.write_current(replace(current, highest=numbers[-1]))
        for number in numbers:
            self.directory.remove_version(number)

    def _rewrite_version(
        self, version: Version, result: tuple[Mapping[str, Any], Mapping[str, Any]] | None
    ) -> Version:
        if result is None:
            self._remove_versions([version.number])
            return version
        state, info = result
        changed = replace(version, info=json_copy(info), parts=self._write_parts(state))
        if changed != version:
            self.directory.write_version(changed)
        return changed

    def _rewrite_history(self, events: Callable[[Event], Event]) -> None:
        """Change the events of the past, and the last one also in CURRENT."""

        def changed(event: Event) -> Event:
            return {**json_copy(events(event)), "version": event["version"], "time": event["time"]}

        self.directory.write_history(map(changed, self.directory.read_history()))
        current = self.directory.read_current()
        if current is not None and current.event is not None:
            self.directory.write_current(replace(current, event=changed(current.event)))


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="microseconds")
