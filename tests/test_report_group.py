"""Grouping runs: what is averaged and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from fake_reports import make, write
from triphase.bench.report.caveats import conditions
from triphase.bench.report.group import group_runs
from triphase.errors import Mismatch


def test_runs_of_different_settings_are_not_averaged(tmp_path: Path) -> None:
    write(tmp_path, make("tpc", 0.5), make("tpc", 0.6, order=2, rest={"epochs": 8, "lr": 0.3}))
    with pytest.raises(
        Mismatch, match=r"run0 and .*run1 are runs of TPC on core50-41 .*rest.epochs 4 and 8; rest.lr 0.1 and 0.3"
    ):
        group_runs([tmp_path])


def test_runs_over_different_classes_are_not_averaged(tmp_path: Path) -> None:
    others = ("cup", "can", "plum")
    write(tmp_path, make("tpc", 0.5), make("tpc", 0.6, order=2, names=others))
    with pytest.raises(Mismatch, match=r"run0 and .*run1 .* over different classes: only one of them knows 'ball'"):
        group_runs([tmp_path])


def test_a_run_given_twice_counts_once_unless_its_results_differ(tmp_path: Path) -> None:
    write(tmp_path / "a", make("tpc", 0.5))
    write(tmp_path / "b", make("tpc", 0.5, threads=1))
    grouped = group_runs([tmp_path, tmp_path / "a" / "run0"])
    assert [len(entry.runs) for entry in grouped.groups] == [1]
    write(tmp_path / "c", make("tpc", 0.51))
    with pytest.raises(Mismatch, match="order 1, seed 0, but their results differ"):
        group_runs([tmp_path])


def test_a_learner_without_its_memory_is_no_rival_with_one(tmp_path: Path) -> None:
    runs = [make("tpc", 0.5), make("anchored", 0.6, memory=None), make("ncm", 0.3, rest={"trainable": "all"})]
    found = {e.learner: (e.replay, e.change) for e in group_runs([write(tmp_path, *runs)]).groups}
    assert found == {"tpc": (True, ""), "anchored": (False, ""), "ncm": (True, "")}


def test_runs_evaluated_at_different_points_are_not_averaged(tmp_path: Path) -> None:
    one, two = make("tpc", 0.5, order=1), make("tpc", 0.5, order=2)
    for part in ("evaluated_after", "n_seen", "accuracy"):
        getattr(two, part).pop(0)
    with pytest.raises(Mismatch, match="evaluated after"):
        group_runs([write(tmp_path / "runs", one, two)])
    other = make("ar1", 0.4, order=1)
    for part in ("evaluated_after", "n_seen", "accuracy"):
        getattr(other, part).pop(0)
    caveats = conditions(group_runs([write(tmp_path / "both", one, other)]))
    assert "Unequal conditions: AR1 has 1 evaluations" in " ".join(caveats)
