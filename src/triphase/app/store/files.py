"""The files of a model directory, each written atomically, and verified when it is read.

CURRENT                       the version in use, the highest number ever given, the event that led here
versions/000007.json          a version: its parent, what is known about it, the SHA-256 of its parts
parts/<sha256>.safetensors    one top-level entry of a state, shared by all versions in which it is the same
history.jsonl                 what happened, one event per line
thumbnails.safetensors        small pictures of taught photos, if a server keeps some; no version needs them
work/                         what an interrupted lesson leaves behind
LOCK                          held by the process that writes
"""

from __future__ import annotations

import re
import stat
import warnings
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from triphase import state as files
from triphase.app.store.checksums import FORMAT, sha256, verify_checksum, with_checksum
from triphase.app.store.history import History
from triphase.app.store.schema import Current, Document, LessonMark, Part, Version, validate
from triphase.directory_lock import DirectoryLock
from triphase.errors import BadData, CorruptState, Mismatch, TriphaseError, TriphaseWarning

THUMBNAILS = "thumbnails.safetensors"
MODEL_FILES = ("CURRENT", "LOCK", "history.jsonl", "parts", THUMBNAILS, "versions", "work")
D = TypeVar("D", bound=Document)


class Directory:
    """Reads and writes the files; the store decides when."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.held: DirectoryLock | None = None
        self.history = History(path / "history.jsonl")

    @property
    def lock(self) -> DirectoryLock:
        """The lock that the store has taken; whatever is written is written through it."""
        assert self.held is not None, "only the holder of the lock may write"
        return self.held

    def check_location(self) -> None:
        """Refuse to write where files could belong to something else."""
        for name in MODEL_FILES:
            if (self.path / name).is_symlink():
                raise BadData(
                    f"{self.path / name} is a symbolic link, and a model lies in one place: copy it there."
                )
        for parent in self.path.absolute().parents:
            if (parent / "CURRENT").is_file() and (parent / "versions").is_dir():
                raise BadData(f"{self.path} lies in the model {parent}: give a folder outside of it.")
        if self.path.exists() and not self.path.is_dir():
            raise BadData(f"{self.path} is a file, and a model is a folder: give another name.")
        try:
            found = [file.name for file in self.path.iterdir()] if self.path.is_dir() else []
        except OSError as error:
            raise files.cannot_write(self.path, error) from error
        foreign = sorted(name for name in found if name not in MODEL_FILES and not name.startswith("."))
        if foreign and "CURRENT" not in found:
            raise BadData(f"{self.path} is not a model, it holds {foreign[0]!r}: give a model or a new folder.")

    # Reading

    def version_numbers(self) -> list[int]:
        """The versions that are kept, ascending; those that were undone are among them until pruned."""
        names = (file.name for file in (self.path / "versions").glob("*"))
        return sorted(
            int(match[1]) for name in names if (match := re.fullmatch(r"(\d{6,16})\.json", name, re.ASCII))
        )

    def read_current(self) -> Current | None:
        """What CURRENT says, or None where nothing was ever published."""
        file = self.path / "CURRENT"
        current = self._read(file, Current)
        if current is None and self.version_numbers():
            raise self._damaged(file)
        return current

    def read_version(self, number: int) -> Version:
        """A version that is kept."""
        file = self._version_file(number)
        version = self._read(file, Version)
        if version is None:
            raise self._damaged(file)
        if version.number != number:
            raise self._damaged(file, f"it is version {version.number}")
        return version

    def read_part(self, digest: str, *, arrays: bool = False, remedy: str = "") -> Any:
        """One entry of a state, with its checksum verified; with `arrays`, numpy's in the place of tensors.

        `remedy` ends the sentence about a damaged one.
        """
        file = self._part_file(digest)
        try:
            if not stat.S_ISREG(file.lstat().st_mode):
                raise self._damaged(file, remedy=remedy)
            value = files.load(file, verify=False, arrays=arrays)["part"]
            intact = sha256(value) == digest
        except (Mismatch, MemoryError):
            raise
        except Exception as error:  # whatever a damaged file provokes
            raise self._damaged(file, remedy=remedy) from error
        if not intact:
            raise self._damaged(file, remedy=remedy)
        return value

    def read_lesson(self) -> LessonMark | None:
        """To which lesson the checkpoint in work/ belongs, or None where there is none."""
        return self._read(self.path / "work" / "lesson.json", LessonMark)

    def _read(self, file: Path, kind: type[D]) -> D | None:
        """A document whose checksum and content are valid, or None where there is no such file."""
        try:
            document = verify_checksum(files.read_file(file, follow_links=False), file)
            if document.pop("format") != FORMAT:
                raise ValueError("it says nothing about its format")
            return validate(kind, document)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise CorruptState(f"{file} cannot be read ({error.strerror}); check its permissions.") from error
        except Mismatch:
            raise
        except (KeyError, RecursionError, TypeError, ValueError) as error:
            detail = "" if isinstance(error, CorruptState | KeyError | RecursionError) else str(error)
            raise self._damaged(file, detail) from error

    def _damaged(self, file: Path, detail: str = "", remedy: str = "") -> CorruptState:
        try:
            what = "damaged" if stat.S_ISREG(file.lstat().st_mode) else "not a regular file"
        except OSError:
            what = "missing"
        detail = f" ({detail})" if detail and what == "damaged" else ""
        return CorruptState(f"{file} is {what}{detail}; restore it from a copy of {self.path}{remedy}.")

    def _version_file(self, number: int) -> Path:
        return self.path / "versions" / f"{number:06d}.json"

    def _part_file(self, digest: str) -> Path:
        return self.path / "parts" / f"{digest}.safetensors"

    # Writing, with the lock held

    def write_current(self, current: Current) -> None:
        """Replace CURRENT atomically."""
        self._write(self.path / "CURRENT", current)

    def write_version(self, version: Version) -> None:
        """Write the file of a version whose parts are written already."""
        self._write(self._version_file(version.number), version, indent=1)

    def write_lesson(self, mark: LessonMark) -> None:
        """Say to which lesson the checkpoint in work/ belongs."""
        self._write(self.path / "work" / "lesson.json", mark)

    def write_part(self, value: Any) -> Part:
        """Write an entry of a state that is not there yet, and read it back."""
        digest = sha256(value)
        file = self._part_file(digest)
        try:
            self.read_part(digest)
        except TriphaseError:
            self.lock.write(file, files.to_bytes({"part": value}))
            self.read_part(digest)
        return Part(sha256=digest, bytes=file.stat().st_size)

    def write_parts(self, state: Mapping[str, Any]) -> dict[str, Part]:
        """Write all of a state, or nothing."""
        try:
            return {str(name): self.write_part(value) for name, value in state.items()}
        except Exception:
            with suppress(TriphaseError):
                self.collect_garbage()
            raise

    def remove_version(self, number: int) -> None:
        """Remove the file of a version; its parts stay until garbage is collected."""
        self.lock.remove(self._version_file(number))

    def collect_garbage(self) -> None:
        """Remove temporary files, versions that never came into use, and parts that no version names."""
        for folder in (self.path, self.path / "versions", self.path / "parts"):
            for file in folder.glob(".*.tmp"):
                self.lock.remove(file)
        try:
            current = self.read_current()
            if current is None:
                return
            used = {event["version"] for event in self.history.verified(current.event)}
            for number in self.version_numbers():
                if number > current.highest and number not in used:  # its publisher died before CURRENT named it
                    self.remove_version(number)
            numbers = {*self.version_numbers(), *([current.version] if current.version else [])}
            versions = [self.read_version(number) for number in numbers]
        except (CorruptState, Mismatch):
            return  # a version that is lost or cannot be read, and may be restored, may need any part
        needed = {self._part_file(part.sha256) for version in versions for part in version.parts.values()}
        for file in (self.path / "parts").glob("*.safetensors"):
            if file not in needed:
                self.lock.remove(file)

    def warn_of_damaged_history(self) -> None:
        """Warn of a damaged line, which does not prevent lessons; `history` and `forget --everywhere` refuse it."""
        try:
            current = self.read_current()
        except (CorruptState, Mismatch):  # reported when CURRENT is needed
            return
        if damage := self.history.damage(current.event if current else None):
            warnings.warn(damage, TriphaseWarning, stacklevel=3)

    def _write(self, file: Path, document: Document, indent: int | None = None) -> None:
        self.lock.write(file, with_checksum({"format": FORMAT, **document.model_dump()}, indent) + b"\n")
