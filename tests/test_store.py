"""The model directory: at any instant a complete model, the right one, or an error; never another.

Run as a script, this file dies at every write of every operation (see `die_everywhere`).
"""

import errno
import json
import os
import re
import resource
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from triphase.app.store.checksums import FORMAT, with_checksum
from triphase.app.store.files import Event, Info
from triphase.app.store.versions import Store
from triphase.errors import BadData, Busy, CannotWrite, CorruptState, InvalidValue, Mismatch, TriphaseError
from triphase.randomness import generator
from triphase.state import State

PIXELS = b"the pixels of a cat"


@pytest.fixture(scope="module", autouse=True)
def _no_waiting_for_the_disk() -> Iterator[None]:
    """What fsync is for shows only where the power fails; the order of the calls is checked by dying at each."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        yield


def model(i: int) -> State:
    """The i-th model: one part that never changes, one that always does, one with a cat in it."""
    pixels = torch.frombuffer(bytearray(PIXELS), dtype=torch.uint8)
    return {
        "llf": {"w": torch.randn(3, 4, generator=generator(0, "test")), "frozen": True},
        "head": {"w": torch.randn(2, 3, generator=generator(i, "test")), "steps": [i, None, 0.1 * i]},
        "memory": {"x": torch.stack([pixels, pixels.flip(0)]), "y": [0, 1], "names": ["cat", "dog"]},
    }


def info(i: int) -> Info:
    return {"classes": ["cat", "dog"], "lesson": i}


def taught(i: int) -> Event:
    return {"event": "taught", "lesson": i, "accuracy": {"cat": 0.9}}


def fill(path: Path, n: int) -> Store:
    """A store with versions 1 to n."""
    store = Store(path)
    for i in range(1, n + 1):
        store.publish(model(i), info(i), taught(i))
    return store


def same(found: Any, expected: Any) -> bool:
    """Equal in structure, type and every bit."""
    if isinstance(expected, Tensor):
        return isinstance(found, Tensor) and found.dtype == expected.dtype and torch.equal(found, expected)
    if isinstance(expected, Mapping):
        return list(found) == list(expected) and all(same(found[key], expected[key]) for key in expected)
    if isinstance(expected, list):
        return len(found) == len(expected) and all(map(same, found, expected))
    return type(found) is type(expected) and bool(found == expected)


def all_files(path: Path) -> list[Path]:
    return sorted(file for file in path.rglob("*") if file.is_file())


def assert_tidy(store: Store) -> None:
    """Only what the contract allows, and no part that no version needs."""
    allowed = re.compile(r"CURRENT|LOCK|history\.jsonl|versions/\d+\.json|parts/[0-9a-f]{64}\.safetensors")
    names = [file.relative_to(store.path).as_posix() for file in all_files(store.path)]
    assert all(allowed.fullmatch(name) or name.startswith("work/") for name in names), names
    needed = {p.sha256 for n in store.version_numbers() for p in store.load(n)[1].parts.values()}
    assert {file.stem for file in (store.path / "parts").iterdir()} == needed


# Versions


def test_what_was_published_comes_back_with_what_was_said_about_it(tmp_path: Path) -> None:
    store = Store(tmp_path / "m")
    assert store.current() is None and not store.exists and store.history() == [] and not store.path.exists()
    version = store.publish(model(1), {"classes": ("cat",), "best": None}, taught(1))
    state, found = Store(str(tmp_path / "m")).load()
    assert same(state, model(1)) and store.exists
    assert found == version == store.current() and version.info == {"classes": ["cat"], "best": None}
    assert (version.number, version.parent) == (1, None) and version.created.endswith("+00:00")
    assert (
        version.parts["head"].bytes
        == (tmp_path / f"m/parts/{version.parts['head'].sha256}.safetensors").stat().st_size
    )
    assert_tidy(store)


def test_a_version_is_told_without_reading_its_parts(tmp_path: Path) -> None:
    store = fill(tmp_path, 2)
    for part in (store.path / "parts").iterdir():
        part.write_bytes(b"damaged")
    assert [store.version(number).info for number in (1, 2)] == [info(1), info(2)] and store.version().number == 2
    with pytest.raises(InvalidValue, match="has no version 3; those kept: 1, 2"):
        store.version(3)


def test_a_part_that_stays_the_same_is_stored_once(tmp_path: Path) -> None:
    store = fill(tmp_path, 5)
    assert len(list((tmp_path / "parts").iterdir())) == 5 + 2
    assert len({store.load(n)[1].parts["llf"].sha256 for n in store.version_numbers()}) == 1
    assert len({store.load(n)[1].parts["head"].sha256 for n in store.version_numbers()}) == 5


@pytest.mark.parametrize(
    "change", [{"x": 1.0}, {"x": True}, {"x": torch.ones(1)}, {"x": [1]}, {"y": 1}, [["x", 1]]]
)
def test_values_that_only_look_alike_are_different_parts(tmp_path: Path, change: Any) -> None:
    store = Store(tmp_path)
    a = store.publish({"a": {"x": 1}}, {}, {})
    b = store.publish({"a": change}, {}, {})
    assert a.parts != b.parts and same(store.load(1)[0], {"a": {"x": 1}}) and same(store.load(2)[0], {"a": change})


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
    assert store.publish(model(6), {}, {}).number == 6  # 5 is gone, but its number is not free
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
    kept, current, told = {1}, 1, [1]
    for deed in loop:
        if deed == "publish":
            number = store.publish(model(len(parents) + 1), {}, {}).number
            assert number == max(parents) + 1
            parents[number] = current
            kept, current, told = kept | {number}, number, [*told, number]
        elif deed == "undo" and parents[current] in kept:
            current = store.undo().number
            told.append(current)
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
        assert store.load()[1].number == current and [event["version"] for event in store.history()] == told
    for number in kept:
        assert same(store.load(number)[0], model(number))
    assert_tidy(store)


# Rewriting


def without_cat(state: State, known: Info) -> tuple[State, Info]:
    if "cat" not in known["classes"]:
        return state, known
    memory = {"x": state["memory"]["x"][1:] * 0, "y": [1], "names": ["dog"]}
    return {**state, "memory": memory}, {**known, "classes": ["dog"]}


def without_name(event: Event) -> Event:
    return {**event, "accuracy": {}} if "accuracy" in event else event


def traces_of_cat(store: Store) -> list[Path]:
    """The files in which there is still a name or an image of one."""
    words = (b"cat", PIXELS, PIXELS[::-1])
    found = [file for file in all_files(store.path) if file.name != "LOCK"]
    return [file for file in found if any(word in file.read_bytes() for word in words)]


FORGOT = {"event": "forgot"}


def test_rewriting_leaves_nothing_of_what_was_there(tmp_path: Path) -> None:
    store = fill(tmp_path, 2)
    store.undo()
    store.publish(model(3), info(3), taught(3))
    (store.work / "deep").mkdir(parents=True)
    (store.work / "deep" / "lesson.json").write_text("cat")
    history = tmp_path / "history.jsonl"
    history.write_bytes(history.read_bytes()[:-9])  # the last event is only in CURRENT
    store.rewrite(without_cat, without_name, FORGOT)
    for i in (1, 2, 3):
        state, version = store.load(i)
        assert same(state, without_cat(model(i), info(i))[0]) and version.info == {"classes": ["dog"], "lesson": i}
    assert not traces_of_cat(store) and not store.work.exists()
    assert [event["event"] for event in store.history()] == ["taught", "taught", "undone", "taught", "forgot"]
    assert store.load()[1].number == 3 and store.undo().number == 1
    assert_tidy(store)


# History


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
    store.publish(model(3), {}, taught(3))
    assert store.history()[:2] == expected and [event["lesson"] for event in store.history()] == [1, 2, 3]


def test_full_disk_at_the_last_step_does_not_lose_the_event(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = fill(tmp_path, 1)
    with monkeypatch.context() as patch:
        patch.setattr("builtins.open", refusing("history.jsonl", open))
        store.publish(model(2), {}, taught(2))  # CURRENT has moved: this is no failure
        assert [event["lesson"] for event in store.history()] == [1, 2]
        with pytest.raises(CannotWrite, match=r"history\.jsonl.*make room"):
            store.publish(model(3), {}, taught(3))
    store.publish(model(3), {}, taught(3))
    assert [event["lesson"] for event in store.history()] == [1, 2, 3]


# One writer, any number of readers


def test_second_writer_is_told_who_is_at_work(tmp_path: Path) -> None:
    store, other = fill(tmp_path, 1), Store(tmp_path)
    with store.lock():
        store.publish(model(2), {}, {})  # whoever has the lock is not kept out by it
        for deed in (
            lambda: other.publish(model(3), {}, {}),
            other.undo,
            lambda: other.prune(1),
            other.discard_work,
        ):
            with pytest.raises(Busy, match=f"Process {os.getpid()} on .* is at work in .*; wait until it is done"):
                deed()
        (tmp_path / "LOCK").write_bytes(b"\xff\x00")
        with pytest.raises(Busy, match="Another process is at work"):
            other.undo()
        assert same(other.load()[0], model(2))
    assert other.undo().number == 1


def test_lock_is_not_shared_between_threads(tmp_path: Path) -> None:
    store = fill(tmp_path, 1)
    refused = []

    def publish() -> None:
        try:
            store.publish(model(2), {}, {})
        except Busy as error:
            refused.append(error)

    with store.lock():
        thread = threading.Thread(target=publish)
        thread.start()
        thread.join()
    assert len(refused) == 1 and store.version_numbers() == [1]


def test_lock_is_free_after_an_error(tmp_path: Path) -> None:
    store = fill(tmp_path, 1)
    with pytest.raises(ZeroDivisionError), store.lock():
        raise ZeroDivisionError
    with Store(tmp_path).lock():
        pass


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
                if not all(same(state[name], expected[name]) for name in ("llf", "head")):
                    problems.append(version)
                if (len(state["memory"]["y"]) == 2) != ("cat" in version.info["classes"]):
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
        for i in range(2, 52):
            store.publish(model(i), info(i), taught(i))
            if i % 5 == 0:
                store.undo()
            if i % 10 == 0:
                store.rewrite(without_cat, without_name, FORGOT)
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

    def interrupted(what: Any) -> Any:
        if pending:
            i = pending.pop(0)
            writer.publish(model(i), info(i), taught(i))
            writer.prune(1)
        return real(what)

    setattr(reader.directory, moment, interrupted)
    state, version = reader.load()
    assert version.number == 3 and same(state, model(3))


def test_nothing_is_rewritten_beside_a_version_that_is_damaged(tmp_path: Path) -> None:
    store = fill(tmp_path, 3)
    (part,) = {p.sha256 for p in store.version(2).parts.values()} - {
        p.sha256 for number in (1, 3) for p in store.version(number).parts.values()
    }
    (tmp_path / "parts" / f"{part}.safetensors").write_bytes(b"rotten")
    before = [store.version(number) for number in (1, 2, 3)]
    with pytest.raises(CorruptState, match="is damaged"):
        store.rewrite(without_cat, without_name, FORGOT)
    assert [store.version(number) for number in (1, 2, 3)] == before


# Places


def test_copied_model_works_elsewhere(tmp_path: Path) -> None:
    store = fill(tmp_path / "here", 2)
    shutil.copytree(store.path, tmp_path / "Là bas", ignore=shutil.ignore_patterns("LOCK"))
    shutil.rmtree(store.path)
    copy = Store(tmp_path / "Là bas")
    assert same(copy.load()[0], model(2)) and len(copy.history()) == 2
    assert copy.undo().number == 1 and copy.publish(model(3), {}, {}).number == 3


def test_folder_of_something_else_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "cat").mkdir()
    with pytest.raises(BadData, match="is not a model, it holds 'cat': give a model or a new folder"):
        Store(tmp_path).publish(model(1), {}, {})
    assert os.listdir(tmp_path) == ["cat"]
    (tmp_path / "file").write_text("")
    with pytest.raises(BadData, match="is a file, and a model is a folder"):
        Store(tmp_path / "file").publish(model(1), {}, {})


@pytest.mark.parametrize("name", ["none", "file", "file/inside"])
@pytest.mark.parametrize("deed", ["load", "undo", "prune", "rewrite"])
def test_where_no_model_is_nothing_is_made(tmp_path: Path, name: str, deed: str) -> None:
    (tmp_path / "file").write_text("")
    arguments: dict[str, list[Any]] = {"prune": [1], "rewrite": [without_cat, without_name, FORGOT]}
    with pytest.raises(BadData, match="There is no model in .*; teach it something first"):
        getattr(Store(tmp_path / name), deed)(*arguments.get(deed, []))
    assert os.listdir(tmp_path) == ["file"]


def test_links_are_not_followed(tmp_path: Path) -> None:
    store = fill(tmp_path / "m", 2)
    outside = tmp_path / "outside.safetensors"
    outside.write_text("precious")
    (store.path / "parts" / f"{'0' * 64}.safetensors").symlink_to(outside)
    store.work.mkdir()
    (store.work / "link").symlink_to(tmp_path)
    store.prune(1)
    store.discard_work()
    assert outside.read_text() == "precious"
    assert_tidy(store)
    for name in ("parts", "work", "LOCK"):
        place, moved = store.path / name, tmp_path / f"moved {name}"
        place.rename(moved) if place.exists() else moved.mkdir()
        place.symlink_to(moved)
        with pytest.raises(BadData, match=f"{name} is a symbolic link"):
            store.discard_work()
        place.unlink()
        moved.rename(place)
    assert same(store.load()[0], model(2))


# Refusals of the disk


def refusing(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
    """A function that finds the disk full wherever a path contains `name`, except for reading."""

    def call(*args: Any, **kwargs: Any) -> Any:
        if any(name in str(arg) for arg in args) and "rb" not in args:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(*args, **kwargs)

    return call


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


def test_number_of_a_version_that_never_came_into_use_is_not_given_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = fill(tmp_path, 2)
    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", refusing("CURRENT", os.replace))
        with pytest.raises(CannotWrite):
            store.publish(model(3), info(3), taught(3))
    assert store.prune(1) == [1, 3] and store.publish(model(3), info(3), taught(3)).number == 4


def test_full_disk_in_the_middle_of_a_part_gives_its_space_back(tmp_path: Path) -> None:
    """A real refusal: the system's limit on the size of a file."""
    store = fill(tmp_path, 1)
    before = all_files(tmp_path)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
    try:
        with pytest.raises(CannotWrite, match="File too large; make room"):
            store.publish({"small": torch.zeros(9), "large": torch.zeros(100_000)}, {}, {})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert all_files(tmp_path) == before and same(store.load()[0], model(1))


def test_state_that_cannot_be_written_changes_nothing(tmp_path: Path) -> None:
    store = fill(tmp_path, 1)
    before = all_files(tmp_path)
    for state, about in (({"a": torch.ones(1), "b": {1, 2}}, {}), (model(2), {"a": {1}})):
        with pytest.raises(TypeError, match="not JSON serializable"):
            store.publish(state, about, {})
    with pytest.raises(CorruptState):
        store.publish({"a": {1: "one", "1": "another"}}, {}, {})  # keys are text there: this cannot come back
    assert all_files(tmp_path) == before


# Damage


@pytest.mark.parametrize("name", ["CURRENT", "versions/*.json", "parts/*.safetensors"])
def test_newer_format_asks_for_an_upgrade(tmp_path: Path, name: str) -> None:
    store = fill(tmp_path, 1)
    for file in tmp_path.glob(name):
        blob = file.read_bytes()
        newer = re.sub(rb'("format":\s?"?)\d', rb"\g<1>9", blob)
        assert newer != blob
        file.write_bytes(newer)
    with pytest.raises(Mismatch, match=r"newer triphase \(format 9, this one reads \d\); upgrade"):
        store.load()


def test_older_format_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = fill(tmp_path, 1)
    monkeypatch.setattr("triphase.app.store.checksums.FORMAT", FORMAT + 1)
    with pytest.raises(Mismatch, match=rf"older triphase \(format {FORMAT}, .*teach a new model"):
        store.load()


def test_part_that_rotted_is_written_anew_by_the_next_version(tmp_path: Path) -> None:
    store = fill(tmp_path, 1)
    file = tmp_path / f"parts/{store.load()[1].parts['llf'].sha256}.safetensors"
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(CorruptState, match="damaged; restore it from a copy of .*, or go back .* `triphase undo`"):
        store.load()
    store.publish(model(2), {}, {})
    assert same(store.load()[0], model(2)) and same(store.load(1)[0], model(1))


@pytest.mark.parametrize("lost", ["CURRENT", "versions/000002.json"])
def test_lost_file_can_be_brought_back_even_after_somebody_tried_to_write(tmp_path: Path, lost: str) -> None:
    store = fill(tmp_path, 2)
    blob = (tmp_path / lost).read_bytes()
    (tmp_path / lost).unlink()
    for deed in (store.load, store.undo, lambda: store.prune(1)):
        with pytest.raises(CorruptState, match=f"{lost} is missing; restore it from a copy of"):
            deed()
    with store.lock():
        pass
    (tmp_path / lost).write_bytes(blob)
    assert same(store.load()[0], model(2)) and same(store.load(1)[0], model(1))


def test_version_cannot_point_out_of_the_directory(tmp_path: Path) -> None:
    """Even one whose checksum is right."""
    store = fill(tmp_path / "m", 1)
    file = store.path / "versions/000001.json"
    document = json.loads(file.read_bytes())
    del document["checksum"]
    document["parts"]["llf"]["sha256"] = "../../outside"
    file.write_bytes(with_checksum(document))
    with pytest.raises(CorruptState, match=r"000001\.json is damaged"):
        store.load()


@pytest.fixture(scope="module")
def originals(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with versions 1 to 4, the last one undone, and a stranger of the same shape."""
    folder = tmp_path_factory.mktemp("originals")
    fill(folder / "model", 4).undo()
    stranger = Store(folder / "stranger")
    for i in range(11, 15):
        stranger.publish(model(i), info(i), taught(i))
    stranger.undo()
    return folder


def assert_right_or_refused(store: Store, in_use: int, published: Mapping[int, State]) -> bool:
    """Each version loads as it was published, or not at all; whether any did not."""
    refused = False
    for number in (None, *published):
        try:
            state, version = store.load(number)
        except TriphaseError:
            refused = True
            continue
        assert version.number == (number or in_use) and same(state, published[version.number])
    return refused


@pytest.mark.parametrize("name", ["CURRENT", "versions/000003.json", "versions/000002.json"])
def test_no_flipped_bit_makes_another_model_of_it(originals: Path, tmp_path: Path, name: str) -> None:
    store = Store(shutil.copytree(originals / "model", tmp_path / "m"))
    file = store.path / name
    blob = file.read_bytes()
    published = {i: model(i) for i in (2, 3)}
    refused = 0
    for position in range(len(blob)):
        damaged = bytearray(blob)
        damaged[position] ^= 1 << position % 8
        file.write_bytes(damaged)
        refused += assert_right_or_refused(store, 3, published)
    assert refused > len(blob) * 0.7  # the rest is white space


@st.composite
def damage(draw: st.DrawFn) -> tuple[str, int, float, int]:
    kinds = ["truncate", "flip", "remove", "swap", "swap", "foreign", "append", "folder"]
    return (
        draw(st.sampled_from(kinds)),
        draw(st.integers(0, 99)),
        draw(st.floats(0, 1, exclude_max=True)),
        draw(st.integers(0, 99)),
    )


def do_damage(path: Path, stranger: Path, kind: str, which: int, where: float, other: int) -> None:
    found, strange = all_files(path), all_files(stranger)
    file = found[which % len(found)]
    blob = bytearray(file.read_bytes())
    if kind == "truncate":
        file.write_bytes(blob[: int(where * len(blob))])
    elif kind == "flip" and blob:
        blob[int(where * len(blob))] ^= 1 << other % 8
        file.write_bytes(blob)
    elif kind == "remove":
        file.unlink()
    elif kind == "swap":
        second = found[other % len(found)]
        file.write_bytes(second.read_bytes())
        second.write_bytes(blob)
    elif kind == "foreign":
        file.write_bytes(strange[which % len(strange)].read_bytes())
    elif kind == "append":
        file.write_bytes(blob + b"}" * (1 + other % 3))
    elif kind == "folder":
        file.unlink()
        file.mkdir()


@settings(max_examples=120)
@given(st.lists(damage(), min_size=1, max_size=3), st.sampled_from(["publish", "undo", "prune", "rewrite"]))
def test_damaged_model_is_right_or_refused(
    originals: Path, damages: list[tuple[str, int, float, int]], deed: str
) -> None:
    path = originals / "damaged"
    shutil.rmtree(path, ignore_errors=True)
    store = Store(shutil.copytree(originals / "model", path))
    for one in damages:
        do_damage(path, originals / "stranger", *one)
    published = {i: model(i) for i in (1, 2, 3, 4)}
    assert_right_or_refused(store, 3, published)
    in_use = 3
    try:
        store.history()
        if deed == "publish":
            in_use = store.publish(model(9), info(9), taught(9)).number
            published[in_use] = model(9)
            assert in_use == 1 or in_use > 4  # 1 if the damage left no trace of a model
            assert same(store.load()[0], model(9))
        elif deed == "undo":
            in_use = store.undo().number
            assert in_use == 2 and same(store.load()[0], model(2))
        elif deed == "prune":
            store.prune(2)
        else:
            store.rewrite(lambda state, known: (state, {**known, "more": 1}), lambda event: event, FORGOT)
            assert all(same(store.load(i)[0], published[i]) for i in store.version_numbers())
    except TriphaseError:
        pass
    assert_right_or_refused(store, in_use, published)


# Death

DEEDS: dict[str, Callable[[Store], Any]] = {
    "first": lambda store: store.publish(model(1), info(1), taught(1)),
    "publish": lambda store: store.publish(model(5), info(5), taught(5)),
    "undo": lambda store: store.undo(),
    "prune": lambda store: store.prune(2),
    "rewrite": lambda store: store.rewrite(without_cat, without_name, FORGOT),
}


def die_at(n: int) -> None:
    """End this process at the n-th call that touches the disk; the end of what it was writing is lost."""
    calls = 0
    for name in ("fsync", "replace", "unlink", "rmdir"):
        real = getattr(os, name)

        def counted(*args: Any, name: str = name, real: Callable[..., Any] = real, **kwargs: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == n:
                if name == "fsync" and os.readlink(f"/proc/self/fd/{args[0]}").endswith((".tmp", ".jsonl")):
                    os.truncate(f"/proc/self/fd/{args[0]}", os.fstat(args[0]).st_size - 7)
                os._exit(9)
            return real(*args, **kwargs)

        setattr(os, name, counted)


def prepared(path: Path, deed: str) -> Store:
    """Versions 1 to 4, the last one undone, with a lesson under way; nothing at all before the first one."""
    if deed == "first":
        return Store(path)
    store = fill(path, 4)
    store.undo()
    store.work.mkdir()
    (store.work / "lesson.json").write_text("{}")
    return store


def die_everywhere(folder: Path) -> None:
    """Do each deed again and again, and die a little later each time, until it is done."""
    for deed, do in DEEDS.items():
        prepared(folder / deed / "before", deed)
        status, n = -1, 0
        while status != 0:
            n += 1
            path = folder / deed / str(n)
            if deed != "first":
                shutil.copytree(folder / deed / "before", path)
            child = os.fork()
            if child == 0:
                die_at(n)
                do(Store(path))
                os._exit(0)
            status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            assert status in (0, 9)


@pytest.fixture(scope="module")
def graves(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("graves")
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    subprocess.run([sys.executable, __file__, str(folder)], check=True, env=environment)
    return folder


@pytest.mark.parametrize("deed", DEEDS)
def test_killed_at_any_write_the_old_model_or_the_new_one_is_there(graves: Path, deed: str) -> None:
    outcomes = set()
    places = sorted((p for p in (graves / deed).iterdir() if p.name != "before"), key=lambda p: int(p.name))
    for path in places:
        store = Store(path)
        version = store.current()
        old = version is None if deed == "first" else version is not None and version.number == 3
        if version is not None:
            state = store.load()[0]
            if deed == "rewrite":
                old = version.info["classes"] == ["cat", "dog"]
                expected = model(3) if old else without_cat(model(3), info(3))[0]
            else:
                expected = model(version.info["lesson"])
            assert same(state, expected)
        outcomes.add(old)
        for number in store.version_numbers():
            state, kept = store.load(number)
            new = deed == "rewrite" and kept.info["classes"] == ["dog"]
            lesson = kept.info["lesson"]
            assert same(state, without_cat(model(lesson), info(lesson))[0] if new else model(lesson))
        events = store.history()
        assert [event["version"] for event in events][:5] == [1, 2, 3, 4, 3][: len(events)]
        assert not events or version is not None and events[-1]["version"] == version.number
        if deed == "rewrite" and not old:  # only removing remains, and any writer does that
            with store.lock():
                assert not traces_of_cat(store)
        assert_good_end(store, deed)
    assert len(places) > 3
    assert outcomes == ({True} if deed == "prune" else {True, False})


def assert_good_end(store: Store, deed: str) -> None:
    """The same deed again finishes the work, and nothing of the dead writer is left."""
    numbers, before = store.version_numbers(), store.current()
    DEEDS[deed](store)
    state, version = store.load()
    assert_tidy(store)
    if deed in ("first", "publish"):
        assert version.number > max([4 * (deed == "publish"), *numbers]) and same(
            state, model(version.info["lesson"])
        )
        assert version.parent == (before.number if before else None)
        assert store.history()[-1]["version"] == version.number
    elif deed == "undo":
        assert before is not None and version.number == before.number - 1
    elif deed == "prune":
        assert store.version_numbers() == [2, 3] and store.publish(model(6), info(6), taught(6)).number == 5
    else:
        assert store.version_numbers() == [1, 2, 3, 4] and not store.work.exists()
        assert not traces_of_cat(store)
        assert store.history()[-1]["event"] == "forgot"


if __name__ == "__main__":
    with pytest.MonkeyPatch.context() as no_waiting:
        no_waiting.setattr(os, "fsync", lambda descriptor: None)
        die_everywhere(Path(sys.argv[1]))
