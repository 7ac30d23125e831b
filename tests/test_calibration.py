"""Temperature and thresholds: against definitions and simulated truth."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

from triphase.app import calibration
from triphase.app.answers import Calibration
from triphase.errors import InvalidValue
from triphase.randomness import generator

INF = math.inf
sizes = st.tuples(st.integers(1, 40), st.integers(2, 6), st.integers(0, 10_000))


def exemplars(n: int, c: int, seed: int, temperature: float = 1.0, scale: float = 4.0) -> tuple[Tensor, Tensor]:
    """Logits, and labels drawn from softmax(logits / temperature)."""
    logits = scale * torch.randn(n, c, generator=generator(seed, "logits"), dtype=torch.float64)
    y = torch.multinomial((logits / temperature).softmax(1), 1, generator=generator(seed, "labels"))
    return logits, y.view(-1)


def nll(logits: Tensor, y: Tensor, temperature: float) -> float:
    return float(torch.nn.functional.cross_entropy(logits / temperature, y))


@pytest.mark.parametrize("true", [0.2, 1.0, 30.0])
def test_the_temperature_that_drew_the_labels_is_found(true: float) -> None:
    logits, y = exemplars(4000, 10, 0, true, scale=3 * true)
    found = calibration.fit_temperature(logits, y)
    assert found == pytest.approx(true, rel=0.05)
    assert nll(logits, y, found) <= min(nll(logits, y, found * f) for f in (0.97, 1.03))


@settings(max_examples=30)
@given(sizes, st.floats(0.01, 100))
def test_larger_logits_have_a_larger_temperature_and_the_same_probabilities(
    case: tuple[int, int, int], factor: float
) -> None:
    logits, y = exemplars(*case, temperature=3.0)
    assert calibration.fit_temperature(factor * logits, y) == pytest.approx(
        factor * calibration.fit_temperature(logits, y)
    )


@settings(max_examples=30)
@given(sizes)
def test_classes_never_seen_and_shifts_do_not_matter(case: tuple[int, int, int]) -> None:
    logits, y = exemplars(*case)
    wider = torch.cat([logits + 7.0, torch.full((len(y), 2), -INF, dtype=torch.float64)], dim=1)
    assert calibration.fit_temperature(wider, y) == pytest.approx(calibration.fit_temperature(logits, y))


@pytest.mark.parametrize("n", [1, 2, 5, 100])
def test_exemplars_that_are_all_right_do_not_call_for_certainty(n: int) -> None:
    y = torch.arange(n) % 5
    logits = 60.0 * torch.nn.functional.one_hot(y, 5).double()
    confidence = (logits / calibration.fit_temperature(logits, y)).softmax(1).amax(1).mean()
    assert 0.5 < confidence < 1 - 0.1 / (n + 2)


@pytest.mark.parametrize("n", [1, 5, 100])
def test_exemplars_that_are_all_wrong_give_a_finite_temperature(n: int) -> None:
    y = torch.arange(n) % 5
    logits = 60.0 * torch.nn.functional.one_hot((y + 1) % 5, 5).double()
    temperature = calibration.fit_temperature(logits, y)
    assert 60 < temperature < 60 * 1e4


def test_without_evidence_the_temperature_is_one() -> None:
    assert calibration.fit_temperature(torch.zeros(0, 3), torch.zeros(0, dtype=torch.long)) == 1.0
    assert calibration.fit_temperature(torch.tensor([[5.0, -INF]]), torch.tensor([0])) == 1.0
    assert calibration.fit_temperature(torch.ones(4, 3), torch.tensor([0, 1, 2, 0])) == 1.0


@pytest.mark.parametrize("row", [[-INF, 1.0], [1.0, math.nan], [1.0, INF]])
def test_logits_that_cannot_be_are_refused_by_exemplar(row: list[float]) -> None:
    logits = torch.tensor([[1.0, 2.0], row])
    with pytest.raises(InvalidValue, match="exemplar 1 \\(class 0\\)"):
        calibration.fit_temperature(logits, torch.tensor([1, 0]))


def test_temperature_removes_overconfidence() -> None:
    logits, y = exemplars(3000, 10, 1, temperature=8.0, scale=10.0)
    temperature = calibration.fit_temperature(logits[:1000], y[:1000])
    confidence = [(logits[1000:] / t).softmax(1).amax(1).mean() for t in (1.0, temperature)]
    accuracy = (logits[1000:].argmax(1) == y[1000:]).double().mean()
    assert confidence[0] - accuracy > 0.3
    assert abs(confidence[1] - accuracy) < 0.05


def test_an_image_is_accepted_if_each_of_its_scores_is() -> None:
    scores = torch.tensor([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0]])
    assert Calibration(1.0, (0.0, 0.0)).accepts(scores).tolist() == [True, False, False]
    assert Calibration(1.0, (-INF, 0.0)).accepts(scores).tolist() == [True, False, True]
    everything = Calibration(1.0, (-INF, -INF))
    assert everything.accepts(scores).all() and not everything.rejects
    assert Calibration().accepts(scores).all()


def test_two_thresholds_together_accept_ninety_five_per_cent() -> None:
    random = generator(0, "scores")
    fitted = calibration.fit_thresholds(torch.randn(5000, 2, generator=random))
    accepted = Calibration(1.0, fitted).accepts(torch.randn(20_000, 2, generator=random))
    assert float(accepted.float().mean()) == pytest.approx(0.95, abs=0.01)


def test_the_weight_of_the_better_member_grows_with_the_evidence() -> None:
    random = generator(0, "members")

    def fitted(n: int) -> float:
        y = torch.randint(4, (n,), generator=random)
        scores = [F.one_hot(y, 4) + noise * torch.randn(n, 4, generator=random) for noise in (2.0, 0.3)]
        return calibration.fit_weight(scores[0], scores[1], y, constant=2.0)

    assert fitted(0) == fitted(1) == 2.0 < fitted(400)
