"""Watch a folder, such as that of a camera: each new photo is answered once, and kept if the answer was unsure."""

from __future__ import annotations

import asyncio
import logging
import os
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime, timezone
from pathlib import Path

from triphase.data.decoding import image_suffixes
from triphase.errors import BadData, TriphaseError
from triphase.server.answering import Upload
from triphase.server.schemas import WatchedAnswer
from triphase.server.served_model import ServedModel
from triphase.state import read_json, write_json

POLL_SECONDS = 1.0  # between two scans of the folder
MAX_ANSWERS = 1000  # that are kept to be shown
CHUNK = 64  # files that are read together
Stamp = tuple[int, int]  # bytes, and time of the last change
log = logging.getLogger(__name__)


class Watcher:
    """Answers the new photos in a folder for one model."""

    def __init__(self, folder: Path, model: ServedModel) -> None:
        if not folder.is_dir():
            raise BadData(f"There is no folder {folder} to watch; make it, or check the spelling.")
        self.folder, self.model = folder, model
        self.answers: deque[WatchedAnswer] = deque(maxlen=MAX_ANSWERS)
        self._record = model.work / "watched.json"
        self._done = self._read()
        self._before: dict[str, Stamp] = {}

    async def run(self) -> None:
        """Scan the folder until cancelled."""
        while True:
            try:
                await self.scan()
            except (OSError, TriphaseError):  # the folder or the model may be unavailable for a while
                pass
            except Exception:  # whatever it is, later photos are answered
                log.exception("The folder %s could not be scanned.", self.folder)
            await asyncio.sleep(POLL_SECONDS)

    async def scan(self) -> None:
        """Answer files that are new and unchanged since the last scan: others may still be being written."""
        found = await asyncio.to_thread(lambda: dict(_files(self.folder)))
        if self._done is None:  # first scan ever: files that are already there are not new
            self._done = found
            self._write()
        ready = [name for name, stamp in found.items() if self._done.get(name) != stamp == self._before.get(name)]
        self._before = found
        for start in range(0, len(ready), CHUNK):
            await self._answer_each(ready[start : start + CHUNK], found)
        if ready:
            self._done = {name: stamp for name, stamp in self._done.items() if name in found}
            await asyncio.to_thread(self._write)

    async def _answer_each(self, names: list[str], found: dict[str, Stamp]) -> None:
        """Answer files together; if that fails unexpectedly, alone, and one that fails again counts as done."""
        try:
            await self._answer(names, found)
        except (OSError, TriphaseError):
            raise
        except Exception:
            if len(names) > 1:
                for name in names:
                    await self._answer_each([name], found)
                return
            log.exception("%s could not be answered; it is passed over.", self.folder / names[0])
            self._count_as_done(names, found)

    async def _answer(self, names: list[str], found: dict[str, Stamp]) -> None:
        uploads = await asyncio.to_thread(lambda: [Upload(name, _content(self.folder / name)) for name in names])
        version, answered = await self.model.answering.answer(uploads, 3)
        await self.model.unsure.keep(uploads, answered)
        now = datetime.now(timezone.utc).isoformat(timespec="seconds")
        self._count_as_done(names, found)
        for one in answered:
            self.answers.appendleft(WatchedAnswer(version=version, time=now, **one.answer.model_dump()))

    def _count_as_done(self, names: list[str], found: dict[str, Stamp]) -> None:
        assert self._done is not None
        self._done |= {name: found[name] for name in names}

    def _read(self) -> dict[str, Stamp] | None:
        try:
            return {
                str(name): (int(size), int(changed)) for name, (size, changed) in read_json(self._record).items()
            }
        except (TriphaseError, OSError, AttributeError, TypeError, ValueError):
            return None

    def _write(self) -> None:
        write_json(self._record, self._done)


def _files(folder: Path) -> Iterator[tuple[str, Stamp]]:
    """The photos in a folder at any depth, without links and hidden ones."""
    for place, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in names:
            path = Path(place, name)
            if name.startswith(".") or path.suffix.lower() not in image_suffixes() or path.is_symlink():
                continue
            with suppress(OSError):
                status = path.stat()
                yield path.relative_to(folder).as_posix(), (status.st_size, status.st_mtime_ns)


def _content(path: Path) -> bytes:
    """The content of a file; empty, and therefore not answered, if it was removed."""
    with suppress(OSError):
        return path.read_bytes()
    return b""
