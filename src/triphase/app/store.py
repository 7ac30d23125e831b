"""A model directory: versions that never change, one pointer to the one in use, one writer at a time.

CURRENT                       the version in use, the highest number ever given, the event that led here
versions/000007.json          a version: its parent, what is known about it, the digests of its parts
parts/<digest>.safetensors    one top-level entry of a state, shared by all versions in which it is the same
history.jsonl                 what happened, one event per line
work/                         what an interrupted lesson leaves behind
LOCK                          held by whoever writes

A version is written from below (parts, then the version, then CURRENT) and removed from above, each file in one
instant, so what CURRENT names is complete at any moment and readers never wait. Everything carries a checksum.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from triphase import state as files
from triphase.app.sealed import FORMAT, digest, plain, sealed, unsealed
from triphase.errors import BadData, Busy, CannotWrite, CorruptState, InvalidValue, Mismatch, TriphaseError
from triphase.state import State

OURS = ("CURRENT", "LOCK", "history.jsonl", "parts", "versions", "work")
Info = dict[str, Any]
Event = dict[str, Any]
Transform = Callable[[State, Info], tuple[Mapping[str, Any], Mapping[str, Any]] | None]


@dataclass(frozen=True)
class Part:
    """One top-level entry of a state: the digest of its content, and the size of its file."""

    sha256: str
    bytes: int


@dataclass(frozen=True)
class Version:
    """A published model: where it comes from, what the publisher said about it, and what it consists of."""

    number: int
    parent: int | None
    created: str
    info: Info
    parts: dict[str, Part]


@dataclass(frozen=True)
class _Pointer:
    version: int  # 0 before the first one is published
    highest: int
    event: Event | None


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
        while (pointer := self._pointer()) is not None and pointer.version:
            try:
                return self._version(pointer.version)
            except CorruptState:
                if self._pointer() == pointer:  # else a writer has just moved on and removed it
                    raise
        return None

    def numbers(self) -> list[int]:
        """The versions that are kept, ascending; those that were undone are among them until pruned."""
        found = (
            re.fullmatch(r"(\d{6,})\.json", file.name, re.ASCII) for file in (self.path / "versions").glob("*")
        )
        return sorted(int(match[1]) for match in found if match)

    def load(self, number: int | None = None) -> tuple[State, Version]:
        """The state of a version (by default the one in use), bit for bit as it was published, or an error."""
        while True:
            version = self._find(number)
            try:
                return {name: self._read_part(part.sha256) for name, part in version.parts.items()}, version
            except CorruptState:
                if self._find(number) == version:  # else a writer has just removed or rewritten it
                    raise

    def history(self) -> list[Event]:
        """What happened to the model, oldest first; each event has a `version` (in use after it) and a `time`."""
        pointer, events = self._pointer(), self._events()
        return events + self._unrecorded(pointer, events)

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Be the only writer, and clear away what a writer that died has left; readers are not kept waiting.

        Everything that writes takes the lock by itself; inside this block it is held from one call to the next.
        """
        if self._owner == threading.get_ident():
            yield
            return
        self.check_place()
        with ExitStack() as stack:
            try:
                stack.enter_context(files.locked(self.path))
            except Busy as error:
                raise Busy(f"{self._holder()} is at work in {self.path}; wait until it is done.") from error
            with suppress(OSError):  # only a courtesy to whoever finds the lock taken
                (self.path / "LOCK").write_text(f"Process {os.getpid()} on {platform.node()}\n", encoding="utf-8")
            self._owner = threading.get_ident()
            stack.callback(setattr, self, "_owner", None)
            self._sweep()
            yield

    def publish(
        self, state: Mapping[str, Any], info: Mapping[str, Any], event: Mapping[str, Any], *, instead: bool = False
    ) -> Version:
        """Make a state the version in use, as the child of the one before; `event` goes into the history.

        `instead` makes it the child of the parent of the one before, which `undo` then passes over.
        """
        info, event = plain(info), plain(event)
        with self.lock():
            before = self._pointer()
            if before is None:
                before = _Pointer(0, 0, None)
                self._write_pointer(before)  # from here on, versions without CURRENT mean damage
            number = max([before.highest, *self.numbers()]) + 1
            parent = self._find(None).parent if instead else before.version or None
            version = Version(number, parent, _now(), info, self._write_parts(state))
            self._write_version(version)
            self._move(number, event)
        return version

    def way_back(self) -> str:
        """What to tell somebody who wants to be rid of the version in use."""
        if self._find(None).parent is None:
            return f"start again: delete {self.path}"
        return f"take it back with: triphase undo {self.path}"

    def undo(self) -> Version:
        """Go back to the parent of the version in use."""
        self._find(None)
        with self.lock():
            version = self._find(None)
            if version.parent is None:
                raise InvalidValue(f"Version {version.number} of {self.path} is the first: nothing to undo.")
            if version.parent not in self.numbers():
                raise InvalidValue(
                    f"Version {version.parent} of {self.path}, which came before version {version.number}, "
                    f"is no longer kept: cannot undo. Keep more versions with --keep."
                )
            parent = self.load(version.parent)[1]  # all of it: a damaged version must not come into use
            self._move(parent.number, {"event": "undone", "undid": version.number})
        return parent

    def prune(self, keep: int) -> list[int]:
        """Remove all but the version in use and its keep - 1 nearest ancestors; the numbers of those removed."""
        if keep < 1:
            raise InvalidValue(f"keep must be at least 1, got {keep}: the version in use is one of those kept.")
        self._find(None)
        with self.lock():
            version = self._find(None)
            kept = [version.number]
            numbers = self.numbers()
            while len(kept) < keep and version.parent is not None and version.parent in numbers:
                version = self._version(version.parent)
                kept.append(version.number)
            gone = [number for number in numbers if number not in kept]
            self._drop(gone)
            self._sweep()
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
        event = plain(event)
        self._find(None)
        with self.lock():
            state, in_use = self.load()
            result = transform(state, plain(in_use.info))
            if result is None:
                raise InvalidValue(f"Nothing would be left of version {in_use.number}, which is in use.")
            self._catch_up()
            for number in self.numbers():
                if number != in_use.number:
                    state, version = self.load(number)
                    self._rewrite_version(version, transform(state, plain(version.info)))
            self._rewrite_history(events)
            self.discard_work()
            version = self._rewrite_version(in_use, result)
            self._move(in_use.number, event)
            self._sweep()
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

    # Places

    def _version_file(self, number: int) -> Path:
        return self.path / "versions" / f"{number:06d}.json"

    def _part_file(self, sha256: str) -> Path:
        return self.path / "parts" / f"{sha256}.safetensors"

    def check_place(self) -> None:
        """Refuse to write where that could touch what is not ours."""
        for name in OURS:
            if (self.path / name).is_symlink():
                raise BadData(
                    f"{self.path / name} is a symbolic link, and a model lies in one place: copy it there."
                )
        if self.path.exists() and not self.path.is_dir():
            raise BadData(f"{self.path} is a file, and a model is a folder: give another name.")
        try:
            found = [file.name for file in self.path.iterdir()] if self.path.is_dir() else []
        except OSError as error:
            raise files.cannot_write(self.path, error) from error
        foreign = sorted(name for name in found if name not in OURS and not name.startswith("."))
        if foreign and "CURRENT" not in found:
            raise BadData(f"{self.path} is not a model, it holds {foreign[0]!r}: give a model or a new folder.")

    def _holder(self) -> str:
        with suppress(OSError, ValueError):
            text = (self.path / "LOCK").read_text(encoding="utf-8").strip()
            if text.isprintable() and text:
                return text
        return "Another process"

    # Reading

    def _find(self, number: int | None) -> Version:
        """A version by its number, by default the one in use; it is an error that there is none."""
        if number is None:
            version = self.current()
            if version is None:
                raise BadData(f"There is no model in {self.path}; teach it something first.")
            return version
        if number not in (kept := self.numbers()):
            listed = ", ".join(map(str, kept)) or "none"
            raise InvalidValue(f"{self.path} has no version {number}; those kept: {listed}.")
        return self._version(number)

    def _pointer(self) -> _Pointer | None:
        file = self.path / "CURRENT"
        document = self._read(file)
        if document is None:
            if self.numbers():
                raise self._damaged(file)
            return None
        try:
            pointer = _Pointer(int(document["version"]), int(document["highest"]), document["event"])
            if pointer.event is not None:
                _mark(pointer.event)
            return pointer
        except (KeyError, TypeError, ValueError) as error:
            raise self._damaged(file) from error

    def _version(self, number: int) -> Version:
        file = self._version_file(number)
        document = self._read(file)
        try:
            if document is None:
                raise ValueError("missing")
            parts = {name: Part(part["sha256"], part["bytes"]) for name, part in document.pop("parts").items()}
            version = Version(parts=parts, **document)
            if version.number != number or not (version.parent is None or 0 < version.parent < number):
                raise ValueError("another version")
            if not all(re.fullmatch("[0-9a-f]{64}", part.sha256) for part in parts.values()):
                raise ValueError("a digest is none")
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise self._damaged(file) from error
        return version

    def _read_part(self, sha256: str) -> Any:
        file = self._part_file(sha256)
        try:
            value = files.load(file)["part"]
            intact = digest(value) == sha256
        except (Mismatch, MemoryError):
            raise
        except Exception as error:  # whatever a damaged file provokes
            raise self._damaged(file, "or go back to the version before with `triphase undo`") from error
        if not intact:
            raise self._damaged(file, "or go back to the version before with `triphase undo`")
        return value

    def _read(self, file: Path) -> dict[str, Any] | None:
        """A sealed document without its seal, or None where there is no such file."""
        try:
            document = unsealed(file.read_bytes(), file)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise CorruptState(f"{file} cannot be read ({error.strerror}); check its permissions.") from error
        except Mismatch:
            raise
        except (KeyError, RecursionError, TypeError, ValueError) as error:
            raise self._damaged(file) from error
        document.pop("format", None)
        return document

    def _events(self) -> list[Event]:
        """The events in the history; a line that is torn or damaged is left out."""
        file = self.path / "history.jsonl"
        events: list[Event] = []
        for line in _read_lines(file):
            with suppress(KeyError, RecursionError, TypeError, ValueError):
                event = unsealed(line, file)
                _mark(event)
                events.append(event)
        return events

    @staticmethod
    def _unrecorded(pointer: _Pointer | None, events: list[Event]) -> list[Event]:
        """The event of CURRENT, if its writer died before it was in the history."""
        if pointer is None or pointer.event is None or _mark(pointer.event) in map(_mark, events):
            return []
        return [pointer.event]

    def _damaged(self, file: Path, remedy: str = "") -> CorruptState:
        what = "damaged" if file.exists() else "missing"
        return CorruptState(f"{file} is {what}; restore it from a copy of {self.path}{remedy and ', '}{remedy}.")

    # Writing, with the lock held

    def _move(self, number: int, event: Event) -> None:
        """Let CURRENT name a version, together with the event that explains it."""
        self._catch_up()
        before = self._pointer()
        highest = max(number, before.highest if before else 0)
        self._write_pointer(_Pointer(number, highest, {**event, "version": number, "time": _now()}))
        with suppress(CannotWrite):  # the deed is done, and CURRENT keeps its event until the history can take it
            self._catch_up()

    def _catch_up(self) -> None:
        """Bring the event of CURRENT into the history, if it is not there yet."""
        file = self.path / "history.jsonl"
        torn = any(_read_lines(file)[-1:])  # its writer died in the middle of a line
        for event in self._unrecorded(self._pointer(), self._events()):
            try:
                with open(file, "ab") as stream:
                    stream.write(b"\n" * torn + sealed(event) + b"\n")
                    stream.flush()
                    os.fsync(stream.fileno())
            except OSError as error:
                raise files.cannot_write(file, error) from error

    def _write_pointer(self, pointer: _Pointer) -> None:
        files.write(self.path / "CURRENT", sealed({"format": FORMAT, **asdict(pointer)}) + b"\n")

    def _write_version(self, version: Version) -> None:
        files.write(
            self._version_file(version.number), sealed({"format": FORMAT, **asdict(version)}, indent=1) + b"\n"
        )

    def _write_parts(self, state: Mapping[str, Any]) -> dict[str, Part]:
        """Write what is not there yet, and believe only what can be read back."""
        parts = {}
        try:
            for name, value in state.items():
                sha256 = digest(value)
                file = self._part_file(sha256)
                try:
                    self._read_part(sha256)
                except TriphaseError:
                    files.save(file, {"part": value})
                    self._read_part(sha256)
                parts[str(name)] = Part(sha256, file.stat().st_size)
        except Exception:
            with suppress(TriphaseError):
                self._sweep()
            raise
        return parts

    def _drop(self, numbers: Sequence[int]) -> None:
        """Remove versions, ascending; their numbers are never used again."""
        pointer = self._pointer()
        if (
            numbers and pointer is not None and numbers[-1] > pointer.highest
        ):  # a publisher died before the last step
            self._write_pointer(replace(pointer, highest=numbers[-1]))
        for number in numbers:
            _remove(self._version_file(number))

    def _rewrite_version(
        self, version: Version, result: tuple[Mapping[str, Any], Mapping[str, Any]] | None
    ) -> Version:
        if result is None:
            self._drop([version.number])
            return version
        state, info = result
        changed = replace(version, info=plain(info), parts=self._write_parts(state))
        if changed != version:
            self._write_version(changed)
        return changed

    def _rewrite_history(self, events: Callable[[Event], Event]) -> None:
        """Change the events of the past, and the last one also in CURRENT."""

        def changed(event: Event) -> Event:
            return {**plain(events(event)), "version": event["version"], "time": event["time"]}

        lines = [sealed(changed(event)) + b"\n" for event in self._events()]
        files.write(self.path / "history.jsonl", b"".join(lines))
        pointer = self._pointer()
        if pointer is not None and pointer.event is not None:
            self._write_pointer(replace(pointer, event=changed(pointer.event)))

    def _sweep(self) -> None:
        """Remove temporary files, and the parts that no version names."""
        for folder in (self.path, self.path / "versions", self.path / "parts"):
            for file in folder.glob(".*.tmp"):
                _remove(file)
        try:
            self.current()
            versions = [self._version(number) for number in self.numbers()]
        except (CorruptState, Mismatch):
            return  # a version that is lost or cannot be read, and may be restored, may need any part
        needed = {self._part_file(part.sha256) for version in versions for part in version.parts.values()}
        for file in (self.path / "parts").glob("*.safetensors"):
            if file not in needed:
                _remove(file)


def _read_lines(file: Path) -> list[bytes]:
    try:
        return file.read_bytes().split(b"\n")
    except FileNotFoundError:
        return []
    except OSError as error:
        raise CorruptState(f"{file} cannot be read ({error.strerror}); check its permissions.") from error


def _mark(event: Event) -> tuple[Any, Any]:
    """What tells two events apart, whatever a rewrite made of them."""
    return event["version"], event["time"]


def _remove(file: Path) -> None:
    """Remove a file, or a link but not what it points to."""
    try:
        file.unlink(missing_ok=True)
    except OSError as error:
        raise files.cannot_write(file, error) from error


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="microseconds")
