"""Drafts: photos that were uploaded for a lesson, one folder for each class, as `teach` reads them."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import NamedTuple

from triphase.app.class_names import class_name
from triphase.app.photo_keys import photo_id, photo_key
from triphase.app.thumbnails import SIDE
from triphase.data.decoding import decode_bytes, image_suffixes
from triphase.data.sources.files import content_id
from triphase.errors import InvalidValue
from triphase.server.limits import Limits
from triphase.server.problems import NotFound
from triphase.server.schemas import DRAFT_NAME, Draft, DraftPhoto, DraftSummary
from triphase.state import cannot_write, folder_bytes, make_directory


class Added(NamedTuple):
    """What became of a photo: new here, from another class of the draft, or here already."""

    id: str
    label: str
    was: str | None  # its class before


class Drafts:
    """The drafts of one model; all state of a draft is in its folder."""

    def __init__(self, root: Path, limits: Limits) -> None:
        self.root, self.limits = root, limits
        self._lock = Lock()

    def folder(self, draft: str) -> Path:
        """Where a draft lies."""
        if not re.fullmatch(DRAFT_NAME, draft):
            raise InvalidValue("The name of a draft has up to 64 letters, digits, - and _.")
        return self.root / draft

    def summaries(self) -> list[DraftSummary]:
        """All drafts that hold anything."""
        names = sorted(entry.name for entry in self.root.iterdir()) if self.root.exists() else []
        drafts = [self.get(name) for name in names if re.fullmatch(DRAFT_NAME, name)]
        return [DraftSummary(name=d.name, photos=len(d.photos), bytes=d.bytes) for d in drafts if d.photos]

    def get(self, draft: str) -> Draft:
        """The photos of a draft, oldest first."""
        photos = photos_in(self.folder(draft))
        return Draft(name=draft, photos=photos, bytes=sum(photo.bytes for photo in photos))

    def add(self, draft: str, label: str, name: str, content: bytes) -> Added:
        """Put a photo that can be read into a class of a draft."""
        label, folder = class_name(label), self.folder(draft)
        decode_bytes(content, name, (SIDE,), max_pixels=self.limits.pixels)
        photo, suffix = photo_key(content_id(content)), Path(name).suffix.lower()
        file = folder / label / (photo + (suffix if suffix in image_suffixes() else ""))
        with self._lock:
            before = self._find(draft, photo)
            if before is None:
                make_directory(file.parent)
                _write(file, content)
            elif before.parent.name != label:
                _move(before, file.parent)
        return Added(photo, label, None if before is None else before.parent.name)

    def move(self, draft: str, photos: Sequence[str], label: str) -> None:
        """Put photos into another class."""
        label = class_name(label)
        with self._lock:
            for file in self._find_all(draft, photos):
                if file.parent.name != label:
                    _move(file, self.folder(draft) / label)

    def remove(self, draft: str, photos: Sequence[str]) -> None:
        """Remove photos."""
        with self._lock:
            for file in self._find_all(draft, photos):
                file.unlink(missing_ok=True)
                _remove_if_empty(file.parent)

    def delete(self, draft: str) -> None:
        """Remove all of a draft."""
        with self._lock:
            shutil.rmtree(self.folder(draft), ignore_errors=True)

    def read(self, draft: str, photo: str) -> bytes:
        """The content of a photo."""
        return read_photo(self.folder(draft), photo, f"The draft {draft}")

    def take(self, draft: str, place: Path) -> None:
        """Move all of a draft to another place, atomically."""
        with self._lock:
            if not self.get(draft).photos:
                raise NotFound(f"The draft {draft} holds no photo; upload some first.")
            os.rename(self.folder(draft), place)

    def give_back(self, draft: str, place: Path) -> None:
        """Move taken photos back into the draft, in addition to those uploaded since."""
        with self._lock:
            for file in _photos(place):
                if self._find(draft, file.name[:16]) is None:
                    _move(file, self.folder(draft) / file.parent.name)

    def room(self, place: Path) -> int:
        """How many bytes the quota has left; `place` holds all that counts."""
        return self.limits.draft_bytes - folder_bytes(place)

    def _find(self, draft: str, photo: str) -> Path | None:
        pattern = f"*/{photo_key(photo_id(photo))}*"
        return next(iter(self.folder(draft).glob(pattern)), None)

    def _find_all(self, draft: str, photos: Sequence[str]) -> list[Path]:
        return _find_all(self.folder(draft), photos, f"The draft {draft}")


def photos_in(folder: Path) -> list[DraftPhoto]:
    """The photos in the folder of a draft, or of a lesson that was made of it, oldest first."""
    found = []
    for file in _photos(folder):
        with suppress(FileNotFoundError):
            status = file.stat()
            photo = DraftPhoto(id=file.name[:16], label=file.parent.name, bytes=status.st_size)
            found.append((status.st_mtime_ns, photo.id, photo))
    return [photo for _, _, photo in sorted(found, key=lambda entry: entry[:2])]


def read_photo(folder: Path, photo: str, owner: str) -> bytes:
    """The content of a photo in such a folder; `owner` is what an error calls it."""
    try:
        return _find_all(folder, [photo], owner)[0].read_bytes()
    except FileNotFoundError as error:  # removed or moved this moment
        raise NotFound(f"{owner} has no photo {photo}.") from error


def _find_all(folder: Path, photos: Sequence[str], owner: str) -> list[Path]:
    known = {file.name[:16]: file for file in _photos(folder)}
    if missing := [photo for photo in photos if photo not in known]:
        raise NotFound(f"{owner} has no photo {missing[0]}.")
    return [known[photo] for photo in dict.fromkeys(photos)]


def _photos(folder: Path) -> Iterator[Path]:
    """The photos in the class folders of a draft; a file that is being written begins with a dot."""
    if not folder.is_dir():
        return
    for label in folder.iterdir():
        if label.is_dir() and not label.is_symlink():
            yield from (file for file in label.iterdir() if not file.name.startswith("."))


def _write(file: Path, content: bytes) -> None:
    """Write a file atomically; it is not synced, because a draft lost in a power cut can be uploaded again."""
    temporary = file.parent / f".{file.name}.tmp"
    try:
        temporary.write_bytes(content)
        os.replace(temporary, file)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise cannot_write(file, error) from error


def _move(file: Path, folder: Path) -> None:
    make_directory(folder)
    os.replace(file, folder / file.name)
    _remove_if_empty(file.parent)


def _remove_if_empty(folder: Path) -> None:
    with suppress(OSError):
        folder.rmdir()
