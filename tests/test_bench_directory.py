"""The directory of a run: what it holds, and which run may be continued there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from oracle import (
    RECIPE,
    Killed,
    Oracle,
    Refusing,
    begun,
    counted,
)
from triphase import TPC, FineTune, Memory, run
from triphase import state as files
from triphase.bench.run import Report
from triphase.bench.run.directory import recorded_threads
from triphase.data.streams import joint
from triphase.errors import CorruptState, InvalidValue, Mismatch
from triphase.testing import FIRST, REST, tiny_model, tiny_stream


def test_a_run_in_memory_writes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run(Oracle(4), counted(2, 2, 2), first=RECIPE)
    assert list(tmp_path.iterdir()) == []


def test_a_finished_run_holds_weights_report_settings_and_log(tmp_path: Path) -> None:
    out = tmp_path / "deep" / "run"
    report = run(Oracle(4), counted(2, 2, 2), first=RECIPE, out=out, settings={"note": "mine"})
    names = {"LOCK", "events.jsonl", "report.json", "settings.json", "weights.safetensors"}
    assert {file.name for file in out.iterdir()} == names
    assert Report.from_json(files.read_json(out / "report.json")) == report
    assert files.read_json(out / "settings.json") == report.settings
    assert report.settings["note"] == "mine"


def test_a_finished_run_is_not_learned_again(tmp_path: Path) -> None:
    out = tmp_path / "run"
    report = run(Oracle(4), counted(2, 2, 2), first=RECIPE, out=out)
    files = [file for file in out.iterdir() if file.name != "LOCK"]  # which says who held it last
    before = {file.name: file.stat().st_mtime_ns for file in files}
    assert run(Refusing(4), counted(2, 2, 2), first=RECIPE, out=out) == report
    assert {file.name: file.stat().st_mtime_ns for file in files} == before


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"learner": lambda: FineTune(tiny_model(), Memory(12))}, r"learner 'tpc' \(now 'replay'\)"),
        ({"learner": lambda: TPC(tiny_model(), Memory(12), seed=1)}, r"seed 0 \(now 1\)"),
        ({"learner": lambda: TPC(tiny_model(), Memory(12), t=0.25)}, r"t 0.5 \(now 0.25\)"),
        ({"learner": lambda: TPC(tiny_model(), Memory(13))}, r"memory.capacity 12 \(now 13\)"),
        ({"learner": lambda: TPC(tiny_model(), None)}, "memory .* \\(now None\\)"),
        ({"rest": replace(REST, epochs=4)}, r"rest.epochs 3 \(now 4\)"),
        ({"first": replace(FIRST, lr=0.5)}, r"first.lr 0.02 \(now 0.5\)"),
        ({"stream": joint(tiny_stream())}, "another stream"),
        ({"settings": {"order": 1}}, r"order None \(now 1\)"),
    ],
)
def test_a_run_is_not_continued_as_another_one(
    change: dict[str, Any], message: str, stop_at_save: Callable[..., None], tmp_path: Path
) -> None:
    out = tmp_path / "run"
    begun(out, stop_at_save)
    before = {file: file.read_bytes() for file in out.rglob("*") if file.is_file()}
    options = {
        "learner": lambda: TPC(tiny_model(), Memory(12)),
        "stream": tiny_stream(),
        "first": FIRST,
        "rest": REST,
    }
    options |= change
    with pytest.raises(Mismatch, match=message) as caught:
        run(options.pop("learner")(), options.pop("stream"), out=out, **options)  # type: ignore[arg-type, operator]
    assert "give another --out, or delete" in str(caught.value)
    assert {file: file.read_bytes() for file in out.rglob("*") if file.is_file()} == before


def test_a_run_that_was_refused_at_once_may_be_begun_as_another(tmp_path: Path) -> None:
    out, stream = tmp_path / "run", tiny_stream()
    with pytest.raises(InvalidValue, match="at least 3"):
        run(TPC(tiny_model(), Memory(12)), stream, first=replace(FIRST, epochs=2), rest=REST, out=out)
    report = run(TPC(tiny_model(), Memory(12)), stream, first=FIRST, rest=REST, out=out)
    assert report.settings["first"]["epochs"] == 3
    assert files.read_json(out / "settings.json") == report.settings


@pytest.mark.parametrize("part", ["index.json", "head", "loop", "memory"])
def test_a_truncated_checkpoint_is_named(part: str, stop_at_save: Callable[..., None], tmp_path: Path) -> None:
    out = tmp_path / "run"
    begun(out, stop_at_save)
    (file,) = (path for path in (out / "state").iterdir() if path.name.startswith(part))
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    with pytest.raises(CorruptState, match=f"{file.name} is damaged"):
        run(TPC(tiny_model(), Memory(12)), tiny_stream(), first=FIRST, rest=REST, out=out)
    assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("lost", ["settings.json", "state/csf*"])
def test_a_lost_file_of_a_run_is_named(lost: str, stop_at_save: Callable[..., None], tmp_path: Path) -> None:
    out = tmp_path / "run"
    begun(out, stop_at_save)
    (file,) = out.glob(lost)
    file.unlink()
    with pytest.raises(CorruptState, match=f"{file.name} is missing"):
        run(TPC(tiny_model(), Memory(12)), tiny_stream(), first=FIRST, rest=REST, out=out)


def test_a_run_goes_on_under_the_number_of_threads_that_it_was_begun_with_and_no_other(
    stop_at_save: Callable[..., None], tmp_path: Path
) -> None:
    before = torch.get_num_threads()
    assert recorded_threads(tmp_path / "run") is None
    stop_at_save(1)
    with pytest.raises(Killed):
        run(Oracle(4), counted(2, 2, 2), first=RECIPE, out=tmp_path / "run", save_every=0)
    stop_at_save(None)
    try:
        torch.set_num_threads(before + 1)
        sentence = rf"begun with {before} CPU thread.*has {before + 1}.*torch.set_num_threads\({before}\)"
        with pytest.raises(Mismatch, match=sentence):
            run(Oracle(4), counted(2, 2, 2), first=RECIPE, out=tmp_path / "run")
        assert torch.get_num_threads() == before + 1, "run() must leave the process alone"
        assert recorded_threads(tmp_path / "run") == before
        torch.set_num_threads(before)
        report = run(Oracle(4), counted(2, 2, 2), first=RECIPE, out=tmp_path / "run")
        assert report.settings["threads"] == before and recorded_threads(tmp_path / "run") is None
        torch.set_num_threads(before + 1)  # a finished run is only read
        assert run(Oracle(4), counted(2, 2, 2), first=RECIPE, out=tmp_path / "run").accuracy == report.accuracy
    finally:
        torch.set_num_threads(before)
