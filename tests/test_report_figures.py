"""The figures of a report."""

from __future__ import annotations

from pathlib import Path

from fake_reports import group, make, write
from triphase.bench.report.figure_style import svg
from triphase.bench.report.figures import curves
from triphase.bench.report.write import write_report


def test_learners_of_fewer_classes_have_shorter_rows_in_the_figure(tmp_path: Path) -> None:
    runs = [make("tpc", 0.5), make("ar1", 0.5, names=("cup", "can"))]
    write_report([write(tmp_path / "runs", *runs)], tmp_path / "report")
    assert list((tmp_path / "report" / "figures").glob("*-forgetting.png"))


def test_a_figure_is_the_same_whenever_it_is_drawn() -> None:
    groups = [group(make("tpc", 0.5), make("tpc", 0.6, order=2)), group(make("joint", 0.9))]
    assert svg(curves(groups)) == svg(curves(groups))
