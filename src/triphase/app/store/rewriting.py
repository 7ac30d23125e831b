"""Rewrite all versions of a model and its history, so that something is removed everywhere."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from typing import Any

from triphase.app.store import identities
from triphase.app.store.checksums import json_copy
from triphase.app.store.history import Event, new_event
from triphase.app.store.schema import Version
from triphase.app.store.state_checks import publishable
from triphase.app.store.versions import Store
from triphase.errors import InvalidValue
from triphase.state import State

Transformed = tuple[Mapping[str, Any], Mapping[str, Any]]  # a state, and what its version says about it
Transform = Callable[[State, Version], Transformed | None]


def rewrite(
    store: Store,
    transform: Transform,
    change_event: Callable[[Event], Event],
    event: Mapping[str, Any],
    forgotten_names: Set[str] = frozenset(),
) -> Version:
    """Change every version that is kept and every event of the past; nothing stays of what was there before.

    A version for which `transform` returns None is removed, except for the one in use, which is refused. Both
    functions must be idempotent: after a crash, the same call finishes the work. The version in use is changed
    last, so it shows that work is left. An interrupted lesson is discarded, and `forgotten_names` are removed from
    the former names of the classes that stay.
    """
    store.version()
    with store.lock():
        new_event(event, store.version().number)
        state, in_use = store.load()
        result = transform(state, in_use)
        if result is None:
            raise InvalidValue(f"Nothing would be left of version {in_use.number}, which is in use.")
        others = [number for number in store.version_numbers() if number != in_use.number]
        for number in others:
            store.load(number)  # all of them, before any is changed: a damaged one must be restored first
        _rewrite_history(store, change_event)
        store.discard_work()
        for number in others:
            state, version = store.load(number)
            _rewrite_version(store, version, transform(state, version), forgotten_names)
        version = _rewrite_version(store, in_use, result, forgotten_names)
        store.set_current(in_use.number, event)
        store.directory.collect_garbage()
    return version


def _rewrite_version(
    store: Store, version: Version, result: Transformed | None, forgotten_names: Set[str]
) -> Version:
    if result is None:
        store.directory.remove_version(version.number)
        return version
    state, info = result
    known = identities.without_names(version.identities, info["classes"], forgotten_names)
    document = version.model_dump() | {"info": json_copy(info), "identities": known}
    changed = publishable(document, state).model_copy(update={"parts": store.directory.write_parts(state)})
    if changed != version:
        store.directory.write_version(changed)
    return changed


def _rewrite_history(store: Store, change_event: Callable[[Event], Event]) -> None:
    """Change the events of the past; the newest one is in CURRENT, too."""
    current = store.directory.read_current()
    assert current is not None and current.event is not None, "there is a version in use"
    events = store.history()

    def changed(event: Event) -> Event:
        return json_copy(change_event(event)) | {"version": event["version"], "time": event["time"]}

    newest = changed(current.event)
    store.directory.history.append(current.event, store.directory.lock)
    store.directory.write_current(current.model_copy(update={"event": newest}))
    store.directory.history.write(map(changed, events), store.directory.lock)
