"""The scheduler: which jobs are executed, retried and waited for."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import pytest

from sweep_results import OUT
from triphase.bench.sweep import processes, scheduler
from triphase.bench.sweep.grid import Sweep
from triphase.bench.sweep.jobs import Result
from triphase.bench.sweep.processes import LocalProcesses
from triphase.bench.sweep.scheduler import Progress, execute
from triphase.directory_lock import locked
from triphase.errors import Interrupted


@pytest.fixture(autouse=True)
def fake(monkeypatch: pytest.MonkeyPatch) -> None:
    """A command in the place of `triphase` that only records what it was asked, and fails on demand."""
    monkeypatch.setattr(processes, "COMMAND", (sys.executable, "-S", str(Path(__file__).with_name("fake_run.py"))))
    monkeypatch.setattr(scheduler, "POLL", 0.01)


def local(out: Path, workers: int = 1) -> LocalProcesses:
    return LocalProcesses(out, out / "data", workers=workers)


def done(out: Path) -> list[str]:
    return (out / "log").read_text().split()


@pytest.mark.parametrize("workers", [1, 3])
def test_every_run_is_done_once_and_never_again(tmp_path: Path, workers: int) -> None:
    schedule = Sweep(tmp_path, ("digits-5",), ("ar1", "slda"), (0, 1))
    progress = execute(schedule, tmp_path / "sweep.json", local(tmp_path, workers))
    assert not progress.failed and progress.seconds_left == 0.0
    assert {c.directory.name for c in progress.results} == set(done(tmp_path))
    # ar1: 3 rates with a first experience each and the best on order 1 with its own; slda: one run an order
    assert len(done(tmp_path)) == 3 * 2 + 2 + 2 == len(set(done(tmp_path)))
    again = execute(schedule, tmp_path / "sweep.json", local(tmp_path, workers))
    assert again.results == progress.results and len(done(tmp_path)) == 10


def test_a_crashed_run_is_tried_once_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TROUBLE", "tpc-order0-lr0.02:once")
    progress = execute(Sweep(tmp_path, ("digits-5",), ("tpc",), (0, 1)), tmp_path / "sweep.json", local(tmp_path))
    assert not progress.failed and len(progress.results) == 4
    assert Counter(done(tmp_path))["tpc-order0-lr0.02"] == 2
    assert progress.warnings == [
        "warning: digits-5 tpc-order0-lr0.02 crashed (it ended with status 7) and is tried again."
    ]


def test_a_run_that_crashes_twice_is_named_and_the_rest_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TROUBLE", "tpc-order0-lr0.02:crash")
    schedule = Sweep(tmp_path, ("digits-5",), ("tpc", "slda"), (0, 1))
    progress = execute(schedule, tmp_path / "sweep.json", local(tmp_path))
    assert [(c.directory.name, why) for c, why in progress.failed.items()] == [
        ("tpc-order0-lr0.02", "it ended with status 7")
    ]
    assert Counter(done(tmp_path))["tpc-order0-lr0.02"] == 2
    assert {"slda-order0", "slda-order1"} <= set(done(tmp_path)), "another learner went on"
    assert "tpc-order1" not in " ".join(done(tmp_path)), "there is nothing to choose from"
    monkeypatch.delenv("TROUBLE")
    assert len(execute(schedule, tmp_path / "sweep.json", local(tmp_path)).results) == 6, (
        "and the next call mends it"
    )


def test_a_refused_run_is_not_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TROUBLE", "first-order0:refuse")
    progress = execute(
        Sweep(tmp_path, ("cifar100-11",), ("ar1",), (0, 1)), tmp_path / "sweep.json", local(tmp_path)
    )
    assert list(progress.failed.values()) == ["There is no data."]
    assert done(tmp_path) == ["first-order0"], "what needs it is not begun"
    assert progress.warnings == ["warning: careful"]


def test_a_setting_that_diverges_is_an_outcome_and_never_chosen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TROUBLE", "first-order0-lr0.005:diverge,tpc-order0-lr0.02:diverge")
    schedule = Sweep(tmp_path, ("digits-5",), ("ar1", "tpc"), (0, 1))
    progress = execute(schedule, tmp_path / "sweep.json", local(tmp_path))
    assert not progress.failed and progress.seconds_left == 0.0
    document = schedule.summary(progress.results, progress.failed)["benchmarks"]["digits-5"]
    for learner, rate in (("ar1", 0.005), ("tpc", 0.02)):
        grid = {each["setting"]["lr"]: each for each in document[learner]["grid"]}
        assert grid[rate]["diverged"] == "It diverged: lower --lr." and grid[rate]["amca"] is None
        assert sum("diverged" in each for each in grid.values()) == 1
        assert document[learner]["chosen"]["lr"] != rate and document[learner]["amca"]["mean"] is not None
    n_done = len(done(tmp_path))
    assert Counter(done(tmp_path))["ar1-order0-lr0.005"] == 0, "its first experience diverged"
    again = execute(schedule, tmp_path / "sweep.json", local(tmp_path))
    assert again.results == progress.results and len(done(tmp_path)) == n_done


def test_a_run_that_another_process_executes_is_waited_for(tmp_path: Path) -> None:
    schedule = Sweep(tmp_path, ("digits-5",), ("slda",), (0,))
    (only,) = schedule.jobs({})
    looks = 0
    with locked(only.directory):

        def on_progress(progress: Progress) -> None:
            nonlocal looks
            looks += 1
            assert not (tmp_path / "log").exists()
            if looks == 3:
                raise KeyboardInterrupt

        with pytest.raises(Interrupted, match="is saved. Run again to continue"):
            execute(schedule, tmp_path / "sweep.json", local(tmp_path), on_progress=on_progress)
    assert len(execute(schedule, tmp_path / "sweep.json", local(tmp_path)).results) == 1


def test_the_time_left_is_estimated_from_runs_of_the_same_learner() -> None:
    schedule = Sweep(OUT, ("digits-5",), ("tpc", "slda"), (0, 1, 2))  # 3 and 2 runs of tpc, 1 and 2 of slda
    *tpc, slda = schedule.jobs({})
    progress = Progress(schedule)
    assert scheduler._seconds_left(progress, slots=1) is None, "nothing is known yet"
    progress.results[tpc[0]] = Result(0.5, 0.5, 10.0)
    assert scheduler._seconds_left(progress, slots=1) == 4 * 10 + 3 * 10
    progress.results[slda], progress.seconds[slda] = Result(0.5, 0.5, 1.0), 2.0  # of which 1 in training
    progress.running[tpc[1]] = 0.5
    assert scheduler._seconds_left(progress, slots=2) == (3.5 * 10 + 2 * 2) / 2
