"""The tables of the ablation and of learners without replay."""

from __future__ import annotations

from pathlib import Path

from fake_reports import cell, make, write
from triphase.bench.report.ablation_tables import ablation, no_replay
from triphase.bench.report.difference_table import differences
from triphase.bench.report.group import group_runs
from triphase.bench.report.main_tables import METRICS, metric_table
from triphase.bench.report.tables import TableCell

AMCA, FINAL, TIME, FORGETTING, MEMORY = METRICS


def test_an_ablation_compares_on_the_orders_that_all_were_run_on(tmp_path: Path) -> None:
    runs = [make("tpc", a, order=o) for o, a in ((1, 0.5), (2, 0.9), (3, 0.7))]
    runs += [make("tpc", 0.4, bc="none"), make("tpc", 0.3, memory=None)]
    grouped = group_runs([write(tmp_path, *runs)])
    table, bare = ablation(grouped), no_replay(grouped)
    assert table is not None and bare is not None
    assert cell(metric_table(grouped, AMCA), "TPC", "CORe50 41/10-1").text == "70.00 ± 20.00 % (1.00)"
    assert cell(table, "CORe50 41/10-1", "Full algorithm").text == "50.00 %"
    assert cell(bare, "TPC", "CORe50 41/10-1: AMCA ↑").text == "50.00 % (1.00)"


def test_ablations_and_runs_without_replay_are_recognised_by_their_settings(tmp_path: Path) -> None:
    runs = [make("tpc", 0.5), make("tpc", 0.4, bc="none"), make("tpc", 0.45, masking="none")]
    runs += [make("tpc", 0.3, memory=None), make("tpc", 0.1, memory=None, bc="none"), make("ar1", 0.2, memory=None)]
    runs += [
        make("tpc", 0.44, rest={"weight_decay": 0.0}),
        make("derpp", 0.3),
        make("derpp", 0.2, rest={"trainable": "all"}),
    ]
    grouped = group_runs([write(tmp_path, *runs)])
    table = ablation(grouped)
    assert table is not None
    assert cell(table, "CORe50 41/10-1", "No bias correction") == TableCell("40.00 %", "paper 48.08 %, −8.08")
    assert cell(table, "CORe50 41/10-1", "No Phase III") == TableCell("not run", "paper 49.58 %")
    assert cell(table, "CORe50 41/10-1", "Weight decay = 0.0").text == "44.00 %"
    assert cell(table, "CORe50 41/10-1 (no replay)", "No bias correction").text == "10.00 %"
    assert cell(table, "CORe50 41/10-1 (no replay)", "Full algorithm").under == "paper 44.50 %, −14.50"
    assert cell(table, "CORe50 41/10-1 (no replay)", "No Phase III") == TableCell("–")
    bare = no_replay(grouped)
    assert bare is not None and [row[0].text for row in bare.rows] == [
        "TPC",
        "AR1",
        "AR1 (no replay)",
        "TPC (no replay)",
    ]
    paired = {row[1].text: row[1].under for row in differences(grouped).rows}
    assert paired["AR1 (no replay)"] == "minus TPC (no replay)" and paired["TPC (no bias correction)"] == ""
    assert paired["TPC (no replay)"] == ""
    main = metric_table(grouped, AMCA)
    assert cell(main, "TPC", "CORe50 41/10-1").text == "50.00 % (1.00)"
    assert cell(main, "AR1", "CORe50 41/10-1").text == "not run"
    assert cell(main, "DER++ (llf learns too)", "CORe50 41/10-1").text == "20.00 % (0.40)"
