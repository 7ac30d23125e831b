"""Evaluation during a run: on which images and classes, and when."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from oracle import (
    RECIPE,
    Oracle,
    Refusing,
    counted,
)
from triphase import run
from triphase.errors import BadData
from triphase.testing import tiny_stream


def test_seen_classes_only_are_evaluated_as_they_arrive() -> None:
    report = run(Oracle(6), counted(3, 2, 2), first=RECIPE)
    assert report.evaluated_after == [1, 2, 3] and report.n_seen == [2, 4, 6]
    assert report.matrix.isnan().tolist() == [[label >= seen for label in range(6)] for seen in (2, 4, 6)]
    assert report.accuracy[0] == [1.0, 1.0, None, None, None, None]
    assert report.curve == [1.0, 1.0, 1.0]
    assert report.confusion == (3 * torch.eye(6, dtype=torch.long)).tolist()


def test_a_fixed_test_set_counts_unseen_classes_as_wrong() -> None:
    report = run(Oracle(6), counted(3, 2, 2, evaluation="all"), first=RECIPE)
    assert not report.matrix.isnan().any()
    assert report.accuracy[0] == [1.0, 1.0, 0.0, 0.0, 0.0, 0.0]
    assert report.curve == pytest.approx([2 / 6, 4 / 6, 1.0])
    assert report.amca == pytest.approx(report.ceiling) == pytest.approx(2 / 3)


def test_an_evaluation_without_a_single_image_is_refused_beforehand() -> None:
    stream = tiny_stream()
    late = stream.test.select((stream.test.labels == 2).nonzero().view(-1))
    with pytest.raises(BadData, match="no test image of the classes that have been seen after experience 1"):
        run(Refusing(3), replace(stream, test=late), first=RECIPE)


def test_evaluation_happens_at_the_given_points_only() -> None:
    report = run(Oracle(10), counted(5, 2, 2, evaluate_after=(1, 3, 5)), first=RECIPE)
    assert report.evaluated_after == [1, 3, 5]
    assert report.n_seen == [2, 6, 10]
    assert len(report.accuracy) == 3


def test_accuracy_is_that_of_what_logits_say() -> None:
    class Confused(Oracle):
        def logits(self, z: Tensor) -> Tensor:
            return super().logits(torch.where(z == 1, 0, z))  # takes class 1 for class 0

    report = run(Confused(4), counted(2, 2, 2), first=RECIPE)
    assert report.accuracy == [[1.0, 0.0, None, None], [1.0, 0.0, 1.0, 1.0]]
    assert report.curve == [0.5, 0.75] and report.amca == 0.625
    assert report.confusion[1] == [3, 0, 0, 0]
