"""Thumbnails of taught photos: one file beside the versions, bounded in bytes.

Only a server adds to it. Commands that remove photos or classes from a model remove their thumbnails first. The
model does not need the file.
"""

from __future__ import annotations

import io
import stat
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from PIL import Image
from torch import Tensor

from triphase import state as files
from triphase.app.store.files import THUMBNAILS
from triphase.app.store.schema import Version
from triphase.app.store.versions import Store
from triphase.data.decoding import decode
from triphase.errors import CorruptState, Mismatch

SIDE = 128  # pixels
QUALITY = 75
MAX_BYTES = 50_000_000
ENTRY = 16  # bytes of an id and an offset


@dataclass(frozen=True)
class Thumbnails:
    """The thumbnails of a model as they were when it was opened; any number of threads may use it."""

    pictures: Mapping[int, memoryview]  # id -> JPEG, the oldest first
    note: str = ""  # a sentence why there are none

    @classmethod
    def open(cls, path: Path) -> Thumbnails:
        """Those of a model directory; none if the file is missing or damaged."""
        try:
            pictures = _read(path / THUMBNAILS)
        except FileNotFoundError:
            return cls({}, "This model has no thumbnails: only photos that are taught here get one.")
        except (CorruptState, Mismatch, OSError):
            return cls({}, "The thumbnails of this model are damaged; the model itself is not affected.")
        return cls(pictures, "" if pictures else "This model has no thumbnails.")

    def get(self, id_: int) -> bytes | None:
        """The JPEG of a photo, if there is one."""
        picture = self.pictures.get(id_)
        return None if picture is None else bytes(picture)

    def __len__(self) -> int:
        return len(self.pictures)


def thumbnail(photo: Path) -> bytes:
    """A photo as a small square JPEG, as the network sees it; BadData if it cannot be read."""
    return thumbnail_of(decode(photo, SIDE))


def thumbnail_of(pixels: Tensor) -> bytes:
    """The same of uint8 pixels (3, height, width).

    >>> thumbnail_of(torch.zeros(3, 300, 300, dtype=torch.uint8))[:2] == bytes([0xFF, 0xD8])
    True
    """
    image = Image.fromarray(pixels.permute(1, 2, 0).contiguous().numpy())
    image.thumbnail((SIDE, SIDE))
    blob = io.BytesIO()
    image.save(blob, "JPEG", quality=QUALITY)
    return blob.getvalue()


def add(path: Path, pictures: Mapping[int, bytes], max_bytes: int = MAX_BYTES) -> None:
    """Keep thumbnails of taught photos, by id; call it after a lesson is published.

    Takes the model's lock. Photos that no version knows get none, and lose the one that they had. If there is no
    room, photos that the version in use does not know are removed first, then the oldest of the largest class.
    """
    store = Store(path)
    with store.lock():
        known, classes = _known_photos(store)
        kept = {id_: jpeg for id_, jpeg in _readable(store).items() if id_ in known and id_ not in pictures}
        kept |= {id_: memoryview(jpeg) for id_, jpeg in pictures.items() if id_ in known}
        for id_ in _surplus(kept, classes, max_bytes):
            del kept[id_]
        _write(store, kept)


def remove(store: Store, ids: Collection[int]) -> None:
    """Remove thumbnails, with the lock held; a damaged file is deleted."""
    kept, gone = _readable(store), set(ids)
    if gone & kept.keys() or (not kept and (store.path / THUMBNAILS).exists()):
        _write(store, {id_: picture for id_, picture in kept.items() if id_ not in gone})


def photos_of(store: Store, version: Version, names: Collection[str]) -> list[int]:
    """Ids of the photos of these classes in a version that is kept."""
    labels = {version.info["classes"].index(name) for name in names}
    return [id_ for id_, label in _taught(store, version.number).items() if label in labels]


def _known_photos(store: Store) -> tuple[set[int], dict[int, int]]:
    """Ids of the photos that any version knows, and id -> class of those that the version in use knows."""
    known: set[int] = set()
    for number in store.version_numbers():
        known |= _taught(store, number).keys()
    return known, _taught(store, store.version().number)


def _taught(store: Store, number: int) -> dict[int, int]:
    part = store.load(number, parts=("taught",))[0]["taught"]
    ids, labels = (torch.cat([part[name], part[f"pending_{name}"]]).tolist() for name in ("ids", "labels"))
    return dict(zip(ids, labels, strict=True))


def _surplus(pictures: dict[int, memoryview], classes: Mapping[int, int], max_bytes: int) -> list[int]:
    """The thumbnails to remove, so that the others fit."""
    gone: list[int] = []
    size = sum(ENTRY + len(picture) for picture in pictures.values())
    waiting: dict[int, list[int]] = {}
    for id_ in reversed(pictures):  # so that the oldest of each class is the last
        waiting.setdefault(classes.get(id_, -1), []).append(id_)
    while size > max_bytes:
        most = max(waiting, key=lambda label: len(waiting[label]))
        id_ = waiting[-1 if waiting.get(-1) else most].pop()
        size -= ENTRY + len(pictures[id_])
        gone.append(id_)
    return gone


def _readable(store: Store) -> dict[int, memoryview]:
    """The thumbnails that are there; none if the file is damaged."""
    try:
        return _read(store.path / THUMBNAILS)
    except (CorruptState, Mismatch, OSError):
        return {}


def _read(file: Path) -> dict[int, memoryview]:
    if not stat.S_ISREG(file.lstat().st_mode):
        raise CorruptState(f"{file} is not a regular file.")
    saved = files.load(file)
    try:
        ids, ends, blob = saved["ids"], saved["ends"], saved["pictures"]
        if not (ids.dtype == ends.dtype == torch.int64 and blob.dtype == torch.uint8 and blob.dim() == 1):
            raise ValueError("other types")
        starts = [0, *ends.tolist()]
        if len(ids) != len(ends) or starts != sorted(starts) or starts[-1] != len(blob):
            raise ValueError("ends that are not those of its pictures")
        content = memoryview(blob.numpy()).cast("B")
        bounds = zip(ids.tolist(), starts, starts[1:], strict=False)
        return {id_: content[start:end] for id_, start, end in bounds}
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise CorruptState(f"{file} is damaged ({error}).") from error


def _write(store: Store, pictures: Mapping[int, memoryview]) -> None:
    """Replace the file atomically; without pictures there is none."""
    lock, file = store.directory.lock, store.path / THUMBNAILS
    if not pictures:
        lock.remove(file)
        return
    blob = torch.frombuffer(bytearray(b"".join(pictures.values())), dtype=torch.uint8)
    lengths = torch.tensor([len(picture) for picture in pictures.values()])
    saved = {"ids": torch.tensor(list(pictures)), "ends": lengths.cumsum(0), "pictures": blob}
    lock.write(file, files.to_bytes(saved))
