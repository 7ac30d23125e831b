"""Rewriting: what is to be gone is gone from every version and the history."""

from pathlib import Path

import pytest

from store_helpers import (
    FORGOT,
    assert_tidy,
    fill,
    info,
    model,
    same,
    state_without_cat,
    taught,
    traces_of_cat,
    without_cat,
    without_name,
)
from triphase.app.store.rewriting import rewrite
from triphase.errors import CorruptState

pytestmark = pytest.mark.usefixtures("no_fsync")


def test_rewriting_leaves_nothing_of_what_was_there(tmp_path: Path) -> None:
    store = fill(tmp_path, 2)
    store.undo()
    store.publish(model(3), info(3), taught(3))
    (store.work / "deep").mkdir(parents=True)
    (store.work / "deep" / "lesson.json").write_text("cat")
    history = tmp_path / "history.jsonl"
    history.write_bytes(history.read_bytes()[:-9])  # the last event is only in CURRENT
    rewrite(store, without_cat, without_name, FORGOT)
    for i in (1, 2, 3):
        state, version = store.load(i)
        assert same(state, state_without_cat(model(i))) and version.info == info(i, "dog")
    assert not traces_of_cat(store) and not store.work.exists()
    assert [event["event"] for event in store.history()] == ["taught", "taught", "undone", "taught", "forgot"]
    assert store.load()[1].number == 3 and store.undo().number == 1
    assert_tidy(store)


def test_nothing_is_rewritten_beside_a_version_that_is_damaged(tmp_path: Path) -> None:
    store = fill(tmp_path, 3)
    part = store.version(2).parts["head"].sha256
    (tmp_path / "parts" / f"{part}.safetensors").write_bytes(b"rotten")
    before = [store.version(number) for number in (1, 2, 3)]
    with pytest.raises(CorruptState, match="is damaged"):
        rewrite(store, without_cat, without_name, FORGOT)
    assert [store.version(number) for number in (1, 2, 3)] == before
