"""Accuracy with its interval, confusions and reliability on held-out photos."""

import pytest
import torch
from scipy.stats import binomtest

from lessons import World, model_of
from triphase.app.held_out_report import (
    HeldOut,
    confusion_matrix,
    confusions,
    expected_calibration_error,
    reliability,
)
from triphase.app.proportion import Proportion

CERTAIN = torch.eye(3)


def held_out(answers: list[int], labels: list[int], sure: float = 1.0) -> HeldOut:
    y = torch.tensor(labels, dtype=torch.long)
    probabilities = sure * CERTAIN[answers] + (1 - sure) / 2 * (1 - CERTAIN[answers])
    return HeldOut(("cat", "dog", "owl"), torch.arange(len(y)), y, probabilities, torch.ones(len(y)).bool())


def test_wilson_interval() -> None:
    for n in (1, 2, 10, 97):
        for right in {0, 1, n // 3, n - 1, n}:
            expected, found = binomtest(right, n).proportion_ci(method="wilson"), Proportion.of(right, n)
            assert (found.low, found.high) == pytest.approx((expected.low, expected.high), abs=1e-12)
    assert Proportion.of(0, 0) == Proportion(0, 0, None, 0.0, 1.0)


def test_confusions_name_the_photos() -> None:
    report = held_out([0, 1, 1, 1, 2, 0], [0, 0, 0, 1, 2, 2])
    assert confusion_matrix(report) == [[1, 2, 0], [0, 1, 0], [1, 0, 1]]
    first, second = confusions(report)
    assert (first.name, first.taken_for, first.ids, first.n) == ("cat", "dog", (1, 2), 3)
    assert (second.name, second.taken_for, second.ids, second.n) == ("owl", "cat", (5,), 2)
    assert report.accuracy().right == 3 and report.accuracy(0) == Proportion.of(1, 3)


def test_reliability_says_how_often_a_probability_is_right() -> None:
    bins = reliability(held_out([0, 0, 0, 0], [0, 0, 0, 1], sure=0.85))
    full = [b for b in bins if b.accuracy.n]
    assert len(bins) == 10 and [(b.low, b.high, b.accuracy.share) for b in full] == [(0.8, 0.9, 0.75)]
    assert expected_calibration_error(bins) == pytest.approx(0.1, abs=1e-6)
    assert [b.accuracy.n for b in reliability(held_out([1], [1]))][-1] == 1, "a probability of 1 has a bin"


def test_nothing_held_out_is_no_error() -> None:
    empty = held_out([], [])
    assert confusion_matrix(empty) == [[0] * 3] * 3 and confusions(empty) == []
    assert expected_calibration_error(reliability(empty)) is None and empty.accuracy().share is None


def test_a_model_answers_as_when_it_was_published(world: World) -> None:
    model = model_of(world.base)
    report = HeldOut.of(model)
    assert torch.equal(report.correct, model.exemplar_correct) and len(report.ids) >= 3
    assert torch.equal(report.ids, model.exemplars()[0])
    assert torch.allclose(report.probabilities.sum(1), torch.ones(len(report.ids)))
