"""triphase bench list and triphase bench run."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from command import Call
from triphase.bench.benchmarks import BENCHMARKS, NOTATIONS
from triphase.bench.learners import LEARNER_SPECS
from triphase.bench.run import Report


def test_bench_list_names_every_benchmark_and_learner(triphase: Call) -> None:
    answer = triphase("bench", "list")
    assert answer.status == 0 and answer.err == ""
    for benchmark in BENCHMARKS.values():
        (line,) = (line for line in answer.out.splitlines() if line.split()[:1] == [benchmark.name])
        assert benchmark.title in line and f"{benchmark.rest.n_mbe}:{benchmark.rest.n_mbr}" in line
    assert "Learners: " + ", ".join(LEARNER_SPECS) in answer.out
    assert all(notation in answer.out for notation in NOTATIONS)


def test_bench_list_as_one_document(triphase: Call) -> None:
    document = triphase("bench", "list", "--json").document()
    assert [b["name"] for b in document["benchmarks"]] == list(BENCHMARKS)
    assert document["learners"] == list(LEARNER_SPECS)
    (core50,) = (b for b in document["benchmarks"] if b["name"] == "core50-41")
    assert core50["title"] == "CORe50 41/10-1" and core50["memory"] == 1500
    assert (core50["rest"]["n_mbe"], core50["rest"]["n_mbr"]) == (158, 98)
    assert core50["grids"]["bic"] == {"stage2_epochs": [4, 8, 12]}


def test_bench_run_as_one_document(triphase: Call, tmp_path: Path) -> None:
    answer = triphase("bench", "run", "digits-5", "--epochs", "3", "--threads", "1", "--out", "run", "--json")
    assert answer.status == 0 and answer.err == ""
    document = answer.document()
    assert document["run"] == "run"
    report = Report.from_json(document)
    assert report.evaluated_after == [1, 2, 3, 4, 5] and report.n_seen == [2, 4, 6, 8, 10]
    assert document["amca"] == pytest.approx(sum(report.curve) / 5)
    assert document["final_accuracy"] == report.curve[-1] > 0.5
    assert document["ceiling"] == 1.0
    assert report.names == [str(digit) for digit in range(10)]
    assert sum(map(sum, report.confusion)) == 450
    assert report.settings["benchmark"] == "digits-5" and report.settings["learner"] == "tpc"
    written = json.loads((tmp_path / "run" / "report.json").read_text())
    assert {"run": "run", **written} == document
    again = triphase("bench", "run", "digits-5", "--epochs", "3", "--threads", "1", "--out", "run", "--json")
    assert again.document() == document


def test_bench_run_goes_on_under_the_number_of_threads_that_it_was_begun_with(
    triphase: Call, stop_at_save: Callable[..., None], tmp_path: Path
) -> None:
    command = ["bench", "run", "digits:2/3-2", "--learner", "finetune", "--epochs", "3", "--out", "run", "--json"]
    stop_at_save(2, KeyboardInterrupt)
    stopped = triphase(*command, "--save-every", "0", "--threads", "1")
    assert stopped.status == 1 and "Run again to continue" in stopped.err + stopped.out
    stop_at_save(None)
    try:
        torch.set_num_threads(2)
        report = triphase(*command, "--threads", "2").document()
        assert report["settings"]["threads"] == 1 == torch.get_num_threads()
    finally:
        torch.set_num_threads(1)


def test_bench_run_prints_accuracy_and_directory(triphase: Call, tmp_path: Path) -> None:
    command = ["bench", "run", "digits:2/3-2", "--learner", "finetune", "--epochs", "3", "--order", "2"]
    answer = triphase(*command, "--seed", "7")
    assert answer.status == 0
    out = tmp_path / "runs" / "digits-2-3-2-finetune-order2-seed7"  # where nothing is said about --out
    report = Report.from_json(json.loads((out / "report.json").read_text()))
    assert report.n_seen == [3, 5]
    assert f"{100 * report.amca:.1f} %" in answer.out and f"{100 * report.final_accuracy:.1f} %" in answer.out
    assert answer.err.count("accuracy") == 2
    assert f"experience 2/2  accuracy {100 * report.final_accuracy:.1f} %" in answer.err


def test_options_reach_the_learner(triphase: Call) -> None:
    options = ["--set", "t=0.25", "--set", "masking=none", "--memory", "20", "--replay", "latent", "--n-mbr", "5"]
    options += ["--latent-dtype", "float16", "--csf-lr", "0.002", "--norm", "brn", "--head", "incremental"]
    answer = triphase("bench", "run", "digits:2/1-1", "--epochs", "3", *options, "--out", "run", "--json")
    settings = answer.document()["settings"]
    assert (settings["t"], settings["masking"]) == (0.25, "none")
    assert (settings["memory"]["capacity"], settings["memory"]["store"]) == (20, "latent")
    assert settings["memory"]["dtype"] == "torch.float16"
    assert settings["rest"]["n_mbr"] == 5 and settings["first"]["n_mbr"] == 0
    assert settings["rest"]["csf_lr"] == 0.002
    assert (settings["norm"], settings["head"]) == ("brn", "incremental")
