"""Accuracy, AMCA and forgetting against computations in plain Python."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from triphase.bench import metrics

NAN = float("nan")
Guess = tuple[int, int]  # predicted and true class
guesses = st.integers(1, 6).flatmap(
    lambda n: st.tuples(st.just(n), st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)), max_size=40))
)
accuracies = st.one_of(st.floats(0, 1), st.just(NAN))
matrices = st.integers(1, 5).flatmap(
    lambda n: st.lists(st.lists(accuracies, min_size=n, max_size=n), min_size=1, max_size=6)
)


def tensors(pairs: list[Guess]) -> tuple[torch.Tensor, torch.Tensor]:
    both = torch.tensor(pairs, dtype=torch.long).view(-1, 2)
    return both[:, 0], both[:, 1]


def mean(values: list[float]) -> float:
    """Over what is a number; NaN if nothing is."""
    numbers = [v for v in values if not math.isnan(v)]
    return sum(numbers) / len(numbers) if numbers else NAN


def same(found: float, expected: float) -> bool:
    return math.isnan(found) if math.isnan(expected) else found == pytest.approx(expected)


@given(guesses)
def test_class_accuracy_counts_each_class_by_itself(case: tuple[int, list[Guess]]) -> None:
    n, pairs = case
    found = metrics.class_accuracy(*tensors(pairs), n).tolist()
    for label in range(n):
        right = [float(p == y) for p, y in pairs if y == label]
        assert same(found[label], mean(right))


@given(guesses)
def test_confusion_counts_every_pair_and_holds_the_accuracies(case: tuple[int, list[Guess]]) -> None:
    n, pairs = case
    found = metrics.confusion(*tensors(pairs), n)
    assert found.tolist() == [[pairs.count((p, y)) for p in range(n)] for y in range(n)]
    accuracy = found.diagonal().double() / found.sum(dim=1).double()
    assert torch.equal(accuracy.nan_to_num(-1), metrics.class_accuracy(*tensors(pairs), n).nan_to_num(-1))


def test_a_large_class_does_not_outweigh_a_small_one() -> None:
    y = torch.tensor([0] * 99 + [1])
    row = metrics.class_accuracy(torch.zeros_like(y), y, 2)
    assert metrics.mean_class_accuracy(row) == 0.5


@given(matrices)
def test_amca_is_the_mean_over_evaluations_of_the_mean_over_classes(matrix: list[list[float]]) -> None:
    rows = [mean(row) for row in matrix]
    expected = NAN if any(math.isnan(row) for row in rows) else sum(rows) / len(rows)
    assert same(metrics.amca(torch.tensor(matrix, dtype=torch.float64)), expected)


def test_amca_is_not_the_mean_over_all_cells() -> None:
    matrix = torch.tensor([[1.0, NAN, NAN], [0.0, 0.0, 0.0]])
    assert metrics.amca(matrix) == 0.5


@given(matrices)
def test_forgetting_is_the_best_of_the_past_minus_the_last(matrix: list[list[float]]) -> None:
    found = metrics.forgetting(torch.tensor(matrix, dtype=torch.float64)).tolist()
    for label, value in enumerate(found):
        column = [row[label] for row in matrix]
        past = [v for v in column[:-1] if not math.isnan(v)]
        assert same(value, max(past) - column[-1] if past else NAN)


def test_what_was_learned_last_cannot_have_been_forgotten_yet() -> None:
    forgotten = metrics.forgetting(torch.tensor([[0.75, NAN], [0.25, 1.0]]))
    assert forgotten[0] == 0.5 and forgotten[1].isnan()
    assert metrics.forgetting(torch.tensor([[0.75, 1.0]])).isnan().all()


def test_forgetting_is_negative_where_a_class_got_better() -> None:
    assert metrics.forgetting(torch.tensor([[0.25], [0.75]])).item() == -0.5


def test_the_ceiling_of_core50_41_is_60_percent() -> None:
    """10 classes first, then one in each of 40 experiences, all 50 in every evaluation."""
    assert metrics.ceiling(list(range(10, 51)), 50) == pytest.approx(0.6)


@given(st.lists(st.integers(1, 20), min_size=1, max_size=10))
def test_a_perfect_learner_scores_the_ceiling(arrivals: list[int]) -> None:
    n_seen = [sum(arrivals[: i + 1]) for i in range(len(arrivals))]
    perfect = [[1.0 if label < seen else 0.0 for label in range(n_seen[-1])] for seen in n_seen]
    assert metrics.ceiling(n_seen, n_seen[-1]) == pytest.approx(metrics.amca(torch.tensor(perfect)))
