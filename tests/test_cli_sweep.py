"""triphase bench sweep and triphase bench ablate."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from command import Call
from triphase.bench.run import Report
from triphase.bench.sweep import processes, scheduler

PAPERS = ("core50-41", "imagenet-100", "cifar100-11", "core50-nicv2-391")


def test_a_dry_sweep_lists_the_papers_257_runs_without_any_data(triphase: Call, tmp_path: Path) -> None:
    answer = triphase("bench", "sweep", *PAPERS, "--learners", "tpc,ar1,bic,derpp", "--orders", "0-3", "--dry-run")
    lines = answer.out.splitlines()
    assert answer.status == 0 and answer.err == "" and lines[-1] == "257 runs"
    assert sum(line.startswith(PAPERS) for line in lines) == 257
    assert "core50-41  bic  order 0 lr 0.05 stage2_epochs 4" in lines
    assert list(tmp_path.iterdir()) == []
    document = triphase("bench", "sweep", *PAPERS, "--dry-run", "--json").document()
    assert document["runs"] == len(document["rows"]) == 257


@pytest.mark.parametrize("command", [("sweep", "digits-5"), ("ablate", "digits-5", "--lr", "0.02")])
def test_torchrun_is_refused_in_a_sentence(
    command: tuple[str, ...], triphase: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    answer = triphase("bench", *command, "--dry-run")
    assert answer.status == 1 and f"bench {command[0]} starts processes for its runs itself" in answer.err


def test_a_dry_ablation_lists_its_runs(triphase: Call, tmp_path: Path) -> None:
    answer = triphase("bench", "ablate", "core50-41", "--lr", "0.02", "--dry-run")
    assert answer.status == 0 and answer.out.splitlines()[-1] == "26 runs"
    assert "core50-41  tpc  order 3 lr 0.02 with replay: no Phase III" in answer.out
    assert list(tmp_path.iterdir()) == []


def test_a_sweep_runs_the_installed_command_and_shares_the_first_experience(triphase: Call, tmp_path: Path) -> None:
    sweep = ["bench", "sweep", "digits:2/2-1", "--learners", "replay", "--orders", "0", "--lr-grid", "0.01"]
    sweep += ["--epochs", "3", "--per-class", "10", "--memory", "20", "--threads", "1", "--out", "s", "--json"]
    document = triphase(*sweep).document()
    (tried,) = document["benchmarks"]["digits:2/2-1"]["replay"]["grid"]
    report, first = (
        Report.from_json(json.loads((tmp_path / "s" / run / "report.json").read_text()))
        for run in (tried["run"], "digits-2-2-1/first-order0-lr0.01")
    )
    assert (report.amca, report.train_seconds) == (tried["amca"], tried["train_seconds"])
    assert report.phase_seconds["E_1"] == first.train_seconds and first.n_seen == [2]
    assert report.settings["threads"] == 1
    assert triphase(*sweep).document() == document


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sweeps call something quick in the place of `triphase`."""
    command = (sys.executable, "-S", str(Path(__file__).with_name("fake_run.py")))
    monkeypatch.setattr(processes, "COMMAND", command)
    monkeypatch.setattr(scheduler, "POLL", 0.01)


@pytest.mark.usefixtures("fake")
def test_a_sweep_and_its_ablation_end_with_tables_and_are_not_done_twice(triphase: Call, tmp_path: Path) -> None:
    sweep = ["bench", "sweep", "digits-5", "--learners", "tpc,replay,slda", "--orders", "0-2", "--out", "s"]
    answer = triphase(*sweep, "--workers", "2")
    assert answer.status == 0 and "digits-5 slda-order2  AMCA 11.0 %" in answer.err
    document = json.loads((tmp_path / "s" / "sweep.json").read_text())
    assert document["runs"] == 5 + 5 + 3 and document["failed"] == {}
    entries = document["benchmarks"]["digits-5"]
    assert entries["tpc"]["chosen"] == {"lr": 0.005} and entries["slda"]["chosen"] == {}
    for name, entry in entries.items():
        assert f"{100 * entry['amca']['mean']:.1f} % ± 0.0" in answer.out and name in answer.out
    done = (tmp_path / "s" / "log").read_text().split()
    assert triphase(*sweep, "--json").document() == document
    assert (tmp_path / "s" / "log").read_text().split() == done

    answer = triphase("bench", "ablate", "digits-5", "--sweep", "s", "--orders", "0-2")
    assert answer.status == 0 and "no gradient masking" in answer.out and "digits-5, no replay" in answer.out
    ablation = json.loads((tmp_path / "s" / "ablation.json").read_text())["benchmarks"]["digits-5"]
    assert ablation["replay"]["columns"]["full"]["tests"] == entries["tpc"]["tests"]
    done += (tmp_path / "s" / "log").read_text().split()[len(done) :]
    assert len(done) == len(set(done)), "the full algorithm was run by the sweep"


@pytest.mark.usefixtures("fake")
def test_runs_that_fail_are_named_at_the_end(
    triphase: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TROUBLE", "tpc-order0:refuse")
    command = ["bench", "sweep", "digits-5", "--learners", "tpc,slda", "--orders", "0", "--lr-grid", "0.1"]
    answer = triphase(*command, "--out", "s", "--json")
    sentence = "1 of 2 runs failed: digits-5/tpc-order0-lr0.1 (There is no data). Run again to try them again."
    assert answer.status == 1 and answer.err.endswith(f"error: {sentence}\n")
    document = answer.document()
    assert document["failed"] == {"digits-5/tpc-order0-lr0.1": "There is no data."}
    assert document["error"] == sentence
    other = triphase(*command, "--out", "s", "--epochs", "4")
    assert other.status == 1 and "holds runs with epochs not given (now 4); give another --out" in other.err


@pytest.mark.usefixtures("fake")
def test_rates_that_diverge_are_named_and_do_not_stop_a_sweep(
    triphase: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TROUBLE", "tpc-order0-lr0.1:diverge")
    command = ["bench", "sweep", "digits-5", "--learners", "tpc", "--orders", "0"]
    answer = triphase(*command, "--lr-grid", "0.1,0.02", "--out", "s")
    assert answer.status == 0 and "lr 0.02" in answer.out
    assert "Diverged, and left out: digits-5/tpc-order0-lr0.1." in answer.out
    answer = triphase(*command, "--lr-grid", "0.1", "--out", "s", "--json")
    sentence = "Every setting of tpc on digits-5 diverged: give lower rates by --lr-grid."
    assert answer.status == 1 and answer.err.endswith(f"error: {sentence}\n")
    assert answer.document()["error"] == sentence


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (["sweep", "digits-6"], ["No benchmark is called 'digits-6'", "digits-5", "DATASET:nic-A/B-C"]),
        (["sweep", "digits-5", "--learners", "tpc,ar2"], ["No learner is called 'ar2'", "tpc, ar1, bic, derpp"]),
        (["sweep", "digits-5", "--orders", "3-1"], ["--orders takes", "'3-1'"]),
        (["sweep", "digits-5", "--lr-grid", "0.1,big"], ["--lr-grid takes learning rates above 0", "'0.1,big'"]),
        (["sweep", "digits-5", "--set", "x=1"], ["None of tpc, ar1, bic, derpp has an option x"]),
        (["sweep", "cifar100-11", "--data", "nowhere"], ["nowhere"]),
        (["sweep", "digits-5", "--device", "cuda:9"], ["There is no device cuda:9"]),
        (["ablate", "digits-5", "--set", "x=1"], ["tpc has no option x", "it has t, s,"]),
        (
            ["ablate", "digits-5", "--sweep", "nowhere"],
            ["no finished search", "bench sweep digits-5 --learners tpc"],
        ),
    ],
)
def test_a_sweep_that_cannot_be_is_refused_before_anything_runs(
    words: list[str], parts: list[str], triphase: Call, tmp_path: Path
) -> None:
    answer = triphase("bench", *words)
    assert answer.status == 1 and answer.out == "" and answer.err.startswith("error: ")
    assert all(part in answer.err for part in parts), answer.err
    assert not list(tmp_path.rglob("*")), "nothing may be written"


@pytest.mark.parametrize(("option", "choices"), [("--grid", "paper"), ("--rows", "no-replay")])
def test_a_wrong_choice_lists_the_right_ones(option: str, choices: str, triphase: Call) -> None:
    answer = triphase("bench", "sweep" if option == "--grid" else "ablate", "digits-5", option, "some")
    assert answer.status == 2 and choices in answer.err
