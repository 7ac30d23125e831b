"""Photos that a model was unsure of, kept in a folder of bounded size until a person labels them.

Each photo is two files, <key>.photo and then <key>.json, each written atomically: a photo without its document
was left by a crash, and is removed when the folder is opened. One process writes; threads may share the object.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from triphase import state as files
from triphase.app.photo_keys import photo_id, photo_key
from triphase.app.predictor import Answer
from triphase.data.sources.files import content_id
from triphase.errors import TriphaseError

MAX_NAME = 255  # characters of a file's name that are kept
MAX_PHOTOS = 5000  # as many as can be grouped together


@dataclass(frozen=True)
class InboxPhoto:
    """A photo that waits for a label, and what the model answered."""

    id: int
    name: str  # of the file that it came in; to be shown as text
    time: str  # when it came
    best: str  # the class that fitted best
    probability: float  # of that class
    known: bool  # False: the answer was "unknown"
    bytes: int  # of both files


class Inbox:
    """The photos in a folder of the server's own; `max_bytes` 0 keeps nothing, which is the default of a server."""

    def __init__(self, folder: Path, max_bytes: int) -> None:
        """Open the folder, remove what a crash left, and make it fit into `max_bytes`."""
        self.folder, self.max_bytes = folder, max_bytes
        self._lock = threading.RLock()
        self._photos = _read_all(folder)
        self._make_room(0)

    def add(self, photo: bytes, name: str, answer: Answer) -> int | None:
        """Keep a photo, in place of the oldest ones if need be; its id, or None if it is larger than the inbox.

        One that is there already stays as it is.
        """
        id_ = content_id(photo)
        with self._lock:
            document = {
                "name": name[:MAX_NAME],
                "time": datetime.now(timezone.utc).isoformat(timespec="microseconds"),
                "best": answer.best,
                "probability": answer.probability,
                "known": answer.known,
            }
            blob = json.dumps(document).encode()
            size = len(photo) + len(blob)
            if size > self.max_bytes:
                return None
            if id_ not in self._photos:
                self._make_room(size)
                files.write(self._file(id_, "photo"), photo)
                files.write(self._file(id_, "json"), blob)
                self._photos[id_] = _photo(id_, document, size)
            return id_

    def photos(self) -> list[InboxPhoto]:
        """All photos, the oldest first."""
        with self._lock:
            return list(self._photos.values())

    def file(self, id_: int) -> Path | None:
        """The path of a photo, or None if there is no such photo."""
        with self._lock:
            return self._file(id_, "photo") if id_ in self._photos else None

    def remove(self, ids: Collection[int]) -> int:
        """Delete photos; how many of them were there."""
        with self._lock:
            found = [id_ for id_ in dict.fromkeys(ids) if id_ in self._photos]
            for id_ in found:
                self._remove(id_)
            return len(found)

    def clear(self) -> int:
        """Delete all photos; how many there were."""
        with self._lock:
            return self.remove(list(self._photos))

    @property
    def bytes(self) -> int:
        """The size of all photos."""
        with self._lock:
            return sum(photo.bytes for photo in self._photos.values())

    def _make_room(self, size: int) -> None:
        """Delete the oldest photos until `size` more bytes fit in."""
        while self._photos and (self.bytes + size > self.max_bytes or len(self._photos) >= MAX_PHOTOS):
            self._remove(next(iter(self._photos)))

    def _remove(self, id_: int) -> None:
        _unlink(self._file(id_, "json"))
        _unlink(self._file(id_, "photo"))
        del self._photos[id_]

    def _file(self, id_: int, kind: str) -> Path:
        return self.folder / f"{photo_key(id_)}.{kind}"


def _read_all(folder: Path) -> dict[int, InboxPhoto]:
    """The photos in a folder, the oldest first; files that belong to none are deleted."""
    found: list[InboxPhoto] = []
    for file in sorted(folder.glob("*.json")):
        try:
            photo, blob = file.with_suffix(".photo"), files.read_file(file)
            size = len(blob) + photo.stat().st_size
            found.append(_photo(photo_id(file.stem), json.loads(blob), size))
        except (OSError, TriphaseError, AttributeError, KeyError, RecursionError, TypeError, ValueError):
            _unlink(file)
    keys = {photo_key(photo.id) for photo in found}
    for file in [*folder.glob("*.photo"), *folder.glob(".*.tmp")]:
        if file.stem not in keys:
            _unlink(file)
    return {photo.id: photo for photo in sorted(found, key=lambda photo: (photo.time, photo.id))}


def _photo(id_: int, document: dict[str, object], size: int) -> InboxPhoto:
    """A photo from its document; ValueError, KeyError or TypeError if it is not valid."""
    probability, known = document["probability"], document["known"]
    if not isinstance(probability, float) or not 0 <= probability <= 1 or not isinstance(known, bool):
        raise ValueError("no answer")
    name, time, best = (str(document[key]) for key in ("name", "time", "best"))
    datetime.fromisoformat(time)
    return InboxPhoto(id_, name, time, best, probability, known, size)


def _unlink(file: Path) -> None:
    try:
        file.unlink(missing_ok=True)
    except OSError as error:
        raise files.cannot_write(file, error) from error
