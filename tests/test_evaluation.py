"""The guard and its companions: against definitions, exact probabilities and simulated truth."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from triphase.app import evaluation
from triphase.errors import InvalidValue


def answers(kept: int, lost: int, gained: int, never: int) -> tuple[Tensor, Tensor, Tensor]:
    """Right before, right after and labels of exemplars of one class."""
    before = torch.tensor([True] * (kept + lost) + [False] * (gained + never))
    after = torch.tensor([True] * kept + [False] * lost + [True] * gained + [False] * never)
    return before, after, torch.zeros(len(before), dtype=torch.long)


def refusals(n: int, max_drop: float) -> Tensor:
    """(n + 1, n + 1) by lost and gained: whether the guard refuses."""
    refused = torch.zeros(n + 1, n + 1, dtype=torch.bool)
    for gained in range(n + 1):
        for lost in range(n + 1 - gained):
            refused[lost, gained] = evaluation.guard(*answers(0, lost, gained, n - lost - gained), max_drop).refused
    return refused


def probability(refused: Tensor, p_lost: float, p_gained: float) -> float:
    """Of a refusal, exactly: lost and gained are trinomial."""
    n = len(refused) - 1
    lost, gained = torch.meshgrid(torch.arange(n + 1.0), torch.arange(n + 1.0), indexing="ij")
    rest = n - lost - gained
    log = torch.lgamma(torch.tensor(n + 1.0)) - sum(torch.lgamma(k.clamp(min=0) + 1) for k in (lost, gained, rest))
    for count, p in ((lost, p_lost), (gained, p_gained), (rest, 1 - p_lost - p_gained)):
        log = log + torch.xlogy(count, torch.tensor(p))
    return float(log.double().exp()[refused & (rest >= 0)].sum())


def test_without_exemplars_nothing_is_checked() -> None:
    nothing = torch.zeros(0, dtype=torch.bool)
    verdict = evaluation.guard(nothing, nothing, nothing.long())
    assert (verdict.n, verdict.refused, verdict.drop, verdict.lower) == (0, False, None, None)


@pytest.mark.parametrize(("n", "least"), [(1, None), (2, None), (5, 4), (30, 5), (2000, 52)])
def test_so_many_exemplars_must_be_lost(n: int, least: int | None) -> None:
    refused = [evaluation.guard(*answers(n - lost, lost, 0, 0)).refused for lost in range(min(n, 80) + 1)]
    assert (refused.index(True) if True in refused else None) == least
    assert refused == sorted(refused)


@pytest.mark.parametrize("n", [1, 5, 10, 30, 45])
@pytest.mark.parametrize("max_drop", [0.0, 0.02, 0.1])
def test_a_drop_that_is_allowed_is_refused_in_one_of_twenty_cases_at_most(n: int, max_drop: float) -> None:
    refused = refusals(n, max_drop)
    for p_gained in (0.0, 0.01, 0.03, 0.1, 0.15, 0.2):
        assert probability(refused, p_gained + max_drop, p_gained) <= 0.05


def test_a_large_drop_is_refused_almost_always() -> None:
    refused = refusals(60, 0.02)
    assert probability(refused, 0.25, 0.05) > 0.7
    assert probability(refused, 0.40, 0.05) > 0.99


@settings(max_examples=30)
@given(st.tuples(*[st.integers(0, 30)] * 4).filter(any))
def test_losing_one_more_never_helps(counts: tuple[int, int, int, int]) -> None:
    kept, lost, gained, never = counts
    verdict = evaluation.guard(*answers(kept, lost, gained, never))
    assert verdict.drop == pytest.approx((lost - gained) / sum(counts))
    assert verdict.lower is not None
    if kept:
        worse = evaluation.guard(*answers(kept - 1, lost + 1, gained, never))
        assert worse.lower is not None and worse.lower > verdict.lower


def test_the_verdict_lists_each_class_and_which_degraded_most() -> None:
    y = torch.tensor([7, 7, 7, 7, 3, 3, 5, 5, 9])
    before = torch.tensor([1, 1, 1, 0, 1, 1, 0, 1, 1]).bool()
    after = torch.tensor([0, 0, 1, 0, 1, 0, 1, 1, 0]).bool()
    verdict = evaluation.guard(before, after, y)
    assert {c.label: (c.n, c.before, c.after) for c in verdict.per_class} == {
        3: (2, 1.0, 0.5),
        5: (2, 0.5, 1.0),
        7: (4, 0.75, 0.25),
        9: (1, 1.0, 0.0),
    }
    assert verdict.degraded == (7, 3, 9)


def test_the_guard_refuses_arguments_that_make_no_sense() -> None:
    yes = torch.tensor([True])
    with pytest.raises(InvalidValue, match="max_drop"):
        evaluation.guard(yes, yes, torch.tensor([0]), max_drop=2.0)
    with pytest.raises(InvalidValue, match="1 answers before, 2 after"):
        evaluation.guard(yes, yes.repeat(2), torch.tensor([0]))


@pytest.mark.parametrize(("n", "n_classes", "most"), [(0, 10, None), (4, 10, None), (6, 10, 0), (50, 10, 15)])
def test_so_few_right_answers_mean_wrong_labels(n: int, n_classes: int, most: int | None) -> None:
    found = [evaluation.near_chance(torch.arange(n) < right, n_classes, reference=0.77) for right in range(n + 1)]
    assert found == [most is not None and right <= most for right in range(n + 1)]


def test_classes_that_are_hard_to_tell_apart_are_not_taken_for_mixed_up_labels() -> None:
    right = torch.arange(200) < 116  # of two classes
    assert evaluation.near_chance(right, 2, reference=0.8) and not evaluation.near_chance(
        right, 2, reference=0.8, fraction=0.25
    )
    assert evaluation.near_chance(torch.arange(200) < 98, 2, reference=0.8, fraction=0.25)


def test_a_lesson_of_one_class_and_a_model_that_guesses_prove_nothing() -> None:
    wrong = torch.zeros(100, dtype=torch.bool)
    assert not evaluation.near_chance(wrong, n_classes=1, reference=0.9)
    assert not evaluation.near_chance(wrong, n_classes=10, reference=0.1)


def test_confusion_with_new_classes_is_not_forgetting() -> None:
    logits = torch.tensor([[3.0, 1.0, 9.0], [3.0, 1.0, 9.0], [0.0, 2.0, 1.0], [5.0, 2.0, 9.0], [0.0, 0.0, 1.0]])
    y = torch.tensor([0, 0, 1, 1, 2])
    assert evaluation.correct_among(logits[:4], y[:4], {0, 1}).tolist() == [True, True, True, False]
    assert evaluation.confused_with_new(logits, y, {0, 1}) == (
        evaluation.ConfusionWithNew(label=0, taken_for=2, count=2, n=2),
        evaluation.ConfusionWithNew(label=1, taken_for=2, count=1, n=2),
    )
    with pytest.raises(InvalidValue, match="Class 2 is not among"):
        evaluation.correct_among(logits, y, {0, 1})


@given(st.integers(0, 60), st.integers(2, 12))
def test_above_chance_is_what_guessing_does_once_in_ten_thousand(n: int, n_classes: int) -> None:
    p = 1 / n_classes
    exact = [
        sum(math.comb(n, k) * p**k * (1 - p) ** (n - k) for k in range(right, n + 1)) for right in range(n + 1)
    ]
    found = [evaluation.above_chance(torch.arange(n) < right, n_classes) for right in range(n + 1)]
    clear = [(f, e) for f, e in zip(found, exact, strict=True) if abs(e - 1e-4) > 1e-10]
    assert all(f == (e <= 1e-4 and n > 0) for f, e in clear)
    assert not evaluation.above_chance(torch.ones(60, dtype=torch.bool), n_classes=1), "one class cannot be guessed"
