"""A checkpoint: the newest state comes back bit for bit, whenever its writer died."""

import copy
import errno
import json
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from state_helpers import assert_same, failing
from triphase import state as files
from triphase.checkpoint import Checkpoint
from triphase.directory_lock import locked
from triphase.errors import CannotWrite, CorruptState, LockLost, Mismatch
from triphase.state import FORMAT


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


def test_newer_format_is_refused_with_advice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("triphase.checkpoint.FORMAT", FORMAT + 1)
        Checkpoint(tmp_path).save({"a": 1})
    with pytest.raises(
        Mismatch, match=rf"newer triphase \(format {FORMAT + 1}, this one reads {FORMAT}\); upgrade"
    ):
        Checkpoint(tmp_path).load()


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
    gate, real = threading.Event(), files.to_bytes

    def slow(state: dict[str, Any]) -> bytes:
        assert gate.wait(10)
        return real(state)

    monkeypatch.setattr(files, "to_bytes", slow)
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


def test_a_directory_that_is_no_longer_ours_is_not_written(tmp_path: Path) -> None:
    with locked(tmp_path / "run") as lock:
        checkpoint, w = Checkpoint(tmp_path / "run" / "c", lock), torch.zeros(2)
        checkpoint.save({"w": w})
        before = {file.name: file.read_bytes() for file in (tmp_path / "run" / "c").iterdir()}
        (tmp_path / "run").rename(tmp_path / "moved")
        w.add_(1)
        with pytest.raises(LockLost):
            checkpoint.save({"w": w})
        assert checkpoint.save({"w": w}, wait=False)
        with pytest.raises(LockLost):
            checkpoint.close()
    assert {file.name: file.read_bytes() for file in (tmp_path / "moved" / "c").iterdir()} == before
    assert not (tmp_path / "run").exists()
