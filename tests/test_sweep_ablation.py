"""Ablations of TPC: which runs, and at which learning rate."""

from __future__ import annotations

from pathlib import Path

import pytest

from sweep_results import OUT, results_of
from triphase import state as files
from triphase.bench.benchmarks import find
from triphase.bench.run.options import RunOptions
from triphase.bench.sweep.ablation import FULL, Ablation, chosen_lr, columns
from triphase.bench.sweep.grid import Sweep
from triphase.errors import BadData


def test_the_ablation_follows_the_papers_protocol() -> None:
    """With replay at a given rate; without it after a search of its own; results from the other orders."""
    schedule = Ablation(OUT, ("core50-41",), {"core50-41": 0.02})
    results = results_of(schedule, {"order0-lr0.002-no-replay": 0.9})
    assert len(schedule.planned()) == len(results) == 4 * 3 + 5 + 3 * 3
    searched = [c for c in results if c.options.order == 0]
    assert all(c.options.replay == "none" and c.options.own == {} for c in searched) and len(searched) == 5
    for c in results:
        if c not in searched:
            assert c.options.lr == (0.002 if c.options.replay == "none" else 0.02)
    document = schedule.summary(results, {})["benchmarks"]["core50-41"]
    assert document["no replay"]["lr"] == 0.002 and document["replay"]["lr"] == 0.02
    assert list(document["replay"]["columns"]) == [
        FULL,
        "no bias correction",
        "no gradient masking",
        "no Phase III",
    ]
    assert "no Phase III" not in document["no replay"]["columns"]


def test_the_full_algorithm_is_the_same_run_in_sweep_and_ablation() -> None:
    sweep = Sweep(OUT, ("core50-41",), ("tpc",))
    ablation = Ablation(OUT, ("core50-41",), {"core50-41": 0.02}, rows="replay")
    assert sweep.job("core50-41", "tpc", 1, {"lr": 0.02}) in ablation.jobs({})


@pytest.mark.parametrize("name", ["core50-41", "core50-nicv2-391", "cifar100:46/10-2"])
def test_more_columns_are_all_different_runs(name: str) -> None:
    benchmark = find(name)
    schedule = Ablation(OUT, (name,), {name: 0.1}, (1,), more=True)
    results = results_of(schedule, {})
    assert len(results) == len({c.directory for c in results}) == len(schedule.planned())
    more = columns(benchmark, replay=True, more=True)
    assert ("Phase I without novel classes goes to Phase II" in more) == benchmark.repetition
    assert ("no weight decay" in more) == (benchmark.rest.weight_decay > 0)


@pytest.mark.parametrize(
    ("base", "gone", "new"),
    [
        (RunOptions(weight_decay=5e-4), "weight decay 0.0005", "no weight decay"),
        (RunOptions(norm="brn"), "batch renormalisation", None),
        (RunOptions(learner_options=(("eps", 1e-8),)), "eps 1e-8", None),
    ],
)
def test_a_column_that_is_the_full_algorithm_is_left_out(base: RunOptions, gone: str, new: str | None) -> None:
    name = "cifar100:46/10-2"
    schedule = Ablation(OUT, (name,), {name: 0.1}, (1,), base, "replay", more=True)
    shown = schedule.summary({}, {})["benchmarks"][name]["replay"]["columns"]
    assert gone not in shown and (new is None or new in shown) and len(schedule.jobs({})) == len(shown)


def test_the_rate_of_a_sweep_is_taken_over_or_missed_in_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(BadData, match="no finished search of TPC's learning rate on digits-5.*--learners tpc"):
        chosen_lr(tmp_path, "digits-5")
    schedule = Sweep(tmp_path, ("digits-5",), ("tpc",))
    results = results_of(schedule, {"lr0.01": 0.9})
    files.write_json(tmp_path / "sweep.json", schedule.summary(results, {}))
    assert chosen_lr(tmp_path, "digits-5") == 0.01
