"""Copies of run directories, in a file system that is no folder of this computer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from uuid import uuid4

import fsspec
import pytest
import torch

from triphase import state as files
from triphase.bench.sweep.cluster.copies import RunCopy, read_index, restore
from triphase.bench.sweep.cluster.storage import Storage
from triphase.checkpoint import Checkpoint
from triphase.errors import InvalidValue, Unreachable

MEMORY = {"x": torch.zeros(3)}  # which changes between experiences only


@pytest.fixture
def storage() -> Storage:
    return Storage(f"memory://{uuid4().hex}")


def learn(run: Path, step: int) -> Checkpoint:
    """A run directory as it is after some steps."""
    checkpoint = Checkpoint(run / "state")
    checkpoint.load()
    checkpoint.save({"memory": MEMORY, "model": {"w": torch.full((2,), float(step))}})
    files.write(run / "settings.json", b"{}")
    files.write(run / "events.jsonl", b"event\n" * step)
    return checkpoint


def test_a_run_goes_on_elsewhere_from_the_copy_that_is_furthest(storage: Storage, tmp_path: Path) -> None:
    one, two = RunCopy(storage, "s/run", "one"), RunCopy(storage, "s/run", "two")
    learn(tmp_path / "a", 1)
    one.save(tmp_path / "a", 0.1)
    assert restore(storage, "s/run", tmp_path / "b")
    learn(tmp_path / "b", 2)
    two.save(tmp_path / "b", 0.2)
    assert restore(storage, "s/run", tmp_path / "c") and not restore(storage, "s/other", tmp_path / "d")
    state = Checkpoint(tmp_path / "c" / "state").load()
    assert state is not None and state["model"]["w"].tolist() == [2.0, 2.0]
    assert (tmp_path / "c" / "events.jsonl").read_bytes() == b"event\n" * 2
    index = read_index(storage, "s/run", "two")
    assert index is not None and index["share"] == 0.2 and not index["finished"]
    two.remove_others()
    assert storage.names("s/run") == ["two"]


def test_a_copy_of_which_something_is_missing_is_never_used(storage: Storage, tmp_path: Path) -> None:
    learn(tmp_path / "a", 1)
    RunCopy(storage, "s/run", "one").save(tmp_path / "a", 0.1)
    learn(tmp_path / "a", 2)
    RunCopy(storage, "s/run", "two").save(tmp_path / "a", 0.2)
    index = read_index(storage, "s/run", "two")
    assert index is not None
    model = next(checksum for name, checksum in index["files"].items() if "model" in name)
    storage.write(f"s/run/two/{model}", b"something else")
    assert restore(storage, "s/run", tmp_path / "b")
    state = Checkpoint(tmp_path / "b" / "state").load()
    assert state is not None and state["model"]["w"].tolist() == [1.0, 1.0]
    outside = {**index, "serial": 9, "files": {"../../x": model}}
    storage.write("s/run/three/index.json", json.dumps(outside).encode())
    assert read_index(storage, "s/run", "three") is None, "a name that leads elsewhere"


def test_only_what_changed_is_saved_again_and_a_finished_run_keeps_no_checkpoint(
    storage: Storage, tmp_path: Path
) -> None:
    copy, run = RunCopy(storage, "s/run", "one"), tmp_path / "a"
    checkpoint = learn(run, 1)
    copy.save(run, 0.1)
    memory = next((run / "state").glob("memory-*")).read_bytes()
    before = set(storage.names("s/run/one"))
    checkpoint.save({"memory": MEMORY, "model": {"w": torch.full((2,), 7.0)}})
    copy.save(run, 0.2)
    assert len(before & set(storage.names("s/run/one"))) == 4, "index, settings, log and memory"
    assert len(before) == len(storage.names("s/run/one")) == 6, "and what is not needed any more is removed"
    files.write(run / "weights.safetensors", memory)
    files.write(run / "report.json", b"{}")
    copy.save(run, 1.0)
    learn(tmp_path / "b", 5)
    assert restore(storage, "s/run", tmp_path / "b")
    names = {path.name for path in (tmp_path / "b").iterdir()}
    assert names == {"settings.json", "events.jsonl", "weights.safetensors", "report.json"}


def test_a_run_that_ends_while_it_is_saved_is_saved_as_finished(
    storage: Storage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint, save = learn(tmp_path, 3), RunCopy._save_checkpoint

    def end_before(*arguments: Any) -> None:
        files.write(tmp_path / "report.json", b"{}")
        checkpoint.delete()
        save(*arguments)

    monkeypatch.setattr(RunCopy, "_save_checkpoint", end_before)
    RunCopy(storage, "s/run", "one").save(tmp_path, 0.9)
    index = read_index(storage, "s/run", "one")
    assert index is not None and index["finished"] and "report.json" in index["files"]


def test_a_storage_that_vanishes_or_cannot_be_is_named(
    storage: Storage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*arguments: object, **options: object) -> None:
        raise RuntimeError("the bucket\nis gone")

    monkeypatch.setattr(fsspec.get_filesystem_class("memory"), "ls", refuse)
    with pytest.raises(Unreachable, match=r"memory://\w+ cannot be reached \(the bucket is gone\); bring it back"):
        restore(storage, "s/run", tmp_path)
    with pytest.raises(InvalidValue, match="--storage what://x cannot be used: .*what"):
        Storage("what://x")
    (tmp_path / "file").write_text("")
    with pytest.raises(Unreachable, match="cannot be reached"):
        Storage(str(tmp_path / "file" / "below")).write("x", b"")
