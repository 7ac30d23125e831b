"""Sweeps and ablations: which runs they are, in which order, and what happens when one of them fails."""

import json
import sys
from collections import Counter
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import typer
from hypothesis import given, settings
from hypothesis import strategies as st

from triphase import state as files
from triphase.bench.benchmarks import BENCHMARKS, find
from triphase.bench.datasets import parse_numbers
from triphase.bench.learners import LEARNERS
from triphase.bench.report.paper import BENCHMARKS as PAPERS
from triphase.bench.run.options import RunOptions
from triphase.bench.run.setup import make_stream
from triphase.bench.sweep import scheduler as cells_module
from triphase.bench.sweep.ablation import FULL, Ablation, chosen_lr, columns
from triphase.bench.sweep.grid import Sweep, grid
from triphase.bench.sweep.scheduler import (
    Cell,
    Result,
    Standing,
    arguments,
    cell,
    check_options,
    check_stream,
    with_first,
    work,
)
from triphase.cli.bench import bench
from triphase.cli.board import Board
from triphase.cli.options import overriding, parse_sets
from triphase.cli.sweep import _check_data
from triphase.directory_lock import locked
from triphase.errors import BadData, InvalidValue, Mismatch

FOUR = ("tpc", "ar1", "bic", "derpp")
OUT = Path("out")


def results_of(plan: Sweep | Ablation, amca: dict[str, float]) -> dict[Cell, Result]:
    """Results for all cells of a plan, as it unfolds; AMCA by a part of the directory's name."""
    results: dict[Cell, Result] = {}
    while todo := [c for c in plan.cells(results) if c not in results]:
        for c in todo:
            value = next((value for part, value in amca.items() if part in c.directory.name), 0.5)
            results[c] = Result(value, value, 1.0)
    return results


# Which runs


@pytest.mark.parametrize(("name", "n"), list(zip(PAPERS, (55, 33, 66, 55), strict=True)))
def test_the_grids_are_as_large_as_the_papers(name: str, n: int) -> None:
    assert sum(len(grid(BENCHMARKS[name], learner, "paper")) for learner in FOUR) == n


def test_the_papers_four_benchmarks_take_257_runs(tmp_path: Path) -> None:
    plan = Sweep(tmp_path, PAPERS, FOUR)
    rows = plan.rows()
    tests = [row for row in rows if "chosen" in row.text]
    assert (len(rows), len(rows) - len(tests), len(tests)) == (257, 209, 48)
    whole = [c for c in results_of(plan, {}) if c.options.experiences is None]
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


def test_streams_of_ones_own_search_what_rivals_need_as_well() -> None:
    own = find("cifar100:46/10-2")
    searched = [len(grid(own, learner, "paper")) // len(own.lr_grid) for learner in FOUR]
    assert dict(zip(FOUR, searched, strict=True)) == {"tpc": 1, "ar1": 1, "bic": 2, "derpp": 6}


@pytest.mark.parametrize("learner", ["ncm", "slda", "ranpac"])
@pytest.mark.parametrize("search", ["paper", "lr", "all"])
def test_closed_forms_have_nothing_to_search(learner: str, search: Any) -> None:
    assert grid(find("cifar100-11"), learner, search) == [{}]


def test_a_shorter_schedule_shortens_the_second_stage_of_bic_too() -> None:
    half = grid(find("cifar100-11"), "bic", "paper", scale=0.5)
    assert sorted({s["stage2_epochs"] for s in half}) == [25, 50, 75]
    tiny = grid(find("core50-41"), "bic", "paper", scale=0.1)
    assert [s["stage2_epochs"] for s in tiny] == [3] * 5, "equal settings are tried once"


def test_an_option_that_is_given_is_not_searched() -> None:
    plan = Sweep(OUT, ("core50-41",), FOUR, own=(("alpha", 0.3),))
    settings = plan.settings("core50-41", "derpp")
    assert len(settings) == 10 and all("alpha" not in s for s in settings)
    assert plan.cell("core50-41", "derpp", 0, settings[0]).options.own == {"alpha": 0.3, "beta": 0.5}
    assert plan.cell("core50-41", "tpc", 0, {"lr": 0.1}).options.own == {}
    with pytest.raises(InvalidValue, match="None of tpc, ar1 has an option shrinkage"):
        Sweep(OUT, ("core50-41",), ("tpc", "ar1"), own=(("shrinkage", 0.1),))


@given(st.permutations([0.1, 0.2, 0.3]))
def test_the_setting_with_the_highest_amca_goes_to_the_other_orders(amca: list[float]) -> None:
    plan = Sweep(OUT, ("digits-5",), ("tpc",), (0, 1, 2))
    rates = BENCHMARKS["digits-5"].lr_grid
    results = results_of(plan, {f"order0-lr{lr}": value for lr, value in zip(rates, amca, strict=True)})
    best = rates[amca.index(0.3)]
    assert plan.chosen("digits-5", "tpc", results) == {"lr": best}
    tested = {(c.options.order, c.options.lr) for c in results if c.options.order}
    assert tested == {(1, best), (2, best)}


def test_nothing_is_chosen_while_a_part_of_the_grid_is_missing() -> None:
    plan = Sweep(OUT, ("digits-5",), ("tpc",))
    grid_cells = plan.cells({})
    results = {c: Result(0.5, 0.5, 1.0) for c in grid_cells[1:]}
    assert plan.chosen("digits-5", "tpc", results) is None and plan.cells(results) == grid_cells
    document = plan.document(results, {grid_cells[0]: "it broke"})
    entry = document["benchmarks"]["digits-5"]["tpc"]
    assert entry["chosen"] is None and entry["tests"] == [] and entry["amca"] == {"mean": None, "std": None}
    assert document["failed"] == {"digits-5/tpc-order0-lr0.02": "it broke"}


def test_the_record_has_mean_and_deviation_of_the_other_orders_alone() -> None:
    plan = Sweep(OUT, ("digits-5",), ("slda",))
    results = results_of(plan, {"order0": 0.9, "order1": 0.1, "order2": 0.2, "order3": 0.3})
    entry = plan.document(results, {})["benchmarks"]["digits-5"]["slda"]
    assert entry["amca"] == {"mean": pytest.approx(0.2), "std": pytest.approx(0.1)}
    assert entry["grid"][0]["amca"] == 0.9 and entry["grid"][0]["run"] == "digits-5/slda-order0"
    assert [test["order"] for test in entry["tests"]] == [1, 2, 3]
    json.dumps(entry, allow_nan=False)


@pytest.mark.parametrize(
    ("text", "orders"), [("0-3", (0, 1, 2, 3)), ("2", (2,)), ("3,1", (3, 1)), ("0,4-6", (0, 4, 5, 6))]
)
def test_orders_are_read_as_people_write_them(text: str, orders: tuple[int, ...]) -> None:
    assert parse_numbers("--orders", text) == orders


@pytest.mark.parametrize("text", ["", "a", "3-1", "0-3,9-5", "1,1", "-1", "0-", "1.5", "0-99999999999", "¹"])
def test_orders_that_make_no_sense_are_refused(text: str) -> None:
    with pytest.raises(InvalidValue, match="--orders takes different numbers such as 0-3"):
        parse_numbers("--orders", text)


# The first experience


def test_learners_of_plain_cross_entropy_share_the_first_experience() -> None:
    benchmark = find("core50-41")
    firsts: dict[str, Cell | None] = {}
    for learner in LEARNERS:
        options = RunOptions(learner=learner, order=1, lr=0.02, memory=100)
        *first, own = with_first(OUT, benchmark, options)
        firsts[learner] = first[0] if first else None
        assert own.options == replace(options, first_from=first[0].directory if first else None)
    shared = {learner for learner, first in firsts.items() if first is not None}
    assert shared == {"ar1", "derpp", "finetune", "replay"}
    (one,) = {firsts[learner] for learner in shared}
    assert one is not None and one.options == RunOptions(learner="finetune", order=1, lr=0.02, experiences=1)
    online = RunOptions(learner="derpp", learner_options=(("logits", "online"),))
    assert len(with_first(OUT, benchmark, online)) == 1, "what is stored meanwhile cannot be shared"


def test_from_scratch_one_first_experience_serves_all_rates_and_closed_forms() -> None:
    plan = Sweep(OUT, ("cifar100-11",), tuple(LEARNERS), (0, 1))
    firsts = [c for c in results_of(plan, {}) if c.options.experiences is not None]
    assert [c.directory.name for c in firsts] == ["first-order0", "first-order1"]
    pretrained = Sweep(OUT, ("core50-41",), ("ar1", "derpp", "slda"), (0,))
    assert sum(c.options.experiences is not None for c in pretrained.cells({})) == 5, "one for each rate"


# Ablation


def test_the_ablation_follows_the_papers_protocol() -> None:
    """With replay at a given rate; without it after a search of its own; results from the other orders."""
    plan = Ablation(OUT, ("core50-41",), {"core50-41": 0.02})
    results = results_of(plan, {"order0-lr0.002-no-replay": 0.9})
    assert len(plan.rows()) == len(results) == 4 * 3 + 5 + 3 * 3
    searched = [c for c in results if c.options.order == 0]
    assert all(c.options.replay == "none" and c.options.own == {} for c in searched) and len(searched) == 5
    for c in results:
        if c not in searched:
            assert c.options.lr == (0.002 if c.options.replay == "none" else 0.02)
    document = plan.document(results, {})["benchmarks"]["core50-41"]
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
    ablation = Ablation(OUT, ("core50-41",), {"core50-41": 0.02}, which="replay")
    assert sweep.cell("core50-41", "tpc", 1, {"lr": 0.02}) in ablation.cells({})


@pytest.mark.parametrize("name", ["core50-41", "core50-nicv2-391", "cifar100:46/10-2"])
def test_more_columns_are_all_different_runs(name: str) -> None:
    benchmark = find(name)
    plan = Ablation(OUT, (name,), {name: 0.1}, (1,), more=True)
    results = results_of(plan, {})
    assert len(results) == len({c.directory for c in results}) == len(plan.rows())
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
    plan = Ablation(OUT, (name,), {name: 0.1}, (1,), base, "replay", more=True)
    shown = plan.document({}, {})["benchmarks"][name]["replay"]["columns"]
    assert gone not in shown and (new is None or new in shown) and len(plan.cells({})) == len(shown)


def test_one_order_is_summed_up_by_what_was_chosen_on_it() -> None:
    plan = Sweep(OUT, ("digits-5",), ("tpc",), (0,))
    results = {cell: Result(i / 10, i / 20, 1.0) for i, cell in enumerate(plan.cells({}), start=1)}
    entry = plan.document(results, {})["benchmarks"]["digits-5"]["tpc"]
    assert entry["amca"]["mean"] == max(r.amca for r in results.values()) and not entry["tests"]


def test_a_finished_sweep_is_not_gone_on_with_over_other_data(tmp_path: Path) -> None:
    plan = Sweep(tmp_path, ("digits-5",), ("ncm",), (0, 1), RunOptions(per_class=9))
    (cell,) = plan.cells({})
    files.make_directory(cell.directory)
    files.write_json(cell.directory / "report.json", {"settings": {"stream": "of other data"}})
    with pytest.raises(Mismatch, match="other data"):
        _check_data(plan, Path())


def test_a_run_over_other_data_is_refused(tmp_path: Path) -> None:
    plan = Sweep(tmp_path, ("digits-5",), ("ncm",), (0,))
    (cell,) = plan.cells({})
    now, other = (make_stream(find("digits-5"), RunOptions(per_class=n), Path(), 8) for n in (None, 9))
    check_stream(cell, now)
    files.make_directory(cell.directory)
    files.write_json(cell.directory / "report.json", {"settings": {"stream": now.fingerprint}})
    check_stream(cell, now)
    with pytest.raises(Mismatch, match=r"ncm-order0 was run on other data than these; delete it, or give another"):
        check_stream(cell, other)


def test_the_rate_of_a_sweep_is_taken_over_or_missed_in_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(BadData, match="no finished search of TPC's learning rate on digits-5.*--learners tpc"):
        chosen_lr(tmp_path, "digits-5")
    plan = Sweep(tmp_path, ("digits-5",), ("tpc",))
    results = results_of(plan, {"lr0.01": 0.9})
    files.write_json(tmp_path / "sweep.json", plan.document(results, {}))
    assert chosen_lr(tmp_path, "digits-5") == 0.01


# RunOptions as words


texts = st.sampled_from(["tpc", "single"])
given_options = st.builds(
    RunOptions,
    order=st.integers(0, 5),
    seed=st.integers(0, 9),
    epochs_scale=st.floats(0.01, 3),
    lr=st.none() | st.floats(1e-4, 1),
    weight_decay=st.none() | st.just(0.0),
    memory=st.none() | st.integers(0, 100),
    replay=st.sampled_from(["raw", "latent", "none"]),
    norm=st.sampled_from(["bn", "brn"]),
    weights=st.none() | st.just(Path("a b/c")),
    bfloat16=st.booleans(),
    compiled=st.booleans(),
    skip_bad=st.booleans(),
    experiences=st.none() | st.integers(1, 3),
    learner_options=st.fixed_dictionaries({}, optional={"t": st.floats(0, 1), "masking": texts}).map(
        lambda own: tuple(own.items())
    ),
)


@settings(max_examples=30)
@given(given_options)
def test_the_command_line_of_a_cell_says_all_its_options(options: RunOptions) -> None:
    run = typer.main.get_command(bench).commands["run"]  # type: ignore[attr-defined]
    values = run.make_context("run", ["digits-5", *arguments(options)]).params
    shared = overriding(**{name: values[name] for name in overriding.__annotations__ if name in values})
    own = {"order": values["order"], "experiences": values["experiences"], "learner": values["learner"]}
    assert replace(shared, **own, learner_options=parse_sets(values["option"])) == options


def test_a_folder_is_held_to_one_set_of_conditions(tmp_path: Path) -> None:
    check_options(tmp_path, RunOptions(epochs_scale=0.5), {})
    check_options(tmp_path, RunOptions(epochs_scale=0.5, order=2, lr=0.3), {})
    with pytest.raises(Mismatch, match=r"holds runs with epochs_scale 0\.5 \(now 0\.1\); give another --out"):
        check_options(tmp_path, RunOptions(epochs_scale=0.1), {})
    with pytest.raises(Mismatch, match=r"t not given \(now 0\.3\)"):
        check_options(tmp_path, RunOptions(epochs_scale=0.5), {"t": 0.3})


# Doing them


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> tuple[str, ...]:
    """A command in the place of `triphase` that only notes what it was asked, and fails on demand."""
    monkeypatch.setattr(cells_module, "POLL", 0.01)
    return (sys.executable, "-S", str(Path(__file__).with_name("fake_run.py")))


def done(out: Path) -> list[str]:
    return (out / "log").read_text().split()


@pytest.mark.parametrize("workers", [1, 3])
def test_every_run_is_done_once_and_never_again(fake: tuple[str, ...], tmp_path: Path, workers: int) -> None:
    plan = Sweep(tmp_path, ("digits-5",), ("ar1", "slda"), (0, 1))
    standing = work(plan, command=fake, workers=workers)
    assert not standing.failed and standing.seconds_left == 0.0
    assert {c.directory.name for c in standing.results} == set(done(tmp_path))
    # ar1: 3 rates with a first experience each and the best on order 1 with its own; slda: one run an order
    assert len(done(tmp_path)) == 3 * 2 + 2 + 2 == len(set(done(tmp_path)))
    again = work(plan, command=fake, workers=workers)
    assert again.results == standing.results and len(done(tmp_path)) == 10


def test_a_crashed_run_is_tried_once_more(
    fake: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TROUBLE", "tpc-order0-lr0.02:once")
    standing = work(Sweep(tmp_path, ("digits-5",), ("tpc",), (0, 1)), command=fake)
    assert not standing.failed and len(standing.results) == 4
    assert Counter(done(tmp_path))["tpc-order0-lr0.02"] == 2
    assert standing.warnings == [
        "warning: digits-5 tpc-order0-lr0.02 crashed (it ended with status 7) and is tried again."
    ]


def test_a_run_that_crashes_twice_is_named_and_the_rest_go_on(
    fake: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TROUBLE", "tpc-order0-lr0.02:crash")
    plan = Sweep(tmp_path, ("digits-5",), ("tpc", "slda"), (0, 1))
    standing = work(plan, command=fake)
    assert [(c.directory.name, why) for c, why in standing.failed.items()] == [
        ("tpc-order0-lr0.02", "it ended with status 7")
    ]
    assert Counter(done(tmp_path))["tpc-order0-lr0.02"] == 2
    assert {"slda-order0", "slda-order1"} <= set(done(tmp_path)), "another learner went on"
    assert "tpc-order1" not in " ".join(done(tmp_path)), "there is nothing to choose from"
    monkeypatch.delenv("TROUBLE")
    assert len(work(plan, command=fake).results) == 6, "and the next call mends it"


def test_a_refused_run_is_not_tried_again(
    fake: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TROUBLE", "first-order0:refuse")
    standing = work(Sweep(tmp_path, ("cifar100-11",), ("ar1",), (0, 1)), command=fake)
    assert list(standing.failed.values()) == ["There is no data."]
    assert done(tmp_path) == ["first-order0"], "what needs it is not begun"
    assert standing.warnings == ["warning: careful"]


def test_a_run_that_somebody_is_at_is_waited_for(fake: tuple[str, ...], tmp_path: Path) -> None:
    plan = Sweep(tmp_path, ("digits-5",), ("slda",), (0,))
    (only,) = plan.cells({})
    looks = 0
    with locked(only.directory):

        def watch(standing: Standing) -> None:
            nonlocal looks
            looks += 1
            assert not (tmp_path / "log").exists()
            if looks == 3:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            work(plan, command=fake, watch=watch)
    assert len(work(plan, command=fake).results) == 1


def test_the_time_left_is_estimated_from_runs_of_the_same_learner() -> None:
    plan = Sweep(OUT, ("digits-5",), ("tpc", "slda"), (0, 1, 2))  # 3 and 2 runs of tpc, 1 and 2 of slda
    *tpc, slda = plan.cells({})
    standing = Standing(plan)
    assert cells_module._seconds_left(standing, workers=1) is None, "nothing is known yet"
    standing.results[tpc[0]] = Result(0.5, 0.5, 10.0)
    assert cells_module._seconds_left(standing, workers=1) == 4 * 10 + 3 * 10
    standing.results[slda], standing.seconds[slda] = Result(0.5, 0.5, 1.0), 2.0  # of which 1 in training
    standing.running[tpc[1]] = 0.5
    assert cells_module._seconds_left(standing, workers=2) == (3.5 * 10 + 2 * 2) / 2


def test_the_board_shows_what_runs_and_tells_news_once() -> None:
    plan = Sweep(OUT, ("digits-5",), ("tpc",), (0, 1))
    one, two, three = plan.cells({})
    standing = Standing(plan, {one: Result(0.75, 0.5, 1.0)}, {two: "it broke"}, {three: 0.5}, seconds_left=5400.0)
    standing.warnings.append("it is late")
    board = Board()
    with board.console.capture() as told:
        board.watch(standing)
        board.watch(standing)
    assert told.get().splitlines() == [f"{one.title}  AMCA 75.0 %", f"{two.title}  failed: it broke", "it is late"]
    lines = "\n".join("".join(s.text for s in line) for line in board.console.render_lines(board.draw()))
    assert "1/4" in lines and "75.0 %" in lines and "50 %" in lines and three.title in lines
    assert "1 of 4 runs, about 1 h 30 min left, 1 failed" in lines


def test_cells_are_called_after_what_they_are() -> None:
    options = RunOptions(
        learner="derpp", order=2, lr=0.05, learner_options=(("alpha", 0.1),), replay="none", norm="brn"
    )
    where = cell(OUT, find("cifar100:46/10-2"), options).directory
    assert where == OUT / "cifar100-46-10-2" / "derpp-order2-lr0.05-alpha=0.1-no-replay-brn"
