"""Caveats: what a reader of a table must know."""

from __future__ import annotations

from pathlib import Path

from fake_reports import make, write
from triphase.bench.report.caveats import conditions, departures
from triphase.bench.report.group import GroupedRuns, group_runs


def test_shortened_schedules_and_subsets_are_caveats(tmp_path: Path) -> None:
    short = make("tpc", 0.5, rest={"epochs": 3}, epochs_scale=0.1, per_class=100, image_size=64, classes="0-49")
    (caveat,) = departures(group_runs([write(tmp_path, short)]))
    for words in (
        "CORe50 41/10-1",
        "100 training images a class",
        "classes 0-49 alone",
        "schedule × 0.1",
        "3 epochs instead of 4",
    ):
        assert words in caveat
    assert "64 px instead of 128" in caveat


def test_a_benchmark_run_as_published_has_no_departures(three_orders: GroupedRuns) -> None:
    assert departures(three_orders) == []
    (caveat,) = conditions(three_orders)
    assert "class orders 1, 2, 3 (Joint training: 1)" in caveat


def test_other_data_and_other_threads_are_caveats(tmp_path: Path) -> None:
    runs = [make("tpc", 0.5, threads=1), make("ar1", 0.5, stream="other", threads=1), make("bic", 0.5, threads=2)]
    (caveat,) = departures(group_runs([write(tmp_path, *runs)]))
    assert "Unequal conditions: AR1 has learned other data." in caveat
    assert "Unequal conditions: BiC has threads 2." in caveat


def test_unequal_conditions_are_caveats(tmp_path: Path) -> None:
    runs = [make("tpc", 0.5), make("ar1", 0.5, rest={"epochs": 9}), make("finetune", 0.2, rest={"n_mbr": 0})]
    (caveat,) = departures(group_runs([write(tmp_path, *runs)]))
    assert "Unequal conditions: AR1 has rest.epochs 9." in caveat and "Fine-tuning" not in caveat


def test_another_normalisation_and_another_weight_decay_are_caveats(tmp_path: Path) -> None:
    runs = [make("tpc", 0.5), make("ar1", 0.5, norm="brn"), make("bic", 0.5, rest={"weight_decay": 0.05})]
    (caveat,) = departures(group_runs([write(tmp_path, *runs)]))
    assert "AR1 has norm brn." in caveat and "BiC has rest.weight_decay 0.05." in caveat


def test_the_ceiling_is_a_caveat_where_it_is_below_one(tmp_path: Path) -> None:
    report = make("tpc", 0.5)
    assert "Perfect learning" not in " ".join(conditions(group_runs([write(tmp_path / "a", report)])))
    report.evaluation, report.n_seen = "all", [1, len(report.names)]
    report.accuracy = [[0.5] * len(report.names)] * 2
    (caveat,) = conditions(group_runs([write(tmp_path / "b", report)]))
    assert f"AMCA of {50 + 50 / len(report.names):.1f} %" in caveat
