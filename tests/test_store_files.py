"""The files of a model directory: what is read is what was written, or is refused by name."""

import json
import os
import shutil
from collections.abc import Mapping
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
    same,
    taught,
)
from triphase.app.store.checksums import with_checksum
from triphase.app.store.rewriting import rewrite
from triphase.app.store.versions import Store
from triphase.errors import BadData, CorruptState, TriphaseError
from triphase.state import State

pytestmark = pytest.mark.usefixtures("no_fsync")


def test_a_part_that_stays_the_same_is_stored_once(tmp_path: Path) -> None:
    store = fill(tmp_path, 5)
    assert len(list((tmp_path / "parts").iterdir())) == 8 + 5 * 4  # head, taught, app and scores change
    assert len({store.load(n)[1].parts["llf"].sha256 for n in store.version_numbers()}) == 1
    assert len({store.load(n)[1].parts["head"].sha256 for n in store.version_numbers()}) == 5


@pytest.mark.parametrize(
    "change", [{"x": 1.0}, {"x": True}, {"x": torch.ones(1)}, {"x": [1]}, {"y": 1}, [["x", 1]]]
)
def test_values_that_only_look_alike_are_different_parts(tmp_path: Path, change: Any) -> None:
    store = Store(tmp_path)
    a = store.publish({**model(1), "extra": {"x": 1}}, info(1), taught(1))
    b = store.publish({**model(1), "extra": change}, info(1), taught(2))
    assert a.parts != b.parts
    assert same(store.load(1)[0]["extra"], {"x": 1}) and same(store.load(2)[0]["extra"], change)


def test_folder_of_something_else_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "cat").mkdir()
    with pytest.raises(BadData, match="is not a model, it holds 'cat': give a model or a new folder"):
        Store(tmp_path).publish(model(1), info(1), taught(1))
    assert os.listdir(tmp_path) == ["cat"]
    (tmp_path / "file").write_text("")
    with pytest.raises(BadData, match="is a file, and a model is a folder"):
        Store(tmp_path / "file").publish(model(1), info(1), taught(1))


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


def test_part_that_rotted_is_written_anew_by_the_next_version(tmp_path: Path) -> None:
    store = fill(tmp_path, 1)
    file = tmp_path / f"parts/{store.load()[1].parts['llf'].sha256}.safetensors"
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(CorruptState, match="damaged; restore it from a copy of [^,]*$"):
        store.load()
    store.publish(model(2), info(2), taught(2))
    rotten = tmp_path / f"parts/{store.load()[1].parts['memory'].sha256}.safetensors"
    content = rotten.read_bytes()
    rotten.write_bytes(content[:-1])
    with pytest.raises(CorruptState, match="damaged; restore it from a copy of .*, or go back .*: triphase undo "):
        store.load()
    rotten.write_bytes(content)
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


@pytest.mark.parametrize("name", ["head", "app", "inference_scores"])
def test_a_part_file_of_another_version_is_found_even_if_it_fits(tmp_path: Path, name: str) -> None:
    store = fill(tmp_path, 2)
    one, two = (store.directory._part_file(store.version(n).parts[name].sha256) for n in (1, 2))
    assert one != two and one.stat().st_size == two.stat().st_size
    shutil.copy(one, two)
    with pytest.raises(CorruptState, match=f"{two.name} is damaged"):
        store.load(parts=(name,))
    assert same(store.load(1)[0], model(1))


def test_a_version_file_of_another_version_is_found(tmp_path: Path) -> None:
    store = fill(tmp_path, 2)
    shutil.copy(tmp_path / "versions" / "000001.json", tmp_path / "versions" / "000002.json")
    with pytest.raises(CorruptState, match="000002.json is damaged .it is version 1"):
        store.load()


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


@settings(max_examples=60)
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
            rewrite(store, lambda state, v: (state, {**v.info, "accuracy": 1.0}), lambda event: event, FORGOT)
            assert all(same(store.load(i)[0], published[i]) for i in store.version_numbers())
    except TriphaseError:
        pass
    assert_right_or_refused(store, in_use, published)


@pytest.mark.parametrize("name", ["CURRENT", "versions/000003.json", "versions/000002.json"])
def test_no_flipped_bit_makes_another_model_of_it(originals: Path, tmp_path: Path, name: str) -> None:
    store = Store(shutil.copytree(originals / "model", tmp_path / "m"))
    file = store.path / name
    blob = file.read_bytes()
    published = {i: model(i) for i in (2, 3)}
    refused = 0
    positions = range(0, len(blob), 11)  # 11 and 8 have no divisor in common: every bit of a byte is hit
    for position in positions:
        damaged = bytearray(blob)
        damaged[position] ^= 1 << position % 8
        file.write_bytes(damaged)
        refused += assert_right_or_refused(store, 3, published)
    assert refused > len(positions) * 0.7  # the rest is white space
