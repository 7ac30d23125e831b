"""Reports over runs: what is averaged, what is refused, and what the tables, figures and page say."""

from __future__ import annotations

import csv
import io
import json
import re
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import typer
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from typer.testing import CliRunner

from triphase import TPC, FineTune, Memory, Recipe, run
from triphase.bench.report import paper
from triphase.bench.report.caveats import conditions, departures
from triphase.bench.report.figures import colour_of, curves, svg
from triphase.bench.report.group import Entry, Gathered, gather
from triphase.bench.report.html import render
from triphase.bench.report.intervals import difference, student
from triphase.bench.report.load import Run
from triphase.bench.report.side_tables import (
    ablation,
    all_tables,
    class_records,
    differences,
    no_replay,
    what_was_run,
)
from triphase.bench.report.tables import METRICS, Cell, Table, compared
from triphase.bench.report.write import write_report
from triphase.bench.run import Report
from triphase.cli.report import report as report_command
from triphase.errors import BadData, CorruptState, Mismatch
from triphase.testing import tiny_model, tiny_stream

AMCA, FINAL, TIME, FORGETTING, MEMORY = METRICS
RECIPE: dict[str, Any] = {
    "epochs": 4,
    "lr": 0.1,
    "csf_lr": None,
    "n_mbe": 158,
    "n_mbr": 98,
    "momentum": 0.9,
    "weight_decay": 5e-4,
}
RECIPE |= {"augment": "flip", "lr_schedule": "constant", "trainable": "csf", "latents": "float32", "views": 0}
MEMORIES: dict[str, Any] = {"capacity": 1500, "store": "raw", "seed": 0, "dtype": "torch.float32"}
WITHOUT_MEMORY = ("finetune", "joint", "ncm", "slda", "ranpac")


def make(
    learner: str,
    accuracy: float,
    *,
    order: int = 1,
    benchmark: str = "core50-41",
    seconds: float = 100.0,
    names: Sequence[str] = ("cup", "can", "ball"),
    rest: dict[str, Any] | None = None,
    **settings: Any,
) -> Report:
    """A run with the same accuracy for every class and experience; the first class comes alone."""
    evaluations = 1 if learner == "joint" else 2
    memory = None if learner in WITHOUT_MEMORY else MEMORIES
    known = {"benchmark": benchmark, "learner": learner, "order": order, "seed": 0, "backbone": "mobilenet_v1"}
    known |= {"image_size": 128, "per_class": None, "epochs_scale": 1.0, "norm": "bn", "head": "fixed"}
    known |= {"memory": memory, "first": dict(RECIPE), "rest": RECIPE | (rest or {}), "stream": f"{order:08}"}
    return Report(
        settings=known | settings,
        names=list(names),
        evaluated_after=list(range(1, evaluations + 1)),
        n_seen=[1, len(names)][-evaluations:],
        accuracy=([[accuracy] + [None] * (len(names) - 1)] + [[accuracy] * len(names)])[-evaluations:],
        confusion=[[int(row == column) * 10 for column in names] for row in names],
        phase_seconds={"I": 0.25 * seconds, "II": 0.75 * seconds},
        part_seconds={"csf": seconds},
        memory_bytes=0 if memory is None else 2_500_000,
        versions={"triphase": "0", "torch": "2"},
    )


def write(folder: Path, *reports: Report) -> Path:
    """Runs in a folder of their own each, as `run` leaves them."""
    for number, report in enumerate(reports):
        run = folder / f"run{number}"
        run.mkdir(parents=True)
        (run / "report.json").write_text(json.dumps(report.to_json()))
        (run / "settings.json").write_text(json.dumps(report.settings))
    return folder


def entry(*reports: Report) -> Entry:
    settings = reports[0].settings
    runs = tuple(Run(Path(), report) for report in reports)
    return Entry(settings["benchmark"], settings["learner"], True, "", runs)


def cell(table: Table, learner: str, column: str) -> Cell:
    (row,) = (row for row in table.rows if row[0].text == learner)
    return row[table.header.index(column)]


@pytest.fixture
def three_orders(tmp_path: Path) -> Gathered:
    runs = [make("tpc", a, order=o, seconds=200) for o, a in ((1, 0.50), (2, 0.52), (3, 0.54))]
    runs += [make("ar1", a, order=o, seconds=100) for o, a in ((1, 0.45), (2, 0.47), (3, 0.49))]
    return gather([write(tmp_path / "runs", *runs, make("joint", 0.8))])


# The paper's numbers


def test_brackets_and_overall_are_those_that_the_paper_prints() -> None:
    printed = {"ar1": "0.95 0.97 0.91 0.98", "bic": "0.78 0.81 1.00 0.51", "derpp": "0.97 0.94 0.93 0.99"}
    for learner, brackets in printed.items():
        found = [f"{paper.ratio(paper.AMCA, learner, benchmark):.2f}" for benchmark in paper.BENCHMARKS]
        assert found == brackets.split()
    for name, table in (("amca", paper.AMCA), ("final", paper.FINAL), ("time", paper.SECONDS)):
        for learner, overall in paper.OVERALL[name].items():
            mean = sum(paper.ratio(table, learner, benchmark) for benchmark in paper.BENCHMARKS) / 4
            assert mean == pytest.approx(overall, abs=0.011)


def test_the_ablation_starts_from_the_main_table() -> None:
    assert paper.ABLATION["core50-41", True][""] == paper.AMCA["tpc"]["core50-41"]


# Tables


def test_a_cell_has_our_mean_the_ratio_the_papers_number_and_the_difference(three_orders: Gathered) -> None:
    table = compared(three_orders, AMCA)
    ours = cell(table, "AR1", "CORe50 41/10-1")
    assert ours.text == "47.00 ± 2.00 % (0.90)" and ours.under == "paper 48.03 % (0.95), −1.03"
    assert not ours.best and cell(table, "TPC", "CORe50 41/10-1").best
    assert cell(table, "TPC", "CORe50 41/10-1").text == "52.00 ± 2.00 % (1.00)"


def test_what_was_not_run_says_so_and_still_shows_the_paper(three_orders: Gathered) -> None:
    table = compared(three_orders, FINAL)
    assert table.header[1:] == [
        "CORe50 41/10-1",
        "ImageNet 100/10-10",
        "CIFAR100 11/50-5",
        "CORe50 NICv2 391/10-1",
        "Overall",
    ]
    assert cell(table, "BiC", "CORe50 41/10-1") == Cell("not run", "paper 52.59 % (0.67)")
    assert cell(table, "TPC", "ImageNet 100/10-10") == Cell("not run", "paper 29.46 % (1.00)")
    assert cell(table, "BiC", "Overall") == Cell("not run", "paper 0.49")
    assert cell(table, "AR1", "Overall").under.startswith("paper 0.93, ")


def test_other_benchmarks_need_no_columns_of_the_paper(tmp_path: Path) -> None:
    table = compared(gather([write(tmp_path, make("tpc", 0.5, benchmark="digits-5"))]), AMCA)
    assert table.header == ["AMCA ↑", "Digits 5/2-2", "Overall"]
    assert [row[0].text for row in table.rows] == ["AR1", "BiC", "DER++", "TPC"]


def test_joint_training_has_no_amca_and_is_never_the_best(three_orders: Gathered) -> None:
    assert cell(compared(three_orders, AMCA), "Joint training", "CORe50 41/10-1").text == "–"
    final = compared(three_orders, FINAL)
    assert cell(final, "Joint training", "CORe50 41/10-1").text == "80.00 % (1.54)"
    assert not cell(final, "Joint training", "CORe50 41/10-1").best and cell(final, "TPC", "CORe50 41/10-1").best
    assert cell(compared(three_orders, FORGETTING), "Joint training", "CORe50 41/10-1").text == "–"


def test_less_time_is_better_and_only_multiples_are_compared(three_orders: Gathered) -> None:
    table = compared(three_orders, TIME)
    assert cell(table, "AR1", "CORe50 41/10-1") == Cell(
        "100 ± 0 s (0.50)", "paper 257 s (0.97), ratio −0.47", best=True
    )
    assert cell(table, "AR1", "Overall").best


def test_overall_is_the_mean_of_the_ratios(tmp_path: Path) -> None:
    runs = [make("tpc", 0.5), make("ar1", 0.4), make("tpc", 0.5, benchmark="digits-5")]
    runs += [make("ar1", 0.6, benchmark="digits-5"), make("bic", 0.9, benchmark="digits-5")]
    table = compared(gather([write(tmp_path, *runs)]), AMCA)
    assert cell(table, "AR1", "Overall").text == "1.00 (of 2)"
    bic = cell(table, "BiC", "Overall")
    assert bic.text == "1.80 (of 1)" and not bic.best, "an average over fewer benchmarks does not compete"


def test_records_hold_the_numbers_in_full(three_orders: Gathered) -> None:
    table = compared(three_orders, AMCA)
    rows = list(csv.DictReader(io.StringIO(table.csv())))
    (ar1,) = (row for row in rows if row["learner"] == "AR1" and row["benchmark"] == "core50-41")
    assert float(ar1["mean"]) == pytest.approx(47) and float(ar1["std"]) == pytest.approx(2)
    assert float(ar1["difference"]) == pytest.approx(-1.03) and ar1["runs"] == "3"
    (bic,) = (row for row in rows if row["learner"] == "BiC" and row["benchmark"] == "core50-41")
    assert bic["mean"] == "" and bic["runs"] == "0" and float(bic["paper"]) == 39.29


def test_markdown_has_a_line_per_learner_and_bold_for_the_best(three_orders: Gathered) -> None:
    lines = compared(three_orders, AMCA).markdown().splitlines()
    rows = [line for line in lines if line.startswith("| ")]
    assert len(rows) == 1 + 5 and len({line.count("|") for line in rows}) == 1
    assert any(line.startswith("| TPC | **52.00 ± 2.00 % (1.00)**<br>paper 50.46 %") for line in rows)


def test_memory_is_told_in_bytes(three_orders: Gathered) -> None:
    table = compared(three_orders, MEMORY)
    assert cell(table, "TPC", "CORe50 41/10-1").text == "2.5 MB"
    assert cell(table, "Joint training", "CORe50 41/10-1").text == "none"


def test_a_learner_nobody_heard_of_stands_beside_tpc(tmp_path: Path) -> None:
    runs = [make(name, 0.5) for name in ("joint", "newcomer", "tpc", "ncm")]
    gathered = gather([write(tmp_path, *runs)])
    names = [row[0].text for row in compared(gathered, FINAL).rows]
    assert names == ["AR1", "BiC", "DER++", "TPC", "newcomer", "NCM", "Joint training"]
    assert colour_of("newcomer") == colour_of("newcomer") != colour_of("tpc")


def test_an_ablation_compares_on_the_orders_that_all_were_run_on(tmp_path: Path) -> None:
    runs = [make("tpc", a, order=o) for o, a in ((1, 0.5), (2, 0.9), (3, 0.7))]
    runs += [make("tpc", 0.4, bc="none"), make("tpc", 0.3, memory=None)]
    gathered = gather([write(tmp_path, *runs)])
    table, bare = ablation(gathered), no_replay(gathered)
    assert table is not None and bare is not None
    assert cell(compared(gathered, AMCA), "TPC", "CORe50 41/10-1").text == "70.00 ± 20.00 % (1.00)"
    assert cell(table, "CORe50 41/10-1", "Full algorithm").text == "50.00 %"
    assert cell(bare, "TPC", "CORe50 41/10-1: AMCA ↑").text == "50.00 % (1.00)"


def test_ablations_and_runs_without_replay_are_told_apart_by_their_settings(tmp_path: Path) -> None:
    runs = [make("tpc", 0.5), make("tpc", 0.4, bc="none"), make("tpc", 0.45, masking="none")]
    runs += [make("tpc", 0.3, memory=None), make("tpc", 0.1, memory=None, bc="none"), make("ar1", 0.2, memory=None)]
    runs += [
        make("tpc", 0.44, rest={"weight_decay": 0.0}),
        make("derpp", 0.3),
        make("derpp", 0.2, rest={"trainable": "all"}),
    ]
    gathered = gather([write(tmp_path, *runs)])
    table = ablation(gathered)
    assert table is not None
    assert cell(table, "CORe50 41/10-1", "No bias correction") == Cell("40.00 %", "paper 48.08 %, −8.08")
    assert cell(table, "CORe50 41/10-1", "No Phase III") == Cell("not run", "paper 49.58 %")
    assert cell(table, "CORe50 41/10-1", "Weight decay = 0.0").text == "44.00 %"
    assert cell(table, "CORe50 41/10-1 (no replay)", "No bias correction").text == "10.00 %"
    assert cell(table, "CORe50 41/10-1 (no replay)", "Full algorithm").under == "paper 44.50 %, −14.50"
    assert cell(table, "CORe50 41/10-1 (no replay)", "No Phase III") == Cell("–")
    bare = no_replay(gathered)
    assert bare is not None and [row[0].text for row in bare.rows] == [
        "TPC",
        "AR1",
        "AR1 (no replay)",
        "TPC (no replay)",
    ]
    paired = {row[1].text: row[1].under for row in differences(gathered).rows}
    assert paired["AR1 (no replay)"] == "minus TPC (no replay)" and paired["TPC (no bias correction)"] == ""
    assert paired["TPC (no replay)"] == ""
    main = compared(gathered, AMCA)
    assert cell(main, "TPC", "CORe50 41/10-1").text == "50.00 % (1.00)"
    assert cell(main, "AR1", "CORe50 41/10-1").text == "not run"
    assert cell(main, "DER++ (llf learns too)", "CORe50 41/10-1").text == "20.00 % (0.40)"


# What is averaged and what is refused


def test_runs_of_different_settings_are_not_averaged(tmp_path: Path) -> None:
    write(tmp_path, make("tpc", 0.5), make("tpc", 0.6, order=2, rest={"epochs": 8, "lr": 0.3}))
    with pytest.raises(
        Mismatch, match=r"run0 and .*run1 are runs of TPC on core50-41 .*rest.epochs 4 and 8; rest.lr 0.1 and 0.3"
    ):
        gather([tmp_path])


def test_runs_over_different_classes_are_not_averaged(tmp_path: Path) -> None:
    others = ("cup", "can", "plum")
    write(tmp_path, make("tpc", 0.5), make("tpc", 0.6, order=2, names=others))
    with pytest.raises(Mismatch, match=r"run0 and .*run1 .* over different classes: only one of them knows 'ball'"):
        gather([tmp_path])


def test_a_first_experience_learned_elsewhere_counts_as_learned_here(tmp_path: Path) -> None:
    shared = make("ar1", 0.6, order=2, first=RECIPE | {"epochs": 0}, first_from={"weights": "abc", "epochs": 4})
    beginning = make("finetune", 0.9, experiences=1)
    gathered = gather([write(tmp_path, make("ar1", 0.5), shared, beginning)])
    assert [(e.learner, e.orders) for e in gathered.entries] == [("ar1", [1, 2])]


def test_a_run_given_twice_counts_once_unless_its_results_differ(tmp_path: Path) -> None:
    write(tmp_path / "a", make("tpc", 0.5))
    write(tmp_path / "b", make("tpc", 0.5, threads=1))
    gathered = gather([tmp_path, tmp_path / "a" / "run0"])
    assert [len(entry.runs) for entry in gathered.entries] == [1]
    write(tmp_path / "c", make("tpc", 0.51))
    with pytest.raises(Mismatch, match="order 1, seed 0, but their results differ"):
        gather([tmp_path])


def sweep(folder: Path, tests: bool) -> Path:
    """A sweep over two rates: the grid on order 0, then the better rate on orders 1 and 2."""
    grid = [make("tpc", 0.5, order=0, rest={"lr": 0.1}), make("tpc", 0.6, order=0, rest={"lr": 0.3})]
    write(folder, *grid, *(make("tpc", 0.55, order=order, rest={"lr": 0.3}) for order in (1, 2)))
    cells = [{"setting": {"lr": lr}, "run": run} for lr, run in ((0.1, "run0"), (0.3, "run1"))]
    later = [{"order": order, "run": f"run{order + 1}"} for order in (1, 2)] if tests else []
    part = {"chosen": {"lr": 0.3}, "grid": cells, "tests": later}
    (folder / "sweep.json").write_text(json.dumps({"orders": [0, 1], "benchmarks": {"core50-41": {"tpc": part}}}))
    return folder


def test_a_sweeps_grid_is_left_out_of_the_mean(tmp_path: Path) -> None:
    (found,) = gather([sweep(tmp_path, tests=True)]).entries
    assert found.orders == [1, 2] and found.values("amca") == pytest.approx([0.55, 0.55])


def test_the_best_of_a_grid_stands_in_where_nothing_else_was_run_and_the_report_says_so(tmp_path: Path) -> None:
    gathered = gather([sweep(tmp_path / "sweep", tests=False)])
    assert [entry.values("amca") for entry in gathered.entries] == [pytest.approx([0.6])]
    assert "Tuned on the very order that is shown: TPC." in departures(gathered)[0]


def test_an_ablations_summary_names_its_runs(tmp_path: Path) -> None:
    write(tmp_path, make("tpc", 0.5), make("tpc", 0.4, bc="none"), make("tpc", 0.3, order=0, rest={"lr": 0.9}))
    columns = {name: {"tests": [{"order": 1, "run": run}]} for name, run in (("full", "run0"), ("none", "run1"))}
    parts = {"replay": {"lr": 0.1, "columns": columns}, "no replay": {"lr": None, "columns": {}, "grid": []}}
    (tmp_path / "ablation.json").write_text(json.dumps({"orders": [0, 1], "benchmarks": {"core50-41": parts}}))
    assert [e.change for e in gather([tmp_path]).entries] == ["", "no bias correction"]


def test_an_ablation_on_the_order_of_its_search_is_tuned_there(tmp_path: Path) -> None:
    write(tmp_path, make("tpc", 0.5, order=0, memory=None))
    for n_tried, tuned in ((1, False), (2, True)):
        column = {"tests": [{"order": 0, "run": "run0"}]}
        part = {"lr": 0.1, "columns": {"full": column}, "grid": [{"setting": {"lr": 0.1}}] * n_tried}
        document = {"orders": [0], "benchmarks": {"core50-41": {"no replay": part}}}
        (tmp_path / "ablation.json").write_text(json.dumps(document))
        (found,) = gather([tmp_path]).entries
        assert found.runs[0].tuned_here == tuned


def test_bad_input_gets_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(BadData, match="There is no folder .*nowhere"):
        gather([tmp_path / "nowhere"])
    with pytest.raises(BadData, match="There is no finished run in"):
        gather([tmp_path])
    write(tmp_path / "old", make("tpc", 0.5))
    report = tmp_path / "old" / "run0" / "report.json"
    report.write_text("{}")
    with pytest.raises(CorruptState, match="old/run0/report.json is not a report that this version can read"):
        gather([tmp_path])
    report.write_text("{")
    with pytest.raises(CorruptState, match="is damaged"):
        gather([tmp_path])
    (tmp_path / "sweep.json").write_text('{"benchmarks": {"core50-41": {"tpc": 3}}}')
    with pytest.raises(CorruptState, match="sweep.json is not the summary of a sweep"):
        gather([tmp_path])


def test_unfinished_runs_are_named(tmp_path: Path) -> None:
    write(tmp_path, make("tpc", 0.5), make("ar1", 0.5))
    (tmp_path / "run1" / "report.json").unlink()
    gathered = gather([tmp_path])
    assert [e.learner for e in gathered.entries] == ["tpc"] and "run1." in conditions(gathered)[-1]
    (tmp_path / "run0" / "report.json").unlink()
    with pytest.raises(BadData, match=r"\(2 unfinished\)"):
        gather([tmp_path])


# Notes


def test_shortened_schedules_and_subsets_are_told(tmp_path: Path) -> None:
    short = make("tpc", 0.5, rest={"epochs": 3}, epochs_scale=0.1, per_class=100, image_size=64, classes="0-49")
    (note,) = departures(gather([write(tmp_path, short)]))
    for words in (
        "CORe50 41/10-1",
        "100 training images a class",
        "classes 0-49 alone",
        "schedule × 0.1",
        "3 epochs instead of 4",
    ):
        assert words in note
    assert "64 px instead of 128" in note


def test_a_benchmark_run_as_published_has_nothing_to_tell(three_orders: Gathered) -> None:
    assert departures(three_orders) == []
    (note,) = conditions(three_orders)
    assert "class orders 1, 2, 3 (Joint training: 1)" in note


def test_other_data_and_other_threads_are_told(tmp_path: Path) -> None:
    runs = [make("tpc", 0.5, threads=1), make("ar1", 0.5, stream="other", threads=1), make("bic", 0.5, threads=2)]
    (note,) = departures(gather([write(tmp_path, *runs)]))
    assert "Unequal conditions: AR1 has learned other data." in note
    assert "Unequal conditions: BiC has threads 2." in note


def test_a_learner_without_its_memory_is_no_rival_with_one(tmp_path: Path) -> None:
    runs = [make("tpc", 0.5), make("anchored", 0.6, memory=None), make("ncm", 0.3, rest={"trainable": "all"})]
    found = {e.learner: (e.replay, e.change) for e in gather([write(tmp_path, *runs)]).entries}
    assert found == {"tpc": (True, ""), "anchored": (False, ""), "ncm": (True, "")}


def test_learners_of_fewer_classes_have_shorter_rows_in_the_figure(tmp_path: Path) -> None:
    runs = [make("tpc", 0.5), make("ar1", 0.5, names=("cup", "can"))]
    write_report([write(tmp_path / "runs", *runs)], tmp_path / "report")
    assert list((tmp_path / "report" / "figures").glob("*-forgetting.png"))


def test_joint_training_is_shown_with_the_schedule_that_it_had(tmp_path: Path) -> None:
    runs = [make(learner, 0.5, rest={"epochs": 9, "n_mbe": 7}) for learner in ("tpc", "joint")]
    tpc, joint = what_was_run(gather([write(tmp_path, *runs)])).records
    assert (tpc["epochs"], tpc["minibatch"].split(":")[0]) == (9, "7")
    assert (joint["epochs"], joint["minibatch"].split(":")[0]) == (RECIPE["epochs"], str(RECIPE["n_mbe"]))


def test_unequal_conditions_are_told(tmp_path: Path) -> None:
    runs = [make("tpc", 0.5), make("ar1", 0.5, rest={"epochs": 9}), make("finetune", 0.2, rest={"n_mbr": 0})]
    (note,) = departures(gather([write(tmp_path, *runs)]))
    assert "Unequal conditions: AR1 has rest.epochs 9." in note and "Fine-tuning" not in note


def test_another_normalisation_and_another_weight_decay_are_told(tmp_path: Path) -> None:
    runs = [make("tpc", 0.5), make("ar1", 0.5, norm="brn"), make("bic", 0.5, rest={"weight_decay": 0.05})]
    (note,) = departures(gather([write(tmp_path, *runs)]))
    assert "AR1 has norm brn." in note and "BiC has rest.weight_decay 0.05." in note


def test_what_perfect_learning_would_reach_is_told_where_it_is_not_everything(tmp_path: Path) -> None:
    report = make("tpc", 0.5)
    assert "Perfect learning" not in " ".join(conditions(gather([write(tmp_path / "a", report)])))
    report.evaluation, report.n_seen = "all", [1, len(report.names)]
    report.accuracy = [[0.5] * len(report.names)] * 2
    (note,) = conditions(gather([write(tmp_path / "b", report)]))
    assert f"AMCA of {50 + 50 / len(report.names):.1f} %" in note


# Paired differences


def noisy(learner: str, order: int, shift: float, names: Sequence[str], spread: float = 0.1) -> Report:
    """Final accuracies that depend on the class and the order, the same for all learners but for the shift."""
    report = make(learner, 0.5, order=order, names=names)
    values = [0.3 + spread * (sum(map(ord, name)) % 7) / 7 + 0.02 * order + shift for name in names]
    report.accuracy = [[values[0]] + [None] * (len(names) - 1), list(values)]
    return report


@given(st.floats(-0.3, 0.3), st.lists(st.permutations(["a", "b", "c", "d", "e"]), min_size=1, max_size=4))
def test_a_constant_shift_is_found_exactly_whatever_the_classes_and_orders(
    shift: float, orders: list[list[str]]
) -> None:
    ours = entry(*(noisy("ar1", i, shift, names) for i, names in enumerate(orders)))
    tpc = entry(*(noisy("tpc", i, 0.0, names) for i, names in enumerate(orders)))
    for metric in ("amca", "final"):
        found = difference(ours, tpc, metric)
        assert found is not None and found.n == len(orders)
        assert (found.mean, *found.bootstrap) == pytest.approx((shift,) * 3)
        assert (found.over_orders is None) == (len(orders) == 1)
        if found.over_orders is not None:
            assert found.over_orders == pytest.approx((shift, shift))


def test_classes_are_paired_by_name_not_by_place() -> None:
    good = make("ar1", 0.5, names=("a", "b", "c", "d"))
    bad = make("tpc", 0.5, names=("d", "c", "b", "a"))
    good.accuracy[-1], bad.accuracy[-1] = [1.0, 0.0, 1.0, 0.0], [0.0, 1.0, 0.0, 1.0]
    found = difference(entry(good), entry(bad), "final")
    assert found is not None and found.bootstrap == (0.0, 0.0), "per class there is no difference at all"


def test_only_shared_occasions_are_paired() -> None:
    ours = entry(make("ar1", 0.6, order=1), make("ar1", 0.1, order=2))
    found = difference(ours, entry(make("tpc", 0.5, order=1), make("tpc", 0.5, order=3)), "final")
    assert found is not None and found.n == 1 and found.mean == pytest.approx(0.1)
    assert difference(ours, entry(make("tpc", 0.5, order=7)), "final") is None
    assert difference(entry(make("joint", 0.9)), entry(make("tpc", 0.5)), "amca") is None
    assert difference(entry(make("joint", 0.9)), entry(make("tpc", 0.5)), "final") is not None


def test_seeds_are_no_class_orders() -> None:
    """More seeds of the same three orders must not make the intervals narrower than the orders allow."""
    gains = {1: 0.04, 2: -0.02, 3: 0.03}
    found = []
    for n_seeds in (1, 5):
        runs = [(o, s, g + 1e-4 * s) for o, g in gains.items() for s in range(n_seeds)]
        ours = entry(*(make("ar1", 0.5 + gain, order=order, seed=seed) for order, seed, gain in runs))
        tpc = entry(*(make("tpc", 0.5, order=order, seed=seed) for order, seed, _ in runs))
        found.append(difference(ours, tpc, "final"))
    one, five = found
    assert one is not None and five is not None and (one.n, five.n) == (3, 15)
    assert one.over_orders is not None and five.over_orders == pytest.approx(one.over_orders, abs=1e-3)
    assert five.bootstrap == pytest.approx(one.bootstrap, abs=1e-3)


def test_the_bootstrap_covers_what_it_should() -> None:
    """Differences drawn from a normal distribution: the interval holds the true mean about 95 times in 100."""
    from triphase.randomness import generator

    names = [f"{i:02}" for i in range(40)]
    covered = 0
    for trial in range(60):
        ours, tpc = make("ar1", 0.5, names=names), make("tpc", 0.5, names=names)
        drawn = 0.55 + 0.1 * torch.randn(40, generator=generator(trial, "trial"))
        ours.accuracy[-1] = drawn.tolist()
        found = difference(entry(ours), entry(tpc), "final")
        assert found is not None
        covered += found.bootstrap[0] <= 0.05 <= found.bootstrap[1]
    assert covered >= 51


@given(st.integers(1, 60))
def test_students_t_is_that_of_scipy(degrees: int) -> None:
    stats = pytest.importorskip("scipy.stats")
    values = torch.arange(degrees + 1, dtype=torch.float64)
    interval = student(values)
    assert interval is not None
    half = stats.t.ppf(0.975, degrees) * float(values.std()) / (degrees + 1) ** 0.5
    assert (interval[1] - interval[0]) / 2 == pytest.approx(half, rel=2e-3)


def test_intervals_that_exclude_zero_are_bold(three_orders: Gathered) -> None:
    table = differences(three_orders)
    (row,) = (row for row in table.rows if row[1].text == "AR1")
    assert [c.text for c in row[2:5]] == ["3", "−5.00", "−5.00 to −5.00"] and row[4].best
    (joint,) = (row for row in table.rows if row[1].text.startswith("Joint"))
    assert [c.text for c in joint[3:6]] == ["–", "–", "–"] and joint[6].text == "+30.00"


def test_runs_evaluated_at_different_points_are_not_averaged(tmp_path: Path) -> None:
    one, two = make("tpc", 0.5, order=1), make("tpc", 0.5, order=2)
    for part in ("evaluated_after", "n_seen", "accuracy"):
        getattr(two, part).pop(0)
    with pytest.raises(Mismatch, match="evaluated after"):
        gather([write(tmp_path / "runs", one, two)])
    other = make("ar1", 0.4, order=1)
    for part in ("evaluated_after", "n_seen", "accuracy"):
        getattr(other, part).pop(0)
    notes = conditions(gather([write(tmp_path / "both", one, other)]))
    assert "Unequal conditions: AR1 has 1 evaluations" in " ".join(notes)


def test_learners_are_also_compared_with_the_recipe(tmp_path: Path) -> None:
    runs = [make(name, a) for name, a in (("tpc", 0.5), ("ar1", 0.4), ("anchored", 0.6), ("joint", 0.8))]
    runs.append(make("tpc", 0.3, bc="none"))
    table = differences(gather([write(tmp_path / "runs", *runs)]))
    found = {row[1].text: row[6].text for row in table.rows if row[1].under == "minus Anchored TPC"}
    assert found == {"TPC": "−10.00", "AR1": "−20.00", "Joint training": "+20.00"}


# Figures and the page


def test_the_report_is_one_page_that_needs_nothing_else_and_files_beside_it(tmp_path: Path) -> None:
    runs = [make(name, a, order=o) for name, a in (("tpc", 0.5), ("bic", 0.4)) for o in (1, 2)]
    runs += [make("joint", 0.8), make("tpc", 0.3, memory=None), make("tpc", 0.4, bc="none")]
    written = write_report([write(tmp_path / "runs", *runs)], tmp_path / "report")
    page = written.page.read_text()
    assert "http" not in page and "<script" not in page and "<link" not in page and "@import" not in page
    assert not re.search(r"""(src|href)=["'](?!#|data:)""", page)
    assert "prefers-color-scheme: dark" in page and "currentColor" in page
    for words in ("AMCA", "not run", "paper 50.46 %", "DER++", "Joint training", "No bias correction", "Memory"):
        assert words in page
    figures = {path.stem for path in (tmp_path / "report" / "figures").glob("*.png")}
    wanted = {"accuracy", "no-replay", "paired", "forgetting", "confusion", "phases", "parts"}
    assert figures == {f"core50-41-{name}" for name in wanted}
    for name in figures:
        assert f'<figure id="{name}">' in page
        with Image.open(tmp_path / "report" / "figures" / f"{name}.png") as picture:
            assert picture.width > 800
        ET.parse(tmp_path / "report" / "figures" / f"{name}.svg")
    tables = {path.name for path in (tmp_path / "report" / "tables").iterdir()}
    assert tables - {"classes.csv"} == {
        f"{table.name}.{kind}" for table in all_tables(written.gathered) for kind in ("csv", "md")
    }


def test_every_class_has_its_accuracy_and_forgetting_on_file(tmp_path: Path) -> None:
    run = make("tpc", 0.5)
    run.accuracy = [[0.9, None, None], [0.4, 0.5, 0.6]]
    again = make("tpc", 0.5, order=2, names=("can", "cup", "ball"))
    again.accuracy = [[0.5, None, None], [0.5, 0.2, 0.6]]
    records = class_records(gather([write(tmp_path, run, again)]))
    found = {record["class"]: (record["final"], record["forgetting"]) for record in records}
    assert found["cup"] == pytest.approx((30, 50)) and found["can"] == pytest.approx((50, 0))
    assert found["ball"] == (pytest.approx(60), None)


def test_names_cannot_break_the_page(tmp_path: Path) -> None:
    run = make("<b>&|$new", 0.5, benchmark="a/b <i>:1", names=("<x>", "$y$", "z_"))
    written = write_report([write(tmp_path / "runs", run)], tmp_path / "report")
    page = written.page.read_text()
    assert "<b>&|$new" not in page and "&lt;b&gt;&amp;|$new" in page and "<i>:1" not in page
    assert r"<b>&\|$new" in (tmp_path / "report" / "tables" / "amca.md").read_text()


def test_a_template_is_utf8_whatever_the_system_prefers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("io.text_encoding", lambda encoding, stacklevel=2: encoding or "cp1252")
    row = {"learner": "Joint training", "amca": None, "final": 0.5, "seconds": 1.0, "memory_bytes": 0}
    page = render("demo.html", title="", command="", rows=[row], pictures={}, versions={})
    assert "<td>–</td>" in page


def test_a_figure_is_the_same_whenever_it_is_drawn() -> None:
    entries = [entry(make("tpc", 0.5), make("tpc", 0.6, order=2)), entry(make("joint", 0.9))]
    assert svg(curves(entries)) == svg(curves(entries))


def test_the_command_answers_with_one_document_or_a_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("triphase.bench.report.write.all_figures", lambda gathered: [])  # they take seconds
    app = typer.Typer()
    app.command()(report_command)
    runs, out = write(tmp_path / "runs", make("tpc", 0.5), make("ar1", 0.4)), tmp_path / "report"
    answer = CliRunner().invoke(app, [str(runs), "--out", str(out), "--json"])
    document = json.loads(answer.output)
    assert document["report"] == str(out / "report.html") and document["notes"]
    (ar1,) = (r for r in document["tables"]["amca"] if r["learner"] == "AR1" and r["benchmark"] == "core50-41")
    assert ar1["mean"] == pytest.approx(40) and ar1["ratio_to_tpc"] == pytest.approx(0.8)
    answer = CliRunner().invoke(app, [str(runs), "--out", str(out)])
    assert answer.exit_code == 0 and "not run" in answer.output and "report.html" in answer.output


def test_runs_over_a_stream_of_ones_own_are_compared(tmp_path: Path) -> None:
    for name, learner in (("tpc", TPC(tiny_model(), Memory(12))), ("ft", FineTune(tiny_model()))):
        run(learner, tiny_stream(), first=Recipe(epochs=3, lr=0.01, n_mbe=8), out=tmp_path / name)
    write_report([tmp_path], tmp_path / "report")
    assert "stream " in (tmp_path / "report" / "report.html").read_text(encoding="utf-8")
