"""The history: what happened, whatever its writers went through; damage is reported."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from store_helpers import FORGOT, fill, info, model, refusing, taught, without_cat, without_name
from triphase.app.store.checksums import with_checksum
from triphase.app.store.rewriting import rewrite
from triphase.app.store.versions import Store
from triphase.errors import BadData, CannotWrite, CorruptState, TriphaseWarning

pytestmark = pytest.mark.usefixtures("no_fsync")


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


DAMAGE: dict[str, Callable[[list[bytes]], list[bytes]]] = {
    "a flipped byte": lambda lines: [lines[0].replace(b"taught", b"taughs"), *lines[1:]],
    "half a line in the middle": lambda lines: [lines[0][:20] + b"\n", *lines[1:]],
    "an empty line": lambda lines: [lines[0], b"\n", *lines[1:]],
    "no event at all": lambda lines: [lines[0], with_checksum({"event": "slept"}) + b"\n", *lines[1:]],
    "the beginning of another line at the end": lambda lines: [*lines, lines[0][:-9]],
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_a_line_that_cannot_be_verified_is_reported(tmp_path: Path, kind: str) -> None:
    store = fill(tmp_path, 3)
    file = tmp_path / "history.jsonl"
    file.write_bytes(b"".join(DAMAGE[kind](file.read_bytes().splitlines(keepends=True))))
    with pytest.raises(CorruptState, match=r"history.jsonl: line \d is damaged; restore .*, or remove that line"):
        store.history()
    before = [store.version(number) for number in store.version_numbers()]
    with (
        pytest.warns(TriphaseWarning, match=r"history.jsonl: line \d is damaged"),
        pytest.raises(CorruptState, match="is damaged"),
    ):
        rewrite(store, without_cat, without_name, FORGOT)
    assert [store.version(number) for number in store.version_numbers()] == before


def test_a_damaged_line_keeps_nobody_from_teaching_and_stays_for_who_can_mend_it(tmp_path: Path) -> None:
    store = fill(tmp_path, 3)
    file = tmp_path / "history.jsonl"
    blob = file.read_bytes()
    file.write_bytes(blob.replace(b"taught", b"taughs", 1))
    with pytest.warns(TriphaseWarning, match="line 1 is damaged"):
        store.publish(model(4), info(4), taught(4))
    file.write_bytes(file.read_bytes().replace(b"taughs", b"taught", 1))
    assert [event["images"] for event in store.history()] == [1, 2, 3, 4]


def test_a_history_that_was_removed_is_no_damage(tmp_path: Path) -> None:
    """It says nothing wrong; the newest event is in CURRENT."""
    store = fill(tmp_path, 2)
    (tmp_path / "history.jsonl").unlink()
    assert [event["images"] for event in store.history()] == [2]
    store.publish(model(3), info(3), taught(3))
    assert [event["images"] for event in store.history()] == [2, 3]


def test_a_reader_that_finds_half_a_line_looks_at_current_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, writer = fill(tmp_path, 1), Store(tmp_path)
    real, file = store.directory.read_current, tmp_path / "history.jsonl"
    calls = []

    def current_of_before() -> object:
        calls.append(real())
        if len(calls) == 1:  # a writer publishes now, and is in the middle of its line
            writer.publish(model(2), info(2), taught(2))
            file.write_bytes(file.read_bytes()[:-30])
        return calls[-1]

    monkeypatch.setattr(store.directory, "read_current", current_of_before)
    assert [event["images"] for event in store.history()] == [1, 2] and len(calls) == 3


@pytest.mark.parametrize("kind", ["fifo", "folder", "link"])
def test_a_history_that_is_no_file_is_refused_at_once(tmp_path: Path, kind: str) -> None:
    store = fill(tmp_path / "m", 2)
    file = store.path / "history.jsonl"
    if kind == "link":
        file.rename(tmp_path / "elsewhere")
        file.symlink_to(tmp_path / "elsewhere")
    else:
        file.unlink()
        (os.mkfifo if kind == "fifo" else os.mkdir)(file)
    with pytest.raises(CorruptState, match="history.jsonl is not a regular file; restore it"):
        store.history()
    with pytest.raises(BadData if kind == "link" else CorruptState, match="history.jsonl is "):
        store.publish(model(3), info(3), taught(3))
    assert store.version_numbers() == [1, 2]
