"""Loading finished runs: alone, in folders, or named by a sweep."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fake_reports import RECIPE, make, write
from triphase.bench.report.caveats import conditions, departures
from triphase.bench.report.group import group_runs
from triphase.bench.run.directory import record_diverged
from triphase.errors import BadData, CorruptState


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
    (found,) = group_runs([sweep(tmp_path, tests=True)]).groups
    assert found.orders == [1, 2] and found.values("amca") == pytest.approx([0.55, 0.55])


def test_the_best_of_a_grid_stands_in_where_nothing_else_was_run_and_the_report_says_so(tmp_path: Path) -> None:
    grouped = group_runs([sweep(tmp_path / "sweep", tests=False)])
    assert [entry.values("amca") for entry in grouped.groups] == [pytest.approx([0.6])]
    assert "Tuned on the very order that is shown: TPC." in departures(grouped)[0]


def test_an_ablations_summary_names_its_runs(tmp_path: Path) -> None:
    write(tmp_path, make("tpc", 0.5), make("tpc", 0.4, bc="none"), make("tpc", 0.3, order=0, rest={"lr": 0.9}))
    columns = {name: {"tests": [{"order": 1, "run": run}]} for name, run in (("full", "run0"), ("none", "run1"))}
    parts = {"replay": {"lr": 0.1, "columns": columns}, "no replay": {"lr": None, "columns": {}, "grid": []}}
    (tmp_path / "ablation.json").write_text(json.dumps({"orders": [0, 1], "benchmarks": {"core50-41": parts}}))
    assert [e.change for e in group_runs([tmp_path]).groups] == ["", "no bias correction"]


def test_an_ablation_on_the_order_of_its_search_is_tuned_there(tmp_path: Path) -> None:
    write(tmp_path, make("tpc", 0.5, order=0, memory=None))
    for n_tried, tuned in ((1, False), (2, True)):
        column = {"tests": [{"order": 0, "run": "run0"}]}
        part = {"lr": 0.1, "columns": {"full": column}, "grid": [{"setting": {"lr": 0.1}}] * n_tried}
        document = {"orders": [0], "benchmarks": {"core50-41": {"no replay": part}}}
        (tmp_path / "ablation.json").write_text(json.dumps(document))
        (found,) = group_runs([tmp_path]).groups
        assert found.runs[0].tuned_here == tuned


def test_bad_input_gets_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(BadData, match="There is no folder .*nowhere"):
        group_runs([tmp_path / "nowhere"])
    with pytest.raises(BadData, match="There is no finished run in"):
        group_runs([tmp_path])
    write(tmp_path / "old", make("tpc", 0.5))
    report = tmp_path / "old" / "run0" / "report.json"
    report.write_text("{}")
    with pytest.raises(CorruptState, match="old/run0/report.json is not a report that this version can read"):
        group_runs([tmp_path])
    report.write_text("{")
    with pytest.raises(CorruptState, match="is damaged"):
        group_runs([tmp_path])
    (tmp_path / "sweep.json").write_text('{"benchmarks": {"core50-41": {"tpc": 3}}}')
    with pytest.raises(CorruptState, match="sweep.json is not the summary of a sweep"):
        group_runs([tmp_path])


def test_unfinished_runs_are_named(tmp_path: Path) -> None:
    write(tmp_path, make("tpc", 0.5), make("ar1", 0.5))
    (tmp_path / "run1" / "report.json").unlink()
    grouped = group_runs([tmp_path])
    assert [e.learner for e in grouped.groups] == ["tpc"] and "run1." in conditions(grouped)[-1]
    (tmp_path / "run0" / "report.json").unlink()
    with pytest.raises(BadData, match=r"\(2 unfinished\)"):
        group_runs([tmp_path])


def test_runs_that_diverged_are_a_caveat(tmp_path: Path) -> None:
    folder = sweep(tmp_path, tests=True)
    document = json.loads((folder / "sweep.json").read_text())
    document["benchmarks"]["core50-41"]["tpc"]["grid"][0]["diverged"] = "It diverged."
    (folder / "sweep.json").write_text(json.dumps(document))
    (folder / "run0" / "report.json").unlink()
    record_diverged(folder / "run0", "It diverged.")
    caveat = conditions(group_runs([folder]))[-1]
    assert caveat.startswith("Diverged, and left out: ") and caveat.endswith("run0.")
    with pytest.raises(BadData, match=r"\(1 diverged\)"):
        group_runs([folder / "run0"])


def test_a_first_experience_learned_elsewhere_counts_as_learned_here(tmp_path: Path) -> None:
    shared = make("ar1", 0.6, order=2, first=RECIPE | {"epochs": 0}, first_from={"weights": "abc", "epochs": 4})
    beginning = make("finetune", 0.9, experiences=1)
    grouped = group_runs([write(tmp_path, make("ar1", 0.5), shared, beginning)])
    assert [(e.learner, e.orders) for e in grouped.groups] == [("ar1", [1, 2])]
