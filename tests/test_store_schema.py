"""The schema of the documents: what is valid passes unchanged, and the first thing that is wrong is named."""

from __future__ import annotations

import math
from typing import Any

import pytest

from store_helpers import info, taught
from triphase.app.store.schema import Current, Info, LessonMark, Version, validate, validate_event

TIME = "2026-01-02T03:04:05.000006+00:00"
VERSION: dict[str, Any] = {
    "number": 2,
    "parent": 1,
    "created": TIME,
    "info": info(2),
    "identities": {name: {"id": f"1-{i}", "former_names": []} for i, name in enumerate(("cat", "dog"))},
    "parts": {"head": {"sha256": "0" * 64, "bytes": 7}},
}
EVENT: dict[str, Any] = {**taught(1), "version": 2, "time": TIME}
CURRENT: dict[str, Any] = {"version": 2, "highest": 3, "event": EVENT}


def changed(document: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """A copy with another value at a path; `...` removes it."""
    first, _, rest = path.partition(".")
    copy = dict(document)
    if rest:
        copy[first] = changed(document[first], rest, value)
    elif value is ...:
        del copy[first]
    else:
        copy[first] = value
    return copy


def test_what_is_valid_comes_back_as_it_was() -> None:
    assert validate(Version, VERSION).model_dump() == VERSION
    assert validate(Current, CURRENT).model_dump() == CURRENT
    assert validate_event(EVENT) == EVENT


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        ("number", 0, "number: .*greater than or equal to 1"),
        ("number", True, "number: .*integer"),
        ("number", 2.0, "number: .*integer"),
        ("number", 2**60, "number: .*less than or equal"),
        ("parent", 2, "the parent is not older"),
        ("parent", "1", "parent: .*integer"),
        ("parent", ..., "parent: Field required"),
        ("created", "yesterday", "created: "),
        ("created", "2026-01-02T03:04:05", "created: not a time of day with its time zone"),
        ("created", "0001-01-01T00:00:00+00:00", "created: not a time"),
        ("info.classes", [], "info.classes: .*at least 1"),
        ("info.classes", None, "info.classes: .*list"),
        ("info.classes", ["cat", "cat"], "info.classes: a name occurs twice"),
        ("info.classes", ["cat", "do/g"], "info.classes.1: "),
        ("info.classes", ["cat", "unknown"], "info.classes.1: "),
        ("info.classes", ["cat", "e\N{COMBINING ACUTE ACCENT}"], "info.classes.1: not in the spelling"),
        ("info.counts", [], "0 counts for 2 classes"),
        ("info.image_size", 10**6, "info.image_size: .*less than"),
        ("info.replay", "some", "info.replay: .*'raw', 'latent' or 'none'"),
        ("info.accuracy", math.nan, "info.accuracy: .*finite"),
        ("info.accuracy", 1.5, "info.accuracy: .*less than or equal to 1"),
        ("info.memory.bytes", -1, "info.memory.bytes: .*greater than"),
        ("info.memory", None, "info.memory: "),
        ("info.more", 1, "info.more: Extra"),
        ("identities", {}, "the identities are not those of the classes"),
        ("identities.dog.id", "1-0", "two classes have the same identity"),
        ("identities.dog.id", "../x", "identities.dog.id: .*pattern"),
        ("identities.dog.former_names", ["a", "a"], "former_names: a name occurs twice"),
        ("parts.head.sha256", "../../outside", "parts.head.sha256: .*pattern"),
        ("parts.head.sha256", "0" * 64 + "\n", "parts.head.sha256: .*pattern"),
        ("parts", {"../head": {"sha256": "0" * 64, "bytes": 7}}, "parts.*pattern"),
        ("parts.head", None, "parts.head: "),
    ],
)
def test_the_first_thing_that_is_wrong_in_a_version_is_named(path: str, value: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        validate(Version, changed(VERSION, path, value))


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        ("version", 1, "the event is not the one that led to the version in use"),
        ("version", 4, "a number that was never given"),
        ("version", -1, "version: "),
        ("highest", None, "highest: "),
        ("event", None, "the event is not the one"),
        ("event.event", "slept", "event: not a known kind of event"),
        ("event.time", 5, "event.*time: "),
        ("event.classes", {"unknown": 1}, "event.*classes"),
        ("event.after", math.inf, "event.*after: .*finite"),
        ("event.forced", "no", "event.*forced: "),
        ("event.old", "x", "event.*old: Extra"),
    ],
)
def test_the_first_thing_that_is_wrong_in_current_is_named(path: str, value: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        validate(Current, changed(CURRENT, path, value))


@pytest.mark.parametrize(
    "event",
    [
        {"event": "taught_quick", "images": 3, "drop": None},
        {"event": "renamed", "old": "a", "new": None},
        {"event": "untaught", "images": 1},
        {"event": "undone", "undid": 3},
        {"event": "forgot"},
        {"event": "saved"},
    ],
)
def test_each_kind_of_event_has_its_own_fields(event: dict[str, Any]) -> None:
    whole = {**event, "version": 2, "time": TIME}
    assert validate_event(whole) == whole
    for name in whole:
        with pytest.raises(ValueError):
            validate_event({key: value for key, value in whole.items() if key != name})


@pytest.mark.parametrize("event", [None, [], "taught", {}, {"event": None}, {"event": ["taught"]}])
def test_what_is_no_event_is_refused(event: Any) -> None:
    with pytest.raises(ValueError):
        validate_event(event)


def test_the_mark_of_a_lesson_and_info_have_no_other_fields() -> None:
    mark = {"lesson": "0" * 64, "parent": 0, "threads": 2}
    assert validate(LessonMark, mark).threads == 2
    for wrong in ({**mark, "threads": 0}, {**mark, "parent": None}, {**mark, "lesson": "x"}, {**mark, "more": 1}):
        with pytest.raises(ValueError):
            validate(LessonMark, wrong)
    assert validate(Info, info(1)).labels == "str"
