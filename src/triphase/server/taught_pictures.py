"""Thumbnails of taught photos as the page shows them: read once for each state of their file."""

from __future__ import annotations

from pathlib import Path
from threading import Lock
from urllib.parse import quote

from triphase.app.photo_keys import photo_key
from triphase.app.store.files import THUMBNAILS
from triphase.app.thumbnails import Thumbnails


class TaughtPictures:
    """The thumbnails of a model, and where they are found."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = Lock()
        self._opened: tuple[tuple[int, int, int] | None, Thumbnails] | None = None

    def current(self) -> Thumbnails:
        """The thumbnails that there are now."""
        with self._lock:
            stamp = self._stamp()
            if self._opened is None or self._opened[0] != stamp:
                self._opened = stamp, Thumbnails.open(self.path)
            return self._opened[1]

    def address(self, id_: int) -> str | None:
        """Where the thumbnail of a photo is found, if there is one."""
        if id_ not in self.current().pictures:
            return None
        return f"/api/v1/models/{quote(self.path.name, safe='')}/thumbnails/{photo_key(id_)}"

    def _stamp(self) -> tuple[int, int, int] | None:
        try:
            status = (self.path / THUMBNAILS).stat()
        except OSError:
            return None
        return status.st_ino, status.st_mtime_ns, status.st_size
