"""The history of a model, with the accuracy of every version that is kept."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from triphase.app.proportion import Proportion
from triphase.app.store.versions import Store, open_store


@dataclass(frozen=True)
class TimelineEntry:
    """One event, and the version that was in use after it."""

    version: int
    time: str
    event: dict[str, Any]  # as the history has it
    in_use: bool  # it led to the version in use
    kept: bool
    classes: int | None  # None: the version is no longer kept
    photos: int | None  # taught so far
    accuracy: Proportion | None  # on the version's own held-out photos, over all its classes
    before: float | None  # of a lesson: accuracy on the classes known before it
    after: float | None


def timeline(path: Path) -> list[TimelineEntry]:
    """The history of a model, oldest first.

    `accuracy` of two versions is of different photos and classes; `before` and `after` are of the same ones.
    """
    store = open_store(path)
    current, kept, events = store.version(), set(store.version_numbers()), store.history()
    last = max(i for i, event in enumerate(events) if event["version"] == current.number)
    known = {number: describe(store, number) for number in kept & {event["version"] for event in events}}
    entries = []
    for i, event in enumerate(events):
        number = event["version"]
        classes, photos, accuracy = known.get(number, (None, None, None))
        before, after = event.get("before"), event.get("after")
        entries.append(
            TimelineEntry(
                number, event["time"], event, i == last, number in kept, classes, photos, accuracy, before, after
            )
        )
    return entries


def describe(store: Store, number: int) -> tuple[int, int, Proportion]:
    """Classes, photos and accuracy of a version."""
    state, version = store.load(number, parts=("app",), arrays=True)
    correct = state["app"]["exemplar_correct"]
    photos = sum(counts["taught"] for counts in version.info["counts"])  # those of a quick lesson included
    return len(version.info["classes"]), photos, Proportion.of(int(correct.sum()), len(correct))
