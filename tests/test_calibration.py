"""Temperature and guard: against definitions, exact probabilities and simulated truth."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from triphase.app import calibration
from triphase.errors import InvalidValue
from triphase.randomness import generator

INF = math.inf
sizes = st.tuples(st.integers(1, 40), st.integers(2, 6), st.integers(0, 10_000))
floats = st.floats(-100, 100, width=32)


def exemplars(n: int, c: int, seed: int, temperature: float = 1.0, scale: float = 4.0) -> tuple[Tensor, Tensor]:
    """Logits, and labels drawn from softmax(logits / temperature)."""
    logits = scale * torch.randn(n, c, generator=generator(seed, "logits"), dtype=torch.float64)
    y = torch.multinomial((logits / temperature).softmax(1), 1, generator=generator(seed, "labels"))
    return logits, y.view(-1)


def nll(logits: Tensor, y: Tensor, temperature: float) -> float:
    return float(torch.nn.functional.cross_entropy(logits / temperature, y))


# Temperature


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
    before = calibration.expected_calibration_error(logits[1000:].softmax(1), y[1000:])
    after = calibration.expected_calibration_error((logits[1000:] / temperature).softmax(1), y[1000:])
    assert before > 0.3
    assert after < 0.05


@settings(max_examples=30)
@given(sizes, st.integers(1, 20))
def test_calibration_error_is_the_gap_of_each_bin(case: tuple[int, int, int], bins: int) -> None:
    logits, y = exemplars(*case)
    p = logits.softmax(1)
    gaps = [0.0] * bins
    for row, label in zip(p.tolist(), y.tolist(), strict=True):
        confidence = max(row)
        gaps[min(bins, max(1, math.ceil(confidence * bins))) - 1] += (row.index(confidence) == label) - confidence
    expected = sum(map(abs, gaps)) / len(y)
    assert calibration.expected_calibration_error(p, y, bins) == pytest.approx(expected)


# The guard


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
            refused[lost, gained] = calibration.guard(
                *answers(0, lost, gained, n - lost - gained), max_drop
            ).refused
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
    verdict = calibration.guard(nothing, nothing, nothing.long())
    assert (verdict.n, verdict.refused, verdict.drop, verdict.lower) == (0, False, None, None)


@pytest.mark.parametrize(("n", "least"), [(1, None), (2, None), (5, 4), (30, 5), (2000, 52)])
def test_so_many_exemplars_must_be_lost(n: int, least: int | None) -> None:
    refused = [calibration.guard(*answers(n - lost, lost, 0, 0)).refused for lost in range(min(n, 80) + 1)]
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
    verdict = calibration.guard(*answers(kept, lost, gained, never))
    assert verdict.drop == pytest.approx((lost - gained) / sum(counts))
    assert verdict.lower is not None
    if kept:
        worse = calibration.guard(*answers(kept - 1, lost + 1, gained, never))
        assert worse.lower is not None and worse.lower > verdict.lower


def test_the_verdict_tells_each_class_and_who_suffered_most() -> None:
    y = torch.tensor([7, 7, 7, 7, 3, 3, 5, 5, 9])
    before = torch.tensor([1, 1, 1, 0, 1, 1, 0, 1, 1]).bool()
    after = torch.tensor([0, 0, 1, 0, 1, 0, 1, 1, 0]).bool()
    verdict = calibration.guard(before, after, y)
    assert {c.label: (c.n, c.before, c.after) for c in verdict.per_class} == {
        3: (2, 1.0, 0.5),
        5: (2, 0.5, 1.0),
        7: (4, 0.75, 0.25),
        9: (1, 1.0, 0.0),
    }
    assert verdict.suffered == (7, 3, 9)


def test_the_guard_refuses_arguments_that_make_no_sense() -> None:
    yes = torch.tensor([True])
    with pytest.raises(InvalidValue, match="max_drop"):
        calibration.guard(yes, yes, torch.tensor([0]), max_drop=2.0)
    with pytest.raises(InvalidValue, match="1 answers before, 2 after"):
        calibration.guard(yes, yes.repeat(2), torch.tensor([0]))


@pytest.mark.parametrize(("n", "n_classes", "most"), [(0, 10, None), (4, 10, None), (6, 10, 0), (50, 10, 15)])
def test_so_few_right_answers_mean_wrong_labels(n: int, n_classes: int, most: int | None) -> None:
    found = [calibration.unlearned(torch.arange(n) < right, n_classes, reference=0.77) for right in range(n + 1)]
    assert found == [most is not None and right <= most for right in range(n + 1)]


def test_classes_that_are_hard_to_tell_apart_are_not_taken_for_mixed_up_labels() -> None:
    right = torch.arange(200) < 116  # of two classes
    assert calibration.unlearned(right, 2, reference=0.8) and not calibration.unlearned(
        right, 2, reference=0.8, way=0.25
    )
    assert calibration.unlearned(torch.arange(200) < 98, 2, reference=0.8, way=0.25)


def test_a_lesson_of_one_class_and_a_model_that_guesses_prove_nothing() -> None:
    wrong = torch.zeros(100, dtype=torch.bool)
    assert not calibration.unlearned(wrong, n_classes=1, reference=0.9)
    assert not calibration.unlearned(wrong, n_classes=10, reference=0.1)


def test_confusion_with_new_classes_is_told_apart_from_forgetting() -> None:
    logits = torch.tensor([[3.0, 1.0, 9.0], [3.0, 1.0, 9.0], [0.0, 2.0, 1.0], [5.0, 2.0, 9.0], [0.0, 0.0, 1.0]])
    y = torch.tensor([0, 0, 1, 1, 2])
    assert calibration.right_among(logits[:4], y[:4], {0, 1}).tolist() == [True, True, True, False]
    assert calibration.confused_with_new(logits, y, {0, 1}) == (
        calibration.Confusion(label=0, taken_for=2, count=2, n=2),
        calibration.Confusion(label=1, taken_for=2, count=1, n=2),
    )
    with pytest.raises(InvalidValue, match="Class 2 is not among"):
        calibration.right_among(logits, y, {0, 1})


@given(st.integers(0, 60), st.integers(2, 12))
def test_surely_learned_is_what_guessing_does_once_in_ten_thousand(n: int, n_classes: int) -> None:
    p = 1 / n_classes
    exact = [
        sum(math.comb(n, k) * p**k * (1 - p) ** (n - k) for k in range(right, n + 1)) for right in range(n + 1)
    ]
    found = [calibration.surely_learned(torch.arange(n) < right, n_classes) for right in range(n + 1)]
    clear = [(f, e) for f, e in zip(found, exact, strict=True) if abs(e - 1e-4) > 1e-10]
    assert all(f == (e <= 1e-4 and n > 0) for f, e in clear)
    assert not calibration.surely_learned(torch.ones(60, dtype=torch.bool), n_classes=1), (
        "one class cannot be guessed"
    )
