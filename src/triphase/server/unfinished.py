"""Lessons that have not ended: which of them are in the way, how one is taken back, and what one has published."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from triphase.app.store.versions import Store, open_store
from triphase.errors import Busy
from triphase.server.lesson_records import LessonRecords, Record


def check_none_waits(model: Path, records: LessonRecords) -> None:
    """Refuse to learn while a lesson was stopped, or has failed with its quick version in use."""
    for record in records:
        state = record.lesson.state
        if state == "stopped" or (state == "failed" and quick_in_use(model, records, record)):
            how = "was stopped" if state == "stopped" else "has failed"
            raise Busy(f"Lesson {record.lesson.id} of {model.name} {how}: resume it or delete it first.")


def check_not_quick(model: Path, records: LessonRecords) -> None:
    """Refuse to change a version that has learned its lesson only in part."""
    for record in records:
        if record.lesson.state != "done" and quick_in_use(model, records, record):
            raise Busy(
                f"Lesson {record.lesson.id} of {model.name} has not ended, and its quick version is in use: "
                "resume it or delete it first."
            )


def quick_in_use(model: Path, records: LessonRecords, record: Record) -> bool:
    """Whether the version in use is the quick version of a lesson."""
    current = Store(model).directory.read_current()
    if current is None or current.event is None or current.event["event"] != "taught_quick":
        return False
    events = records.log(record.lesson.id).after(0)
    return any(event.kind == "taught_quick" and event.data["version"] == current.version for event in events)


def take_back_quick(model: Path, place: Path) -> None:
    """Undo the quick version in use; if it is the first version, the model is moved to `place`."""
    store = open_store(model)
    with store.lock():
        first = store.version().parent is None
        if not first:
            store.undo()
    if first:  # the model knows nothing else
        os.rename(model, place)


def correct_outcome(model: Path, record: Record, outcome: dict[str, Any]) -> None:
    """A lesson that was killed just after it was published finds nothing to learn: it was published."""
    store = Store(model)
    taught = [e for e in store.history() if e["event"] == "taught" and e["version"] > record.parent]
    if record.lesson.kind == "lesson" and outcome["learned"] == 0 and taught:
        outcome |= {"published": True, "learned": taught[-1]["images"], "version": store.version().number}
