"""Labels that a person has confirmed; they are not listed as suspects again."""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping
from pathlib import Path

from triphase import state as files
from triphase.app.photo_keys import photo_id, photo_key
from triphase.errors import TriphaseError


class ConfirmedLabels:
    """Ids of photos and the identity of the class that each was confirmed to show, in one JSON file.

    The identity of a class (`Version.identities`) stays the same when it is renamed. One process writes the file; a
    file that is damaged counts as empty, since labels can be confirmed again. Threads may share the object.
    """

    def __init__(self, file: Path) -> None:
        self._file, self._lock = file, threading.Lock()
        self._classes = _read(file)

    def add(self, classes: Mapping[int, str]) -> None:
        """Remember photos, id -> identity of their class."""
        with self._lock:
            self._write(self._classes | dict(classes))

    def keep_only(self, taught: Collection[int]) -> None:
        """Drop photos that are no longer taught, so that nothing is left of what was forgotten."""
        with self._lock:
            kept = {id_: class_ for id_, class_ in self._classes.items() if id_ in taught}
            if kept != self._classes:
                self._write(kept)

    def by_name(self, identities: Mapping[str, str]) -> dict[int, str]:
        """Ids and the name that their confirmed class has now; `identities` is name -> identity."""
        name_of = {identity: name for name, identity in identities.items()}
        with self._lock:
            return {id_: name_of[class_] for id_, class_ in self._classes.items() if class_ in name_of}

    def _write(self, classes: dict[int, str]) -> None:
        files.write_json(self._file, {photo_key(id_): class_ for id_, class_ in classes.items()})
        self._classes = classes


def _read(file: Path) -> dict[int, str]:
    try:
        return {photo_id(key): str(class_) for key, class_ in files.read_json(file).items()}
    except (TriphaseError, AttributeError, OSError):
        return {}
