"""Report: accuracies, ceiling, and what is recorded of a run."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch

from oracle import (
    RECIPE,
    Oracle,
    counted,
)
from triphase import TPC, FineTune, Memory, run
from triphase.bench.run import Report
from triphase.data.streams import joint
from triphase.learners import Joint
from triphase.testing import FIRST, REST, tiny_model, tiny_stream


def test_rows_of_the_head_beyond_the_classes_do_not_lower_the_ceiling() -> None:
    stream = replace(tiny_stream(), evaluation="all")
    reports = [run(FineTune(tiny_model(n)), stream, first=RECIPE) for n in (4, 10)]
    assert reports[0].ceiling == reports[1].ceiling > 0.5


def test_perfect_learning_of_core50_41_scores_60_percent() -> None:
    """41 experiences, 10 classes and then 1 each, of 50 that are all tested every time."""
    report = run(Oracle(50), counted(41, 10, 1, evaluation="all"), first=RECIPE)
    assert len(report.accuracy) == 41
    assert report.ceiling == pytest.approx(0.6) and report.amca == pytest.approx(0.6)
    assert report.final_accuracy == 1.0


def test_joint_training_has_one_evaluation() -> None:
    report = run(Joint(tiny_model()), joint(tiny_stream()), first=FIRST)
    assert report.evaluated_after == [1] and len(report.curve) == 1
    assert report.amca == report.final_accuracy


def test_a_report_survives_json() -> None:
    report = run(TPC(tiny_model(), Memory(12, seed=0)), tiny_stream(), first=FIRST, rest=REST)
    document = json.loads(json.dumps(report.to_json(), allow_nan=False))
    again = Report.from_json(document)
    assert again == report
    assert torch.equal(again.matrix.nan_to_num(-1), report.matrix.nan_to_num(-1))
    assert document["amca"] == again.amca and document["final_accuracy"] == again.final_accuracy
    assert document["train_seconds"] == pytest.approx(sum(document["phase_seconds"].values()))


def test_a_report_says_what_was_run() -> None:
    memory = Memory(12, seed=3)
    report = run(TPC(tiny_model(), memory, t=0.25, seed=3), tiny_stream(), first=FIRST, rest=REST)
    settings = report.settings
    assert (settings["learner"], settings["t"], settings["seed"]) == ("tpc", 0.25, 3)
    assert settings["first"] == FIRST.to_json() and settings["rest"] == REST.to_json()
    assert settings["memory"]["capacity"] == 12 and report.memory_bytes == memory.nbytes > 0
    assert settings["stream"] == tiny_stream().fingerprint
    assert settings["threads"] == torch.get_num_threads()
    assert report.versions["torch"] == torch.__version__
    assert report.names == list(tiny_stream().names)
    assert set(report.phase_seconds) == {"I", "II", "III"}
