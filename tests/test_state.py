"""State on disk: what was saved comes back bit for bit, or not at all; never something else."""

import errno
import math
import os
import re
import resource
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from state_helpers import assert_same, failing
from triphase import state as files
from triphase.errors import CannotWrite, CorruptState, Mismatch

DTYPES = (
    torch.float64,
    torch.float32,
    torch.float16,
    torch.bfloat16,
    torch.int64,
    torch.int32,
    torch.int16,
    torch.int8,
    torch.uint8,
    torch.bool,
)


def sample() -> dict[str, Any]:
    """One of everything that a state may hold."""
    noise = torch.randn(2, 3, 4, 5, generator=torch.Generator().manual_seed(0))
    tensors: dict[str, Any] = {str(d): (noise * 50).to(d) for d in DTYPES}
    tensors |= {
        "scalar": torch.tensor(3.5),
        "empty": torch.empty(0),
        "empty rows": torch.empty(0, 3, dtype=torch.int8),
        "channels last": noise.contiguous(memory_format=torch.channels_last),
        "transposed": noise.transpose(0, 3),
        "every second": noise[..., ::2],
        "expanded": torch.ones(1).expand(3),
        "special": torch.tensor([math.nan, math.inf, -math.inf, -0.0]),
        "parameter": nn.Parameter(torch.ones(2)),
    }
    numbers = {"inf": math.inf, "nan": math.nan, "third": 1 / 3, "large": 2**62 + 1, "negative": -7}
    others: dict[str, Any] = {"none": None, "true": True, "text": 'Käse "\\" \n🐈', "empty": {}, "nothing": []}
    return {"tensors": tensors, "numbers": numbers, "others": others, "list": [1, [torch.ones(2), {"a": None}]]}


def small() -> dict[str, Any]:
    """A state whose file is short enough to damage it everywhere."""
    return {
        "w": torch.arange(6.0).view(2, 3),
        "i": torch.tensor([1, 2], dtype=torch.int8),
        "none": torch.empty(0, 3),
        "known": [0, 1],
        "best": 0.25,
    }


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("state")


# One file


def test_equal_states_are_equal_files() -> None:
    assert len({files.to_bytes(sample()) for _ in range(20)}) == 1  # safetensors draws an order of its metadata


def test_every_kind_of_value_comes_back(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "er" / "a.safetensors"  # directories are made
    state = sample()
    files.save(path, state)
    assert_same(files.load(path), state)
    assert os.listdir(path.parent) == ["a.safetensors"]


trees = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=5)
    | st.builds(
        lambda shape, dtype: (torch.rand(shape, generator=torch.Generator().manual_seed(0)) * 9).to(dtype),
        st.lists(st.integers(0, 3), max_size=3),
        st.sampled_from(DTYPES),
    ),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab/'0", max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text("ab/'0", max_size=3), trees, max_size=3))
def test_any_state_comes_back(folder: Path, state: dict[str, Any]) -> None:
    """Also where keys contain the separator that tensor names are built with."""
    files.save(folder / "any.safetensors", state)
    assert_same(files.load(folder / "any.safetensors"), state)


def test_tied_and_overlapping_tensors_come_back(tmp_path: Path) -> None:
    w = torch.arange(6.0).view(2, 3)
    state = {"a": w, "b": w, "row": w[0], "rest": w[1], "turned": w.t()}
    files.save(tmp_path / "a.safetensors", state)
    assert_same(files.load(tmp_path / "a.safetensors"), state)


def test_saving_changes_nothing_and_loading_gives_memory_of_its_own(tmp_path: Path) -> None:
    state = {"w": torch.ones(3, requires_grad=True), "n": [1]}
    files.save(tmp_path / "a.safetensors", state)
    loaded = files.load(tmp_path / "a.safetensors")
    loaded["w"].add_(1)
    assert state["w"].tolist() == [1, 1, 1] and not loaded["w"].requires_grad  # type: ignore[attr-defined]
    assert files.load(tmp_path / "a.safetensors")["w"].tolist() == [1, 1, 1]


def test_truncated_file_is_refused_at_every_length(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    files.save(path, small())
    blob = path.read_bytes()
    for length in range(len(blob)):
        path.write_bytes(blob[:length])
        with pytest.raises(CorruptState, match=r"a\.safetensors is damaged .*; restore it, or delete .* to start"):
            files.load(path)
    path.write_bytes(blob + b"x")
    with pytest.raises(CorruptState):
        files.load(path)


def check_damaged(path: Path, blob: bytes, position: int, mask: int) -> bool:
    """Flip some bits of a byte; whether the file was refused. Otherwise its value must be right."""
    damaged = bytearray(blob)
    damaged[position] ^= mask
    path.write_bytes(bytes(damaged))
    try:
        found = files.load(path)
    except (CorruptState, Mismatch):
        return True
    assert_same(found, small())
    return False


def test_no_damage_anywhere_gives_a_wrong_value(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    files.save(path, small())
    blob = path.read_bytes()
    payload = 8 + struct.unpack("<Q", blob[:8])[0]
    accepted = {p for p in range(len(blob)) if not check_damaged(path, blob, p, 1 << (p * 5 % 8))}
    assert not accepted & {*range(8), *range(payload, len(blob))}
    assert len(accepted) <= 1 + blob[:payload].count(b" ")  # the format's number and white space in the header


@given(st.data())
def test_no_flipped_byte_gives_a_wrong_value(folder: Path, data: st.DataObject) -> None:
    original = folder / "whole.safetensors"
    if not original.exists():
        files.save(original, small())
    blob = original.read_bytes()
    for position in data.draw(st.lists(st.integers(0, len(blob) - 1), min_size=10, max_size=10)):
        check_damaged(folder / "flipped.safetensors", blob, position, data.draw(st.integers(1, 255)))


@pytest.mark.parametrize(("old", "new"), [(b'"F32"', b'"I32"'), (b'"I8"', b'"U8"'), (b"[0,3]", b"[0,4]")])
def test_altered_type_or_shape_is_noticed(tmp_path: Path, old: bytes, new: bytes) -> None:
    path = tmp_path / "a.safetensors"
    files.save(path, small())
    blob = path.read_bytes()
    assert old in blob
    path.write_bytes(blob.replace(old, new, 1))
    with pytest.raises(CorruptState, match="checksum"):
        files.load(path)


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(CorruptState, match=r"gone\.safetensors is missing; restore it"):
        files.load(tmp_path / "gone.safetensors")


def test_newer_format_is_refused_with_advice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "FORMAT", files.FORMAT + 1)
    files.save(tmp_path / "a.safetensors", small())
    monkeypatch.undo()
    words = rf"written by a newer triphase \(format {files.FORMAT + 1}, this one reads {files.FORMAT}\); upgrade"
    with pytest.raises(Mismatch, match=words):
        files.load(tmp_path / "a.safetensors")


# Atomic writing


@pytest.mark.parametrize("call", ["fsync", "replace"])
@pytest.mark.parametrize(
    ("number", "remedy"), [(errno.ENOSPC, "No space left .*; make room"), (errno.EACCES, "check the path")]
)
def test_refused_write_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, number: int, remedy: str
) -> None:
    path = tmp_path / "a.safetensors"
    files.save(path, small())
    monkeypatch.setattr(os, call, failing(number))
    with pytest.raises(CannotWrite, match=f"Cannot write .*a.safetensors: .*{remedy}"):
        files.save(path, {"w": torch.zeros(99)})
    assert os.listdir(tmp_path) == ["a.safetensors"]
    assert_same(files.load(path), small())


def test_full_disk_leaves_the_old_file(tmp_path: Path) -> None:
    """A real refusal in the middle of a write: the system's limit on the size of a file."""
    path = tmp_path / "a.safetensors"
    files.save(path, small())
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
    try:
        with pytest.raises(CannotWrite, match="File too large; make room"):
            files.save(path, {"w": torch.zeros(100_000)})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert os.listdir(tmp_path) == ["a.safetensors"]
    assert_same(files.load(path), small())


def test_path_through_a_file_is_refused_with_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CannotWrite, match="Cannot write .*file/a"):
        files.write(tmp_path / "file" / "a", b"x")


def test_json_comes_back_and_damage_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    files.write_json(path, {"a": [1, None, "é"]})
    assert files.read_json(path) == {"a": [1, None, "é"]}
    path.write_bytes(path.read_bytes()[:-4])
    with pytest.raises(CorruptState, match=r"a\.json is damaged"):
        files.read_json(path)


# Files that are none


@pytest.mark.parametrize("kind", ["fifo", "folder", "device"])
@pytest.mark.parametrize("read", [files.load, files.read_json, files.read_file], ids=lambda read: read.__name__)
def test_what_is_not_a_regular_file_is_refused_at_once(
    tmp_path: Path, kind: str, read: Callable[[Path], object]
) -> None:
    path = tmp_path / "a"
    if kind == "device":
        path.symlink_to("/dev/zero")
    else:
        (os.mkfifo if kind == "fifo" else os.mkdir)(path)
    with pytest.raises(CorruptState, match="is not a regular file; restore it"):
        read(path)


def test_links_are_followed_only_where_they_may_be(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x")
    (tmp_path / "b").symlink_to(tmp_path / "a")
    assert files.read_file(tmp_path / "b") == b"x"
    with pytest.raises(CorruptState, match="is not a regular file"):
        files.read_file(tmp_path / "b", follow_links=False)


def test_folders_that_lead_to_a_file_are_made(tmp_path: Path) -> None:
    files.write(tmp_path / "new" / "a", b"x")
    assert (tmp_path / "new" / "a").read_bytes() == b"x"


def test_a_file_is_removed_if_it_is_there(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    files.remove(tmp_path / "a")
    files.remove(tmp_path / "a")
    assert not (tmp_path / "a").exists()
    with pytest.raises(CannotWrite, match="Cannot write"):
        files.remove(tmp_path)


def test_a_state_is_not_a_list(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    blob = files.to_bytes([1, 2])  # type: ignore[arg-type]
    path.write_bytes(blob)
    with pytest.raises(CorruptState, match="it holds no state"):
        files.load(path)


def test_a_caller_with_a_checksum_of_its_own_need_not_compare_another(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    files.save(path, small())
    path.write_bytes(re.sub(rb'"crc":"\d', b'"crc":"0', path.read_bytes()))
    with pytest.raises(CorruptState, match="checksum"):
        files.load(path)
    assert_same(files.load(path, verify=False), small())
