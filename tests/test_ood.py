"""Out-of-distribution scores and thresholds: against definitions, exact probabilities and simulated truth."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from triphase.app import ood
from triphase.app.answers import ood_scores
from triphase.errors import InvalidValue
from triphase.randomness import generator

INF = math.inf
sizes = st.tuples(st.integers(1, 40), st.integers(2, 6), st.integers(0, 10_000))
floats = st.floats(-100, 100, width=32)


def test_without_distances_the_highest_logit_is_the_score() -> None:
    logits = torch.tensor([[1.0, 5.0], [2.0, -INF]])
    assert ood_scores(logits, torch.empty(2, 0)).tolist() == [[5.0], [2.0]]
    distances = torch.tensor([[-1.0, -2.0], [-3.0, -4.0]])
    assert torch.equal(ood_scores(logits, distances), distances)


@pytest.mark.parametrize("n", [4, 10, 18, 19, 30, 59, 500])
def test_at_least_so_many_known_images_are_accepted(n: int) -> None:
    scores = torch.randn(1000, n, generator=generator(0, "scores"), dtype=torch.float64)
    thresholds = torch.tensor([ood.threshold(row) for row in scores], dtype=torch.float64)
    accepted = float(1 - torch.special.ndtr(thresholds).mean())
    assert 0.95 - 0.005 < accepted < (0.98 if n > 18 else 0.99)


@settings(max_examples=30)
@given(st.lists(floats, min_size=19, max_size=60), st.sampled_from([0.8, 0.9, 0.95]))
def test_the_threshold_rejects_no_more_exemplars_than_allowed(scores: list[float], accept: float) -> None:
    at = ood.threshold(torch.tensor(scores), accept)
    assert sum(score < at for score in scores) + 1 <= (len(scores) + 1) * (1 - accept) + 1e-6


def test_with_hardly_any_exemplars_nothing_is_unknown() -> None:
    assert [ood.threshold(torch.zeros(n)) for n in (0, 1, 3)] == [-INF] * 3
    with pytest.raises(InvalidValue, match="accept"):
        ood.threshold(torch.zeros(5), accept=95.0)


scored = st.lists(st.tuples(floats, st.integers(0, 3)), max_size=20)


@settings(max_examples=30)
@given(scored, scored)
def test_moments_of_two_lessons_are_those_of_both_together(
    one: list[tuple[float, int]], two: list[tuple[float, int]]
) -> None:
    def of(pairs: list[tuple[float, int]], n_classes: int) -> ood.Moments:
        scores = torch.tensor([score for score, _ in pairs], dtype=torch.float64)
        return ood.moments(scores, torch.tensor([label for _, label in pairs], dtype=torch.long), n_classes)

    n_first = max((label for _, label in one), default=-1) + 1
    found, expected = ood.merge(of(one, n_first), of(two, 4)), of(one + two, 4)
    for name in ("n", "mean", "squares", "cubes"):
        assert torch.allclose(getattr(found, name), getattr(expected, name), atol=1e-5)


@pytest.mark.parametrize("tail", [-1.0, 0.0, 1.0])
@pytest.mark.parametrize("per_class", [5, 50])
def test_moments_alone_accept_about_as_many_whichever_tail_is_long(per_class: int, tail: float) -> None:
    random = generator(0, "scores")
    y = torch.arange(20).repeat(per_class + 500)
    noise = torch.randn(3, len(y), generator=random, dtype=torch.float64)
    scores = y / 20 + (noise[0] if tail == 0 else tail * (noise**2).sum(0))  # normal, or chi-square
    given = 20 * per_class
    at = ood.threshold_from_moments(ood.moments(scores[:given], y[:given], 20))
    assert 0.93 < float((scores[given:] >= at).double().mean()) < 0.98


def test_moments_of_hardly_any_scores_make_nothing_unknown() -> None:
    few = ood.moments(torch.tensor([1.0, 2.0, 3.0]), torch.tensor([0, 0, 1]), 3)
    assert ood.threshold_from_moments(few) == -INF
    same = ood.moments(torch.full((9,), 0.3), torch.zeros(9, dtype=torch.long), 3)
    assert ood.threshold_from_moments(same) <= float(torch.tensor(0.3))
