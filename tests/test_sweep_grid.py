"""Grid search: which runs, and what is chosen."""

from __future__ import annotations

import json
from collections import Counter
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweep_results import FOUR, OUT, results_of
from triphase.bench.benchmarks import BENCHMARKS, find
from triphase.bench.learners import LEARNER_SPECS
from triphase.bench.report.paper import COLUMNS as PAPER_BENCHMARKS
from triphase.bench.sweep.ablation import Ablation
from triphase.bench.sweep.grid import Sweep, grid
from triphase.bench.sweep.jobs import Result
from triphase.errors import InvalidValue


@pytest.mark.parametrize(("name", "n"), list(zip(PAPER_BENCHMARKS, (55, 33, 66, 55), strict=True)))
def test_the_grids_are_as_large_as_the_papers(name: str, n: int) -> None:
    assert sum(len(grid(BENCHMARKS[name], learner, "paper")) for learner in FOUR) == n


def test_the_papers_four_benchmarks_take_257_runs(tmp_path: Path) -> None:
    schedule = Sweep(tmp_path, PAPER_BENCHMARKS, FOUR)
    rows = schedule.planned()
    tests = [row for row in rows if "chosen" in row.text]
    assert (len(rows), len(rows) - len(tests), len(tests)) == (257, 209, 48)
    whole = [c for c in results_of(schedule, {}) if c.options.experiences is None]
    assert len(whole) == 257 and len({c.directory for c in whole}) == 257
    assert Counter((c.benchmark, c.options.learner) for c in whole) == Counter(row[:2] for row in rows)
    assert not list(tmp_path.iterdir())


def test_the_grid_can_be_the_learning_rates_alone_or_hold_more() -> None:
    benchmark = find("core50-41")
    for learner in (*FOUR, "replay", "finetune", "joint"):
        assert grid(benchmark, learner, "lr") == [{"lr": lr} for lr in benchmark.lr_grid]
    assert grid(benchmark, "joint", "paper") == [{}]
    both = grid(benchmark, "ar1", "all")
    assert [(s["lr"], s["mean"]) for s in both] == list(product(benchmark.lr_grid, ("global", "class")))
    assert grid(benchmark, "tpc", "all", lrs=(0.3, 0.1)) == [{"lr": 0.3}, {"lr": 0.1}]


def test_other_streams_search_the_options_of_rivals_too() -> None:
    own = find("cifar100:46/10-2")
    searched = [len(grid(own, learner, "paper")) // len(own.lr_grid) for learner in FOUR]
    assert dict(zip(FOUR, searched, strict=True)) == {"tpc": 1, "ar1": 1, "bic": 2, "derpp": 6}


@pytest.mark.parametrize("learner", ["ncm", "slda", "ranpac"])
@pytest.mark.parametrize("search", ["paper", "lr", "all"])
def test_closed_forms_have_nothing_to_search(learner: str, search: Any) -> None:
    assert grid(find("cifar100-11"), learner, search) == [{}]


def test_an_option_that_is_given_is_not_searched() -> None:
    schedule = Sweep(OUT, ("core50-41",), FOUR, own=(("alpha", 0.3),))
    settings = schedule.settings("core50-41", "derpp")
    assert len(settings) == 10 and all("alpha" not in s for s in settings)
    assert schedule.job("core50-41", "derpp", 0, settings[0]).options.own == {"alpha": 0.3, "beta": 0.5}
    assert schedule.job("core50-41", "tpc", 0, {"lr": 0.1}).options.own == {}
    with pytest.raises(InvalidValue, match="None of tpc, ar1 has an option shrinkage"):
        Sweep(OUT, ("core50-41",), ("tpc", "ar1"), own=(("shrinkage", 0.1),))


@given(st.permutations([0.1, 0.2, 0.3]))
def test_the_setting_with_the_highest_amca_goes_to_the_other_orders(amca: list[float]) -> None:
    schedule = Sweep(OUT, ("digits-5",), ("tpc",), (0, 1, 2))
    rates = BENCHMARKS["digits-5"].lr_grid
    results = results_of(schedule, {f"order0-lr{lr}": value for lr, value in zip(rates, amca, strict=True)})
    best = rates[amca.index(0.3)]
    assert schedule.chosen("digits-5", "tpc", results) == {"lr": best}
    tested = {(c.options.order, c.options.lr) for c in results if c.options.order}
    assert tested == {(1, best), (2, best)}


def test_nothing_is_chosen_while_a_part_of_the_grid_is_missing() -> None:
    schedule = Sweep(OUT, ("digits-5",), ("tpc",))
    grid_cells = schedule.jobs({})
    results = {c: Result(0.5, 0.5, 1.0) for c in grid_cells[1:]}
    assert schedule.chosen("digits-5", "tpc", results) is None and schedule.jobs(results) == grid_cells
    document = schedule.summary(results, {grid_cells[0]: "it broke"})
    entry = document["benchmarks"]["digits-5"]["tpc"]
    assert entry["chosen"] is None and entry["tests"] == [] and entry["amca"] == {"mean": None, "std": None}
    assert document["failed"] == {"digits-5/tpc-order0-lr0.02": "it broke"}


def test_nothing_is_chosen_where_every_setting_diverged() -> None:
    schedule = Sweep(OUT, ("digits-5",), ("tpc",), (0, 1))
    cells = schedule.jobs({})
    lost = Result(None, None, None, "It diverged.")
    assert schedule.chosen("digits-5", "tpc", dict.fromkeys(cells, lost)) is None
    results = {**dict.fromkeys(cells, lost), cells[1]: Result(0.1, 0.1, 1.0)}
    assert schedule.chosen("digits-5", "tpc", results) == {"lr": cells[1].options.lr}
    ablation = Ablation(OUT, ("digits-5",), {}, (0, 1), rows="no-replay")
    tried = ablation.jobs({})
    assert ablation.rate("digits-5", False, dict.fromkeys(tried, lost)) is None
    results = {**dict.fromkeys(tried, lost), tried[2]: Result(0.1, 0.1, 1.0)}
    assert ablation.rate("digits-5", False, results) == tried[2].options.lr


def test_the_record_has_mean_and_deviation_of_the_other_orders_alone() -> None:
    schedule = Sweep(OUT, ("digits-5",), ("slda",))
    results = results_of(schedule, {"order0": 0.9, "order1": 0.1, "order2": 0.2, "order3": 0.3})
    entry = schedule.summary(results, {})["benchmarks"]["digits-5"]["slda"]
    assert entry["amca"] == {"mean": pytest.approx(0.2), "std": pytest.approx(0.1)}
    assert entry["grid"][0]["amca"] == 0.9 and entry["grid"][0]["run"] == "digits-5/slda-order0"
    assert [test["order"] for test in entry["tests"]] == [1, 2, 3]
    json.dumps(entry, allow_nan=False)


def test_one_order_is_summed_up_by_what_was_chosen_on_it() -> None:
    schedule = Sweep(OUT, ("digits-5",), ("tpc",), (0,))
    results = {cell: Result(i / 10, i / 20, 1.0) for i, cell in enumerate(schedule.jobs({}), start=1)}
    entry = schedule.summary(results, {})["benchmarks"]["digits-5"]["tpc"]
    assert entry["amca"]["mean"] == max(r.amca or 0 for r in results.values()) and not entry["tests"]


def test_from_scratch_one_first_experience_serves_all_rates_and_closed_forms() -> None:
    schedule = Sweep(OUT, ("cifar100-11",), tuple(LEARNER_SPECS), (0, 1))
    firsts = [c for c in results_of(schedule, {}) if c.options.experiences is not None]
    assert [c.directory.name for c in firsts] == ["first-order0", "first-order1"]
    pretrained = Sweep(OUT, ("core50-41",), ("ar1", "derpp", "slda"), (0,))
    assert sum(c.options.experiences is not None for c in pretrained.jobs({})) == 5, "one for each rate"
