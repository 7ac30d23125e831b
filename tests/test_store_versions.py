"""Versions: what was published comes back, the right one is in use, and readers never wait."""

import os
import resource
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from store_helpers import (
    FORGOT,
    all_files,
    assert_tidy,
    fill,
    info,
    model,
    refusing,
    same,
    taught,
    without_cat,
    without_name,
)
from triphase.app.store.rewriting import rewrite
from triphase.app.store.versions import Store
from triphase.errors import (
    BadData,
    CannotWrite,
    CorruptState,
    InvalidValue,
)

pytestmark = pytest.mark.usefixtures("no_fsync")


def test_what_was_published_comes_back_with_what_was_said_about_it(tmp_path: Path) -> None:
    store = Store(tmp_path / "m")
    assert store.current() is None and store.history() == [] and not store.path.exists()
    version = store.publish(model(1, "cat"), {**info(1, "cat"), "classes": ("cat",), "accuracy": None}, taught(1))
    state, found = Store(str(tmp_path / "m")).load()
    assert same(state, model(1, "cat"))
    assert found == version == store.current() and version.info == {**info(1, "cat"), "accuracy": None}
    assert (version.number, version.parent) == (1, None) and version.created.endswith("+00:00")
    assert (
        version.parts["head"].bytes
        == (tmp_path / f"m/parts/{version.parts['head'].sha256}.safetensors").stat().st_size
    )
    assert_tidy(store)


def test_a_first_lesson_that_was_interrupted_is_mentioned(tmp_path: Path) -> None:
    store = Store(tmp_path / "m")
    store.work.mkdir(parents=True)
    with pytest.raises(BadData, match="first lesson is running or was interrupted, and goes on where it began"):
        store.version()


def test_a_version_is_described_without_reading_its_parts(tmp_path: Path) -> None:
    store = fill(tmp_path, 2)
    for part in (store.path / "parts").iterdir():
        part.write_bytes(b"damaged")
    assert [store.version(number).info for number in (1, 2)] == [info(1), info(2)] and store.version().number == 2
    with pytest.raises(InvalidValue, match="has no version 3; those kept: 1, 2"):
        store.version(3)


def test_undo_goes_back_version_by_version_bit_for_bit(tmp_path: Path) -> None:
    store = fill(tmp_path, 4)
    for i in (3, 2, 1):
        assert store.undo().number == i
        state, version = store.load()
        assert same(state, model(i)) and version.number == i
    with pytest.raises(InvalidValue, match="Version 1 of .* is the first: nothing to undo"):
        store.undo()
    assert store.publish(model(9), info(9), taught(9)).parent == 1
    assert store.history()[-2]["undid"] == 2


def test_undo_refuses_a_damaged_parent(tmp_path: Path) -> None:
    store = fill(tmp_path, 2)
    part = store.load(1)[1].parts["head"].sha256
    (tmp_path / f"parts/{part}.safetensors").unlink()
    with pytest.raises(CorruptState, match="missing; restore it"):
        store.undo()
    assert same(store.load()[0], model(2))


def test_pruning_keeps_the_version_in_use_and_the_undo_that_was_asked_for(tmp_path: Path) -> None:
    store = fill(tmp_path, 5)
    store.undo()
    assert store.prune(3) == [1, 5]
    assert store.version_numbers() == [2, 3, 4] and store.prune(3) == []
    assert_tidy(store)
    assert [store.undo().number, store.undo().number] == [3, 2] and same(store.load()[0], model(2))
    with pytest.raises(InvalidValue, match="Version 1 of .*, which came before version 2, is no longer kept"):
        store.undo()
    assert store.publish(model(6), info(6), taught(6)).number == 6  # 5 is gone, but its number is not free
    with pytest.raises(InvalidValue, match="has no version 5; those kept: 2, 3, 4, 6"):
        store.load(5)
    with pytest.raises(InvalidValue, match="at least 1, got 0"):
        store.prune(0)


deeds = st.lists(st.sampled_from(["publish", "publish", "undo", "prune 1", "prune 2", "prune 3"]), max_size=12)


@settings(max_examples=25)
@given(deeds)
def test_any_course_of_events_is_what_it_would_be_in_memory(tmp_path_factory: Any, loop: list[str]) -> None:
    path = tmp_path_factory.getbasetemp() / "loop"
    shutil.rmtree(path, ignore_errors=True)
    store = fill(path, 1)
    parents: dict[int, int | None] = {1: None}
    kept, current, recorded = {1}, 1, [1]
    for deed in loop:
        if deed == "publish":
            number = store.publish(model(len(parents) + 1), info(len(parents) + 1), taught(1)).number
            assert number == max(parents) + 1
            parents[number] = current
            kept, current, recorded = kept | {number}, number, [*recorded, number]
        elif deed == "undo" and parents[current] in kept:
            current = store.undo().number
            recorded.append(current)
        elif deed == "undo":
            with pytest.raises(InvalidValue):
                store.undo()
        else:
            chain: list[int] = []
            at: int | None = current
            while at in kept and len(chain) < int(deed[-1]):
                assert at is not None
                chain.append(at)
                at = parents[at]
            store.prune(int(deed[-1]))
            kept = set(chain)
        assert set(store.version_numbers()) == kept
        assert store.load()[1].number == current and [event["version"] for event in store.history()] == recorded
    for number in kept:
        assert same(store.load(number)[0], model(number))
    assert_tidy(store)


def test_readers_get_a_complete_model_while_a_writer_publishes_undoes_prunes_and_rewrites(tmp_path: Path) -> None:
    store = fill(tmp_path, 1)
    done = threading.Event()
    seen: set[int] = set()
    problems: list[object] = []

    def read() -> None:
        reader = Store(tmp_path)
        while not seen or not done.is_set():
            try:
                state, version = reader.load()
                expected = model(version.number)
                if not all(same(state[name], expected[name]) for name in ("llf", "taught")):
                    problems.append(version)
                if state["app"]["names"] != version.info["classes"]:
                    problems.append(version)
                reader.history()
                seen.add(version.number)
            except BaseException as error:
                problems.append(error)
                return

    readers = [threading.Thread(target=read) for _ in range(2)]
    for thread in readers:
        thread.start()
    try:
        for i in range(2, 32):
            store.publish(model(i), info(i), taught(i))
            if i % 5 == 0:
                store.undo()
            if i % 10 == 0:
                rewrite(store, without_cat, without_name, FORGOT)
            store.prune(1 + i % 3)
    finally:
        done.set()
        for thread in readers:
            thread.join()
    assert problems == [] and seen


@pytest.mark.parametrize("moment", ["read_version", "read_part"])
def test_reader_of_a_version_that_is_just_removed_gets_the_next_one(tmp_path: Path, moment: str) -> None:
    writer, reader = fill(tmp_path, 1), Store(tmp_path)
    real, pending = getattr(reader.directory, moment), [2, 3]

    def interrupted(what: Any, **how: bool) -> Any:
        if pending:
            i = pending.pop(0)
            writer.publish(model(i), info(i), taught(i))
            writer.prune(1)
        return real(what, **how)

    setattr(reader.directory, moment, interrupted)
    state, version = reader.load()
    assert version.number == 3 and same(state, model(3))


def test_copied_model_works_elsewhere(tmp_path: Path) -> None:
    store = fill(tmp_path / "here", 2)
    shutil.copytree(store.path, tmp_path / "Là bas", ignore=shutil.ignore_patterns("LOCK"))
    shutil.rmtree(store.path)
    copy = Store(tmp_path / "Là bas")
    assert same(copy.load()[0], model(2)) and len(copy.history()) == 2
    assert copy.undo().number == 1 and copy.publish(model(3), info(3), taught(3)).number == 3


@pytest.mark.parametrize("name", ["none", "file", "file/inside"])
@pytest.mark.parametrize("deed", ["load", "undo", "prune", "rewrite"])
def test_where_no_model_is_nothing_is_made(tmp_path: Path, name: str, deed: str) -> None:
    (tmp_path / "file").write_text("")
    deeds: dict[str, Callable[[Store], object]] = {
        "load": Store.load,
        "undo": Store.undo,
        "prune": lambda store: store.prune(1),
        "rewrite": lambda store: rewrite(store, without_cat, without_name, FORGOT),
    }
    words = "is a file, and a model is a folder" if name == "file" else "teach one with: triphase teach .* PHOTOS"
    with pytest.raises(BadData, match=words):
        deeds[deed](Store(tmp_path / name))
    assert os.listdir(tmp_path) == ["file"]


@pytest.mark.parametrize("name", ["parts", "versions", "CURRENT"])
def test_refused_write_leaves_the_old_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    store = fill(tmp_path, 2)
    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", refusing(name, os.replace))
        with pytest.raises(CannotWrite, match=f"Cannot write .*{name}.*make room"):
            store.publish(model(3), info(3), taught(3))
    assert same(store.load()[0], model(2)) and len(store.history()) == 2
    number = store.publish(model(3), info(3), taught(3)).number
    assert number >= 3 and same(store.load()[0], model(3)) and store.undo().number == 2
    assert_tidy(store)


def test_a_version_that_never_came_into_use_goes_with_the_next_writer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = fill(tmp_path, 2)
    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", refusing("CURRENT", os.replace))
        with pytest.raises(CannotWrite):
            store.publish(model(3), info(3), taught(3))
    assert store.version_numbers() == [1, 2, 3] and store.version().number == 2
    with store.lock():
        assert store.version_numbers() == [1, 2]
    assert_tidy(store)


def test_versions_that_were_in_use_stay_when_an_older_current_is_brought_back(tmp_path: Path) -> None:
    store = fill(tmp_path, 2)
    old = (tmp_path / "CURRENT").read_bytes()
    for i in (3, 4):
        store.publish(model(i), info(i), taught(i))
    (tmp_path / "CURRENT").write_bytes(old)
    assert store.version().number == 2
    assert store.publish(model(5), info(5), taught(5)).number == 5 and store.version_numbers() == [1, 2, 3, 4, 5]


def test_full_disk_in_the_middle_of_a_part_gives_its_space_back(tmp_path: Path) -> None:
    """A real refusal: the system's limit on the size of a file."""
    store = fill(tmp_path, 1)
    before = all_files(tmp_path)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
    try:
        with pytest.raises(CannotWrite, match="File too large; make room"):
            store.publish({**model(2), "large": torch.zeros(100_000)}, info(2), taught(2))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert all_files(tmp_path) == before and same(store.load()[0], model(1))


def test_state_that_cannot_be_written_changes_nothing(tmp_path: Path) -> None:
    store = fill(tmp_path, 1)
    before = all_files(tmp_path)
    for state, about in (({**model(2), "b": {1, 2}}, info(2)), (model(2), {**info(2), "labels": {1}})):
        with pytest.raises(TypeError, match="not JSON serializable"):
            store.publish(state, about, taught(2))
    with pytest.raises(CorruptState):
        store.publish({**model(2), "a": {1: "one", "1": "another"}}, info(2), taught(2))  # the same key
    with pytest.raises(InvalidValue, match="cannot be published .info.classes: Field required.; nothing"):
        store.publish(model(2), {}, taught(2))
    with pytest.raises(InvalidValue, match="event cannot be recorded .*; nothing was changed"):
        store.publish(model(2), info(2), {"event": "unheard of"})
    assert all_files(tmp_path) == before
