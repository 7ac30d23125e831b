"""A first experience that is learned once and shared."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from triphase import run
from triphase import state as files
from triphase.bench.benchmarks import Benchmark, find
from triphase.bench.run import Report
from triphase.bench.run.options import RunOptions
from triphase.bench.run.setup import Setup, prepare
from triphase.errors import BadData, InvalidValue, Mismatch

SHORT = RunOptions(epochs=3, memory=20, per_class=15)
three = find("digits:3/2-2")


def run_it(options: RunOptions, out: Path, benchmark: Benchmark = three) -> tuple[Setup, Report]:
    setup = prepare(benchmark, options, Path())
    return setup, run(
        setup.learner,
        setup.stream,
        first=setup.first,
        rest=setup.rest,
        out=out,
        settings=setup.settings,
        before=setup.before,
    )


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("first") / "run"
    run_it(replace(SHORT, learner="finetune", experiences=1), out)
    return out


def test_the_beginning_of_a_stream_is_tested_on_what_it_teaches(first: Path, tmp_path: Path) -> None:
    setup, report = run_it(replace(SHORT, learner="finetune", experiences=1), first)
    assert set(setup.stream.test.labels.tolist()) == set(setup.stream.experiences[0].classes)
    _, whole = run_it(replace(SHORT, learner="finetune"), tmp_path / "whole")
    assert report.accuracy[0] == whole.accuracy[0]


@pytest.mark.parametrize("learner", ["replay", "finetune", "ar1", "derpp"])
def test_the_first_experience_may_come_from_another_run(learner: str, first: Path, tmp_path: Path) -> None:
    options = replace(SHORT, learner=learner)
    run_it(options, tmp_path / "alone")
    setup, shared = run_it(replace(options, first_from=first), tmp_path / "shared")
    alone, other = (files.load(tmp_path / name / "weights.safetensors") for name in ("alone", "shared"))
    for block in alone:
        for name, tensor in alone[block].items():
            assert tensor.equal(other[block][name]), f"{block}.{name}"
    before = Report.from_json(files.read_json(first / "report.json"))
    assert shared.phase_seconds["E_1"] == before.train_seconds and shared.train_seconds > before.train_seconds
    assert shared.images > before.images > 0
    assert setup.settings["first_from"]["epochs"] == 3 and setup.first.epochs == 0


@pytest.mark.parametrize("learner", ["ncm", "slda", "ranpac"])
def test_from_scratch_closed_forms_take_the_first_experience_too(learner: str, tmp_path: Path) -> None:
    scratch = replace(three, pretrained=False)
    options = replace(SHORT, learner=learner, learner_options=(("n_projected", 50),) if learner == "ranpac" else ())
    run_it(replace(SHORT, learner="finetune", experiences=1), tmp_path / "first", scratch)
    _, alone = run_it(options, tmp_path / "alone", scratch)
    _, shared = run_it(replace(options, first_from=tmp_path / "first"), tmp_path / "shared", scratch)
    assert shared.accuracy == alone.accuracy
    with pytest.raises(InvalidValue, match=f"{learner} does not train its first experience by plain cross-entropy"):
        prepare(three, RunOptions(learner=learner, first_from=tmp_path / "first"), Path())


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"seed": 1}, "seed 0 instead of 1"),
        ({"order": 1}, "order 0 instead of 1"),
        ({"lr": 0.3}, r"first\.lr 0\.005 instead of 0\.3"),
        ({"epochs": 4}, r"first\.epochs 3 instead of 4"),
        ({"per_class": 9}, "per_class 15 instead of 9"),
        ({"norm": "brn"}, "norm 'bn' instead of 'brn'"),
    ],
)
def test_a_first_experience_of_other_settings_is_refused(changes: dict[str, Any], words: str, first: Path) -> None:
    options = replace(SHORT, learner="replay", first_from=first, **changes)
    with pytest.raises(
        Mismatch, match=f"cannot give the first experience: it has {words}; give another --first-from"
    ):
        prepare(three, options, Path())


def test_a_first_experience_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadData, match="holds no finished run.*--learner finetune --experiences 1"):
        prepare(three, replace(SHORT, learner="replay", first_from=tmp_path), Path())
    with pytest.raises(InvalidValue, match="tpc does not train its first experience by plain cross-entropy"):
        prepare(three, replace(SHORT, first_from=tmp_path), Path())


def test_no_epochs_without_a_run_that_had_them_is_refused() -> None:
    setup = prepare(three, replace(SHORT, learner="replay"), Path())
    for first, rest in ((0, 3), (3, 0)):
        with pytest.raises(InvalidValue, match="epochs must be at least 1, got 0"):
            run(
                setup.learner,
                setup.stream,
                first=replace(setup.first, epochs=first),
                rest=replace(setup.rest, epochs=rest),
            )
