"""The history: what happened, whatever its writers went through; damage is reported."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from store_helpers import (
    fill,
    info,
    model,
    refusing,
    taught,
)
from triphase.errors import (
    CannotWrite,
)


@pytest.fixture(scope="module", autouse=True)
def _no_waiting_for_the_disk() -> Iterator[None]:
    """What fsync is for shows only where the power fails; the order of the calls is checked by dying at each."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        yield


def test_history_tells_what_was_taught_and_undone(tmp_path: Path) -> None:
    store = fill(tmp_path, 2)
    store.undo()
    first, second, third = store.history()
    assert {**taught(1), "version": 1} == {key: first[key] for key in first if key != "time"}
    assert (second["version"], third["event"], third["version"], third["undid"]) == (2, "undone", 1, 2)


@pytest.mark.parametrize("kept", [0, 1, 10, -1, -5])
def test_torn_history_loses_at_most_what_is_told_elsewhere(tmp_path: Path, kept: int) -> None:
    """The last event is in CURRENT, too; the one after it starts on a line of its own."""
    store = fill(tmp_path, 2)
    file = tmp_path / "history.jsonl"
    first, second = file.read_bytes().splitlines(keepends=True)
    expected = store.history()
    file.write_bytes(first + second[:kept])
    assert store.history() == expected
    store.publish(model(3), info(3), taught(3))
    assert store.history()[:2] == expected and [event["images"] for event in store.history()] == [1, 2, 3]


def test_full_disk_at_the_last_step_does_not_lose_the_event(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = fill(tmp_path, 1)
    with monkeypatch.context() as patch:
        patch.setattr("builtins.open", refusing("history.jsonl", open))
        store.publish(model(2), info(2), taught(2))  # CURRENT has moved: this is no failure
        assert [event["images"] for event in store.history()] == [1, 2]
        with pytest.raises(CannotWrite, match=r"history\.jsonl.*make room"):
            store.publish(model(3), info(3), taught(3))
    store.publish(model(3), info(3), taught(3))
    assert [event["images"] for event in store.history()] == [1, 2, 3]
