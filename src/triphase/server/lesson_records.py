"""Lessons as they are kept on disk: a record, its events, and the photos until it is done."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from triphase.errors import TriphaseError
from triphase.server.events import EventLog
from triphase.server.lesson_schemas import Lesson
from triphase.server.problems import NotFound
from triphase.state import make_directory, read_json, write_json

KEPT = 100  # lessons that are remembered


class Record(BaseModel):
    """A lesson as it is kept on disk."""

    lesson: Lesson
    settings: dict[str, Any]
    options: dict[str, Any]
    folder: str | None  # of photos on the server's disk; else they lie beside the record
    parent: int  # the version in use when it began, 0 for none


class LessonRecords:
    """The lessons of one model, by number."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._records: dict[int, Record] = {}
        self._logs: dict[int, EventLog] = {}

    def __iter__(self) -> Iterator[Record]:
        """Newest first."""
        return iter([self._records[number] for number in sorted(self._records, reverse=True)])

    def read(self) -> None:
        """Read what an earlier server has left."""
        for file in self.root.glob("*/record.json"):
            try:
                record = Record.model_validate(read_json(file))
            except (TriphaseError, ValueError):  # written by another version of the server
                continue
            self._records[record.lesson.id] = record

    def get(self, number: int) -> Record:
        """The record of a lesson."""
        if number not in self._records:
            raise NotFound(f"There is no lesson {number}.")
        return self._records[number]

    def log(self, number: int) -> EventLog:
        """The events of a lesson."""
        self.get(number)
        if number not in self._logs:
            self._logs[number] = EventLog(self.folder(number) / "events.jsonl")
        return self._logs[number]

    def next_number(self) -> int:
        """A number that no recorded lesson has."""
        found = [int(entry.name) for entry in self.root.glob("*") if entry.name.isascii() and entry.name.isdigit()]
        return max([0, *self._records, *found]) + 1

    def save(self, record: Record) -> None:
        """Write a record, and show it from now on."""
        self.write(record)
        self._records[record.lesson.id] = record

    def write(self, record: Record) -> None:
        """Write a record atomically."""
        folder = self.folder(record.lesson.id)
        make_directory(folder)
        write_json(folder / "record.json", record.model_dump())

    def folder(self, number: int) -> Path:
        """Where a lesson is kept."""
        return self.root / str(number)

    def photos(self, record: Record) -> Path:
        """Where the photos of a lesson lie."""
        return Path(record.folder) if record.folder is not None else self.uploads(record.lesson.id)

    def uploads(self, number: int) -> Path:
        """Where the photos lie that were uploaded for a lesson, until it is done."""
        return self.folder(number) / "photos"

    def remove_photos(self, record: Record) -> None:
        """Remove the photos of a lesson that is done, if they were uploaded for it."""
        if record.lesson.state == "done" and record.folder is None:
            shutil.rmtree(self.photos(record), ignore_errors=True)

    def remove(self, number: int) -> None:
        """Remove a lesson and what was kept of it."""
        self._records.pop(number, None)
        self._logs.pop(number, None)
        shutil.rmtree(self.folder(number), ignore_errors=True)

    def prune(self) -> None:
        """Remove the oldest lessons that are done, if there are many."""
        done = [n for n, record in sorted(self._records.items()) if record.lesson.state == "done"]
        for number in done[: max(0, len(self._records) - KEPT)]:
            self.remove(number)
