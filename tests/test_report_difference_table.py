"""The table of paired differences."""

from __future__ import annotations

from pathlib import Path

from fake_reports import make, write
from triphase.bench.report.difference_table import differences
from triphase.bench.report.group import GroupedRuns, group_runs


def test_intervals_that_exclude_zero_are_bold(three_orders: GroupedRuns) -> None:
    table = differences(three_orders)
    (row,) = (row for row in table.rows if row[1].text == "AR1")
    assert [c.text for c in row[2:5]] == ["3", "−5.00", "−5.00 to −5.00"] and row[4].best
    (joint,) = (row for row in table.rows if row[1].text.startswith("Joint"))
    assert [c.text for c in joint[3:6]] == ["–", "–", "–"] and joint[6].text == "+30.00"


def test_learners_are_also_compared_with_anchored(tmp_path: Path) -> None:
    runs = [make(name, a) for name, a in (("tpc", 0.5), ("ar1", 0.4), ("anchored", 0.6), ("joint", 0.8))]
    runs.append(make("tpc", 0.3, bc="none"))
    table = differences(group_runs([write(tmp_path / "runs", *runs)]))
    found = {row[1].text: row[6].text for row in table.rows if row[1].under == "minus Anchored TPC"}
    assert found == {"TPC": "−10.00", "AR1": "−20.00", "Joint training": "+20.00"}
