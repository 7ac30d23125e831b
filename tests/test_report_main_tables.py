"""The main tables of a report."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest

from fake_reports import cell, make, write
from triphase.bench.report.figure_style import colour_of
from triphase.bench.report.group import GroupedRuns, group_runs
from triphase.bench.report.main_tables import METRICS, metric_table
from triphase.bench.report.tables import TableCell

AMCA, FINAL, TIME, FORGETTING, MEMORY = METRICS


def test_a_cell_has_our_mean_the_ratio_the_papers_number_and_the_difference(three_orders: GroupedRuns) -> None:
    table = metric_table(three_orders, AMCA)
    ours = cell(table, "AR1", "CORe50 41/10-1")
    assert ours.text == "47.00 ± 2.00 % (0.90)" and ours.under == "paper 48.03 % (0.95), −1.03"
    assert not ours.best and cell(table, "TPC", "CORe50 41/10-1").best
    assert cell(table, "TPC", "CORe50 41/10-1").text == "52.00 ± 2.00 % (1.00)"


def test_what_was_not_run_says_so_and_still_shows_the_paper(three_orders: GroupedRuns) -> None:
    table = metric_table(three_orders, FINAL)
    assert table.header[1:] == [
        "CORe50 41/10-1",
        "ImageNet 100/10-10",
        "CIFAR100 11/50-5",
        "CORe50 NICv2 391/10-1",
        "Overall",
    ]
    assert cell(table, "BiC", "CORe50 41/10-1") == TableCell("not run", "paper 52.59 % (0.67)")
    assert cell(table, "TPC", "ImageNet 100/10-10") == TableCell("not run", "paper 29.46 % (1.00)")
    assert cell(table, "BiC", "Overall") == TableCell("not run", "paper 0.49")
    assert cell(table, "AR1", "Overall").under.startswith("paper 0.93, ")


def test_other_benchmarks_need_no_columns_of_the_paper(tmp_path: Path) -> None:
    table = metric_table(group_runs([write(tmp_path, make("tpc", 0.5, benchmark="digits-5"))]), AMCA)
    assert table.header == ["AMCA ↑", "Digits 5/2-2", "Overall"]
    assert [row[0].text for row in table.rows] == ["AR1", "BiC", "DER++", "TPC"]


def test_joint_training_has_no_amca_and_is_never_the_best(three_orders: GroupedRuns) -> None:
    assert cell(metric_table(three_orders, AMCA), "Joint training", "CORe50 41/10-1").text == "–"
    final = metric_table(three_orders, FINAL)
    assert cell(final, "Joint training", "CORe50 41/10-1").text == "80.00 % (1.54)"
    assert not cell(final, "Joint training", "CORe50 41/10-1").best and cell(final, "TPC", "CORe50 41/10-1").best
    assert cell(metric_table(three_orders, FORGETTING), "Joint training", "CORe50 41/10-1").text == "–"


def test_less_time_is_better_and_only_multiples_are_compared(three_orders: GroupedRuns) -> None:
    table = metric_table(three_orders, TIME)
    assert cell(table, "AR1", "CORe50 41/10-1") == TableCell(
        "100 ± 0 s (0.50)", "paper 257 s (0.97), ratio −0.47", best=True
    )
    assert cell(table, "AR1", "Overall").best


def test_overall_is_the_mean_of_the_ratios(tmp_path: Path) -> None:
    runs = [make("tpc", 0.5), make("ar1", 0.4), make("tpc", 0.5, benchmark="digits-5")]
    runs += [make("ar1", 0.6, benchmark="digits-5"), make("bic", 0.9, benchmark="digits-5")]
    table = metric_table(group_runs([write(tmp_path, *runs)]), AMCA)
    assert cell(table, "AR1", "Overall").text == "1.00 (of 2)"
    bic = cell(table, "BiC", "Overall")
    assert bic.text == "1.80 (of 1)" and not bic.best, "an average over fewer benchmarks does not compete"


def test_records_hold_the_numbers_in_full(three_orders: GroupedRuns) -> None:
    table = metric_table(three_orders, AMCA)
    rows = list(csv.DictReader(io.StringIO(table.csv())))
    (ar1,) = (row for row in rows if row["learner"] == "AR1" and row["benchmark"] == "core50-41")
    assert float(ar1["mean"]) == pytest.approx(47) and float(ar1["std"]) == pytest.approx(2)
    assert float(ar1["difference"]) == pytest.approx(-1.03) and ar1["runs"] == "3"
    (bic,) = (row for row in rows if row["learner"] == "BiC" and row["benchmark"] == "core50-41")
    assert bic["mean"] == "" and bic["runs"] == "0" and float(bic["paper"]) == 39.29


def test_markdown_has_a_line_per_learner_and_bold_for_the_best(three_orders: GroupedRuns) -> None:
    lines = metric_table(three_orders, AMCA).markdown().splitlines()
    rows = [line for line in lines if line.startswith("| ")]
    assert len(rows) == 1 + 5 and len({line.count("|") for line in rows}) == 1
    assert any(line.startswith("| TPC | **52.00 ± 2.00 % (1.00)**<br>paper 50.46 %") for line in rows)


def test_memory_is_shown_in_bytes(three_orders: GroupedRuns) -> None:
    table = metric_table(three_orders, MEMORY)
    assert cell(table, "TPC", "CORe50 41/10-1").text == "2.5 MB"
    assert cell(table, "Joint training", "CORe50 41/10-1").text == "none"


def test_an_unknown_learner_stands_after_tpc(tmp_path: Path) -> None:
    runs = [make(name, 0.5) for name in ("joint", "newcomer", "tpc", "ncm")]
    grouped = group_runs([write(tmp_path, *runs)])
    names = [row[0].text for row in metric_table(grouped, FINAL).rows]
    assert names == ["AR1", "BiC", "DER++", "TPC", "newcomer", "NCM", "Joint training"]
    assert colour_of("newcomer") == colour_of("newcomer") != colour_of("tpc")
