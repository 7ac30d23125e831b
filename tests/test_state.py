"""State on disk: what was saved comes back bit for bit, or not at all; never something else."""

import copy
import errno
import json
import math
import os
import resource
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F

from triphase import state as files
from triphase.errors import Busy, CannotWrite, CorruptState, Mismatch
from triphase.state import Checkpoint, locked

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


def assert_same(found: Any, expected: Any) -> None:
    """Equal in structure, type, shape and every bit; tuples come back as lists."""
    if isinstance(expected, Tensor):
        assert isinstance(found, Tensor) and found.dtype == expected.dtype and found.shape == expected.shape
        bits = [t.detach().contiguous().reshape(-1).view(torch.uint8) for t in (found, expected)]
        assert torch.equal(*bits)
    elif isinstance(expected, dict):
        assert found.keys() == {str(key) for key in expected}
        for key, value in expected.items():
            assert_same(found[str(key)], value)
    elif isinstance(expected, list | tuple):
        assert isinstance(found, list) and len(found) == len(expected)
        for a, b in zip(found, expected, strict=True):
            assert_same(a, b)
    elif isinstance(expected, float) and math.isnan(expected):
        assert math.isnan(found)
    else:
        assert found == expected and type(found) is type(expected)


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
    Checkpoint(tmp_path / "c").save(small())
    monkeypatch.undo()
    words = rf"written by a newer triphase \(format {files.FORMAT + 1}, this one reads {files.FORMAT}\); upgrade"
    with pytest.raises(Mismatch, match=words):
        files.load(tmp_path / "a.safetensors")
    with pytest.raises(Mismatch, match=words):
        Checkpoint(tmp_path / "c").load()


# Atomic writing


def failing(number: int) -> Callable[..., None]:
    def fail(*args: object, **kwargs: object) -> None:
        raise OSError(number, os.strerror(number))

    return fail


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


# Checkpoint


class Training:
    """A real loop: BatchNorm, torch's SGD with momentum, a frozen block and a position."""

    def __init__(self) -> None:
        draw = torch.Generator().manual_seed(0)
        self.llf = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4)).requires_grad_(False).eval()
        self.csf = nn.Sequential(nn.Conv2d(4, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten())
        self.csf[0].to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.head = nn.Linear(16, 3, bias=False)
        with torch.no_grad():
            for p in [*self.llf.parameters(), *self.csf.parameters(), *self.head.parameters()]:
                p.copy_(torch.randn(p.shape, generator=draw) * 0.3)
        self.x = torch.randn(8, 1, 6, 6, generator=draw)
        self.y = torch.arange(8) % 3
        parameters = [*self.csf.parameters(), *self.head.parameters()]
        self.optimizer = torch.optim.SGD(parameters, lr=0.1, momentum=0.9, foreach=True)
        self.step = 0

    def go(self) -> None:
        self.optimizer.zero_grad(set_to_none=True)
        loss = F.cross_entropy(self.head(self.csf(self.llf(self.x))), self.y)
        loss.backward()
        self.optimizer.step()
        self.step += 1

    def state(self) -> dict[str, Any]:
        momentum = [s["momentum_buffer"] for s in self.optimizer.state.values()]
        blocks = {name: dict(getattr(self, name).state_dict()) for name in ("llf", "csf", "head")}
        return {**blocks, "momentum": momentum, "loop": {"step": self.step}}


@pytest.mark.parametrize("wait", [True, False])
def test_training_saved_at_every_step_is_always_the_live_state(tmp_path: Path, wait: bool) -> None:
    training, checkpoint = Training(), Checkpoint(tmp_path / "c")
    for _ in range(6):
        training.go()
        assert checkpoint.save(training.state(), wait=wait)
        live = copy.deepcopy(training.state())
        training.go()  # a snapshot must not see what comes after it
        checkpoint.close()
        assert_same(Checkpoint(tmp_path / "c").load(), live)


def test_only_changed_parts_are_written_again(tmp_path: Path) -> None:
    training, checkpoint = Training(), Checkpoint(tmp_path)
    training.go()

    def written() -> set[str]:
        before = {f.name: f.stat().st_mtime_ns for f in tmp_path.iterdir()}
        checkpoint.save(training.state())
        after = {f.name: f.stat().st_mtime_ns for f in tmp_path.iterdir()}
        assert len(after) == 6  # five parts and the index; no old ones are left
        return {name.split("-")[0] for name, time in after.items() if before.get(name) != time} - {"index.json"}

    assert written() == {"llf", "csf", "head", "momentum", "loop"}
    assert written() == set()
    training.go()
    assert written() == {"csf", "head", "momentum", "loop"}
    training.csf.eval()
    training.optimizer.param_groups[0]["params"] = list(training.head.parameters())
    training.go()
    assert written() >= {"head", "loop"}
    training.step += 1
    assert written() == {"loop"}
    with torch.no_grad():
        training.llf(training.x)
        training.llf.train()(training.x)  # running statistics alone
    assert written() == {"llf"}
    assert_same(Checkpoint(tmp_path).load(), training.state())


@pytest.mark.parametrize(
    "change",
    [
        lambda w: w.add_(1),
        lambda w: w[1].zero_(),
        lambda w: torch._foreach_mul_([w], 2.0),
        lambda w: w.clone(),
        lambda w: w.t(),
        lambda w: w.view(torch.int32),
        lambda w: w.view(4),
        lambda w: w[:1],
        lambda w: None,
    ],
)
def test_every_way_to_change_a_tensor_is_noticed(tmp_path: Path, change: Callable[[Tensor], Any]) -> None:
    checkpoint, w = Checkpoint(tmp_path), torch.arange(4.0).view(2, 2)
    checkpoint.save({"w": w})
    changed = change(w)
    state = {"w": changed if isinstance(changed, Tensor) else w, "other": 1}
    checkpoint.save(state)
    assert_same(Checkpoint(tmp_path).load(), state)


def test_memory_that_was_freed_and_used_again_is_not_taken_for_the_old_tensor(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path)
    for value in range(20):
        w = torch.full((1000,), float(value))  # each at version 0, likely where the last one was
        checkpoint.save({"w": w})
        assert_same(Checkpoint(tmp_path).load(), {"w": w})
        del w


def test_part_that_is_gone_is_removed(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path)
    checkpoint.save({"a": torch.ones(1), "teacher": torch.ones(2)})
    checkpoint.save({"a": torch.ones(1)})
    assert_same(Checkpoint(tmp_path).load(), {"a": torch.ones(1)})
    assert len(os.listdir(tmp_path)) == 2
    checkpoint.save({"a": torch.ones(1), "teacher": torch.ones(2)})
    assert_same(Checkpoint(tmp_path).load(), {"a": torch.ones(1), "teacher": torch.ones(2)})


def test_nothing_saved_is_none(tmp_path: Path) -> None:
    assert Checkpoint(tmp_path / "never").load() is None


def test_checkpoint_goes_on_after_loading(tmp_path: Path) -> None:
    training = Training()
    Checkpoint(tmp_path).save(training.state())
    for _ in range(3):
        checkpoint = Checkpoint(tmp_path)
        checkpoint.load()
        training.go()
        checkpoint.save(training.state())
        training.go()
        checkpoint.save(training.state())
        assert_same(Checkpoint(tmp_path).load(), training.state())
        assert len(os.listdir(tmp_path)) == 6


class Killed(BaseException):
    """Stands for kill -9: nothing catches it, nothing is cleaned up."""


def kill_at(monkeypatch: pytest.MonkeyPatch, n: int) -> Iterator[int]:
    """Die at the n-th of the calls that touch the disk."""
    calls = 0
    for owner, name in ((os, "fsync"), (os, "replace"), (Path, "unlink")):
        real = getattr(owner, name)

        def counted(*args: Any, real: Callable[..., Any] = real, **kwargs: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == n:
                raise Killed
            return real(*args, **kwargs)

        monkeypatch.setattr(owner, name, counted)
    yield calls


def test_killed_at_any_instant_one_complete_state_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    n, survived = 0, False
    outcomes = set()
    while not survived:
        n += 1
        where = tmp_path / str(n)
        training, checkpoint = Training(), Checkpoint(where)
        training.go()
        checkpoint.save(training.state())
        old = copy.deepcopy(training.state())
        training.go()
        new = training.state() | {"added": [1]}
        with monkeypatch.context() as patch:
            next(kill_at(patch, n))
            try:
                checkpoint.save(new)
                survived = True
            except Killed:
                pass
        found = Checkpoint(where).load()
        assert found is not None
        outcomes.add("added" in found)
        assert_same(found, new if "added" in found else old)
        again = Checkpoint(where)
        again.load()
        again.save(new)
        assert_same(Checkpoint(where).load(), new)
        assert len(os.listdir(where)) == 7  # what the kill left behind is gone
    assert n > 15 and outcomes == {True, False}


def test_killed_while_deleting_nothing_points_to_missing_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for n in range(1, 4):
        checkpoint = Checkpoint(tmp_path / str(n))
        checkpoint.save({"a": 1, "b": 2})
        with monkeypatch.context() as patch:
            next(kill_at(patch, n))
            with pytest.raises(Killed):
                checkpoint.delete()
        assert Checkpoint(tmp_path / str(n)).load() in (None, {"a": 1, "b": 2})


def test_background_save_writes_the_moment_it_was_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, real = threading.Event(), files.save

    def slow(path: Path, state: dict[str, Any]) -> None:
        assert gate.wait(10)
        real(path, state)

    monkeypatch.setattr(files, "save", slow)
    training, checkpoint = Training(), Checkpoint(tmp_path)
    training.go()
    expected = copy.deepcopy(training.state())
    assert checkpoint.save(training.state(), wait=False)
    training.go()
    assert not checkpoint.save(training.state(), wait=False)  # one is under way: this one is left out
    assert Checkpoint(tmp_path).load() is None  # nothing half-written is visible
    gate.set()
    checkpoint.close()
    assert_same(Checkpoint(tmp_path).load(), expected)
    assert checkpoint.save(training.state(), wait=False)
    checkpoint.close()
    assert_same(Checkpoint(tmp_path).load(), training.state())


def test_error_in_the_background_surfaces_at_the_next_call_and_nothing_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    training, checkpoint = Training(), Checkpoint(tmp_path)
    training.go()
    checkpoint.save(training.state())
    old = copy.deepcopy(training.state())
    for surface in (checkpoint.close, lambda: checkpoint.save(training.state())):
        training.go()
        with monkeypatch.context() as patch:
            patch.setattr(os, "replace", failing(errno.ENOSPC))
            assert checkpoint.save(training.state(), wait=False)
            assert checkpoint._thread is not None
            checkpoint._thread.join()
        with pytest.raises(CannotWrite, match="make room"):
            surface()
        assert_same(Checkpoint(tmp_path).load(), old)
        checkpoint.close()  # told once


@pytest.mark.parametrize("wait", [True, False])
def test_after_a_refused_write_the_next_save_is_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wait: bool
) -> None:
    """What was not written must not count as written."""
    training, checkpoint = Training(), Checkpoint(tmp_path)
    training.go()
    checkpoint.save(training.state())
    training.go()
    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", failing(errno.ENOSPC))
        with pytest.raises(CannotWrite):
            checkpoint.save(training.state(), wait=wait)
            checkpoint.close()
    checkpoint.save(training.state())  # somebody made room
    assert_same(Checkpoint(tmp_path).load(), training.state())


def test_after_a_state_that_cannot_be_written_the_next_save_is_complete(tmp_path: Path) -> None:
    checkpoint, w = Checkpoint(tmp_path), torch.zeros(2)
    checkpoint.save({"w": w, "b": 1})
    w.add_(1)
    with pytest.raises(TypeError, match="not JSON serializable"):
        checkpoint.save({"w": w, "b": {1, 2}})
    checkpoint.save({"w": w, "b": 1})
    assert_same(Checkpoint(tmp_path).load(), {"w": w, "b": 1})


def test_missing_part_is_named(tmp_path: Path) -> None:
    Checkpoint(tmp_path).save({"a": torch.ones(1), "b": torch.ones(2)})
    (tmp_path / "b-1.safetensors").unlink()
    with pytest.raises(CorruptState, match=r"b-1\.safetensors is missing; restore it, or delete"):
        Checkpoint(tmp_path).load()


def test_damaged_index_is_refused(tmp_path: Path) -> None:
    state = {"a": 1, "b": 2}
    Checkpoint(tmp_path).save(state)
    index = tmp_path / "index.json"
    blob = index.read_bytes()
    for position in range(len(blob)):
        for mask in (1, 2, 1 << (position % 8)):
            damaged = bytearray(blob)
            damaged[position] ^= mask
            index.write_bytes(bytes(damaged))
            try:
                assert Checkpoint(tmp_path).load() == state
            except (CorruptState, Mismatch):
                continue
    for text in ("", "[]", "{}", "null", json.dumps({"format": 1, "serial": 1, "parts": {"a": "a-1.safetensors"}})):
        index.write_text(text)
        with pytest.raises(CorruptState):
            Checkpoint(tmp_path).load()


def test_deleted_checkpoint_is_gone_and_can_be_used_again(tmp_path: Path) -> None:
    training, checkpoint = Training(), Checkpoint(tmp_path / "c")
    checkpoint.delete()  # nothing was saved: nothing to do
    training.go()
    checkpoint.save(training.state(), wait=False)
    checkpoint.delete()
    assert not (tmp_path / "c").exists() and checkpoint.load() is None
    checkpoint.save(training.state())
    assert_same(Checkpoint(tmp_path / "c").load(), training.state())


def test_a_second_writer_of_a_directory_is_refused_and_a_dead_one_is_not_in_the_way(tmp_path: Path) -> None:
    script = (
        "import os, pathlib, sys; from triphase import state\n"
        "with state.locked(pathlib.Path(sys.argv[1])): print('held', flush=True); sys.stdin.read()"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert holder.stdout is not None and holder.stdout.readline() == "held\n"
        with pytest.raises(Busy, match="Another process is at work"), locked(tmp_path):
            pass
    finally:
        holder.kill()
        holder.communicate()
    with locked(tmp_path):
        assert (tmp_path / "LOCK").exists()
