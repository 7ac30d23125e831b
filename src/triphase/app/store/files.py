"""The files of a model directory, each written in one instant and read with its checksum.

CURRENT                       the version in use, the highest number ever given, the event that led here
versions/000007.json          a version: its parent, what is known about it, the digests of its parts
parts/<digest>.safetensors    one top-level entry of a state, shared by all versions in which it is the same
history.jsonl                 what happened, one event per line
work/                         what an interrupted lesson leaves behind
LOCK                          held by whoever writes
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from triphase import state as files
from triphase.app.store.checksums import FORMAT, sha256, verify_checksum, with_checksum
from triphase.errors import BadData, CorruptState, Mismatch, TriphaseError

MODEL_FILES = ("CURRENT", "LOCK", "history.jsonl", "parts", "versions", "work")
Info = dict[str, Any]
Event = dict[str, Any]


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
class Current:
    """What CURRENT says."""

    version: int  # 0 before the first one is published
    highest: int
    event: Event | None


class Directory:
    """Reads and writes the files; what they mean to each other is the store's business."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def check_location(self) -> None:
        """Refuse to write where that could touch what is not ours."""
        for name in MODEL_FILES:
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
        foreign = sorted(name for name in found if name not in MODEL_FILES and not name.startswith("."))
        if foreign and "CURRENT" not in found:
            raise BadData(f"{self.path} is not a model, it holds {foreign[0]!r}: give a model or a new folder.")

    def lock_owner(self) -> str:
        """Who has the lock, as far as is known."""
        with suppress(OSError, ValueError):
            text = (self.path / "LOCK").read_text(encoding="utf-8").strip()
            if text.isprintable() and text:
                return text
        return "Another process"

    # Reading

    def version_numbers(self) -> list[int]:
        """The versions that are kept, ascending; those that were undone are among them until pruned."""
        found = (
            re.fullmatch(r"(\d{6,})\.json", file.name, re.ASCII) for file in (self.path / "versions").glob("*")
        )
        return sorted(int(match[1]) for match in found if match)

    def read_current(self) -> Current | None:
        """What CURRENT says, or None where nothing was ever published."""
        file = self.path / "CURRENT"
        document = self._read(file)
        if document is None:
            if self.version_numbers():
                raise self._damaged(file)
            return None
        try:
            current = Current(int(document["version"]), int(document["highest"]), document["event"])
            if current.event is not None:
                event_key(current.event)
            return current
        except (KeyError, TypeError, ValueError) as error:
            raise self._damaged(file) from error

    def read_version(self, number: int) -> Version:
        """A version that is kept."""
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

    def read_part(self, digest: str) -> Any:
        """One entry of a state."""
        file = self._part_file(digest)
        try:
            value = files.load(file)["part"]
            intact = sha256(value) == digest
        except (Mismatch, MemoryError):
            raise
        except Exception as error:  # whatever a damaged file provokes
            raise self._damaged(file, "or go back to the version before with `triphase undo`") from error
        if not intact:
            raise self._damaged(file, "or go back to the version before with `triphase undo`")
        return value

    def read_history(self) -> list[Event]:
        """The events in the history; a line that is torn or damaged is left out."""
        file = self.path / "history.jsonl"
        events: list[Event] = []
        for line in _read_lines(file):
            with suppress(KeyError, RecursionError, TypeError, ValueError):
                event = verify_checksum(line, file)
                event_key(event)
                events.append(event)
        return events

    def pending_event(self) -> Event | None:
        """The event of CURRENT, if its writer died before it was in the history."""
        current = self.read_current()  # before the history is read: it may be brought there meanwhile
        if current is None or current.event is None:
            return None
        recorded = event_key(current.event) in map(event_key, self.read_history())
        return None if recorded else current.event

    def _read(self, file: Path) -> dict[str, Any] | None:
        """A document whose checksum was verified, without the checksum, or None where there is no such file."""
        try:
            document = verify_checksum(file.read_bytes(), file)
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

    def _damaged(self, file: Path, remedy: str = "") -> CorruptState:
        what = "damaged" if file.exists() else "missing"
        return CorruptState(f"{file} is {what}; restore it from a copy of {self.path}{remedy and ', '}{remedy}.")

    def _version_file(self, number: int) -> Path:
        return self.path / "versions" / f"{number:06d}.json"

    def _part_file(self, digest: str) -> Path:
        return self.path / "parts" / f"{digest}.safetensors"

    # Writing

    def write_current(self, current: Current) -> None:
        """Replace CURRENT in one instant."""
        files.write(self.path / "CURRENT", with_checksum({"format": FORMAT, **asdict(current)}) + b"\n")

    def write_version(self, version: Version) -> None:
        """Write the file of a version whose parts are written already."""
        document = {"format": FORMAT, **asdict(version)}
        files.write(self._version_file(version.number), with_checksum(document, indent=1) + b"\n")

    def write_part(self, value: Any) -> Part:
        """Write what is not there yet, and believe only what can be read back."""
        digest = sha256(value)
        file = self._part_file(digest)
        try:
            self.read_part(digest)
        except TriphaseError:
            files.save(file, {"part": value})
            self.read_part(digest)
        return Part(digest, file.stat().st_size)

    def append_pending_event(self) -> None:
        """Append the event of CURRENT to the history, if it is not there yet."""
        file = self.path / "history.jsonl"
        torn = any(_read_lines(file)[-1:])  # its writer died in the middle of a line
        event = self.pending_event()
        if event is None:
            return
        try:
            with open(file, "ab") as stream:
                stream.write(b"\n" * torn + with_checksum(event) + b"\n")
                stream.flush()
                os.fsync(stream.fileno())
        except OSError as error:
            raise files.cannot_write(file, error) from error

    def write_history(self, events: Iterable[Event]) -> None:
        """Replace the whole of it."""
        files.write(self.path / "history.jsonl", b"".join(with_checksum(event) + b"\n" for event in events))

    def remove_version(self, number: int) -> None:
        """Remove the file of a version; its parts stay until garbage is collected."""
        _remove(self._version_file(number))

    def collect_garbage(self) -> None:
        """Remove temporary files, and the parts that no version names."""
        for folder in (self.path, self.path / "versions", self.path / "parts"):
            for file in folder.glob(".*.tmp"):
                _remove(file)
        try:
            current, numbers = self.read_current(), self.version_numbers()
            in_use = {current.version} if current is not None and current.version else set()
            versions = [self.read_version(number) for number in in_use.union(numbers)]
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


def event_key(event: Event) -> tuple[Any, Any]:
    """What identifies an event, before and after the history was rewritten."""
    return event["version"], event["time"]


def _remove(file: Path) -> None:
    """Remove a file, or a link but not what it points to."""
    try:
        file.unlink(missing_ok=True)
    except OSError as error:
        raise files.cannot_write(file, error) from error
