"""Scores that only benchmarks compare: against their definitions."""

import math
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from triphase.randomness import generator

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
try:
    import detection_scores as scores
finally:
    sys.path.pop(0)

INF = math.inf
sizes = st.tuples(st.integers(1, 40), st.integers(2, 6), st.integers(0, 10_000))


@settings(max_examples=30)
@given(sizes, st.floats(0.1, 10))
def test_scores_from_logits_ignore_classes_never_seen(case: tuple[int, int, int], temperature: float) -> None:
    n, c, seed = case
    logits = 4 * torch.randn(n, c, generator=generator(seed, "logits"))
    wider = torch.cat([logits, torch.full((len(logits), 1), -INF)], dim=1)
    for score in (scores.max_softmax, scores.energy):
        assert torch.allclose(score(wider, temperature), score(logits, temperature))
    assert torch.equal(scores.max_logit(wider), logits.amax(1))
    soft = scores.energy(logits, temperature) - scores.max_logit(logits)
    assert ((soft > -1e-4) & (soft < temperature * math.log(logits.shape[1]) + 1e-4)).all()


def test_cosines_are_those_to_the_nearest() -> None:
    stored, query = torch.tensor([[1.0, 1.0], [0.0, 3.0]]), torch.tensor([[2.0, 0.0]])
    for score in (scores.cosine, scores.nearest_neighbour):
        assert float(score(query, stored)) == pytest.approx(math.sqrt(0.5))


@settings(max_examples=30)
@given(st.lists(st.integers(0, 5), max_size=12), st.lists(st.integers(0, 5), max_size=12))
def test_auroc_compares_every_pair(known: list[int], unknown: list[int]) -> None:
    pairs = [(a > b) + (a == b) / 2 for a in known for b in unknown]
    found = scores.auroc(torch.tensor(known), torch.tensor(unknown))
    assert found == pytest.approx(sum(pairs) / len(pairs)) if pairs else math.isnan(found)


@settings(max_examples=30)
@given(sizes, st.integers(1, 20))
def test_calibration_error_is_the_gap_of_each_bin(case: tuple[int, int, int], bins: int) -> None:
    n, c, seed = case
    random = generator(seed, "logits")
    p = torch.randn(n, c, generator=random).softmax(1)
    y = torch.randint(c, (n,), generator=random)
    gaps = [0.0] * bins
    for row, label in zip(p.tolist(), y.tolist(), strict=True):
        confidence = max(row)
        gaps[min(bins, max(1, math.ceil(confidence * bins))) - 1] += (row.index(confidence) == label) - confidence
    expected = sum(map(abs, gaps)) / len(y)
    assert scores.expected_calibration_error(p, y, bins) == pytest.approx(expected)
