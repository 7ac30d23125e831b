"""Paired differences and their confidence intervals."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fake_reports import group, make
from triphase.bench.report.intervals import difference, t_interval
from triphase.bench.run import Report
from triphase.randomness import generator


def noisy(learner: str, order: int, shift: float, names: Sequence[str], spread: float = 0.1) -> Report:
    """Final accuracies that depend on the class and the order, the same for all learners but for the shift."""
    report = make(learner, 0.5, order=order, names=names)
    values = [0.3 + spread * (sum(map(ord, name)) % 7) / 7 + 0.02 * order + shift for name in names]
    report.accuracy = [[values[0]] + [None] * (len(names) - 1), list(values)]
    return report


@given(st.floats(-0.3, 0.3), st.lists(st.permutations(["a", "b", "c", "d", "e"]), min_size=1, max_size=4))
def test_a_constant_shift_is_found_exactly_whatever_the_classes_and_orders(
    shift: float, orders: list[list[str]]
) -> None:
    ours = group(*(noisy("ar1", i, shift, names) for i, names in enumerate(orders)))
    tpc = group(*(noisy("tpc", i, 0.0, names) for i, names in enumerate(orders)))
    for metric in ("amca", "final"):
        found = difference(ours, tpc, metric)
        assert found is not None and found.n == len(orders)
        assert (found.mean, *found.bootstrap) == pytest.approx((shift,) * 3)
        assert (found.over_orders is None) == (len(orders) == 1)
        if found.over_orders is not None:
            assert found.over_orders == pytest.approx((shift, shift))


def test_classes_are_paired_by_name_not_by_place() -> None:
    good = make("ar1", 0.5, names=("a", "b", "c", "d"))
    bad = make("tpc", 0.5, names=("d", "c", "b", "a"))
    good.accuracy[-1], bad.accuracy[-1] = [1.0, 0.0, 1.0, 0.0], [0.0, 1.0, 0.0, 1.0]
    found = difference(group(good), group(bad), "final")
    assert found is not None and found.bootstrap == (0.0, 0.0), "per class there is no difference at all"


def test_only_runs_of_the_same_order_and_seed_are_paired() -> None:
    ours = group(make("ar1", 0.6, order=1), make("ar1", 0.1, order=2))
    found = difference(ours, group(make("tpc", 0.5, order=1), make("tpc", 0.5, order=3)), "final")
    assert found is not None and found.n == 1 and found.mean == pytest.approx(0.1)
    assert difference(ours, group(make("tpc", 0.5, order=7)), "final") is None
    assert difference(group(make("joint", 0.9)), group(make("tpc", 0.5)), "amca") is None
    assert difference(group(make("joint", 0.9)), group(make("tpc", 0.5)), "final") is not None


def test_seeds_are_no_class_orders() -> None:
    """More seeds of the same three orders must not make the intervals narrower than the orders allow."""
    gains = {1: 0.04, 2: -0.02, 3: 0.03}
    found = []
    for n_seeds in (1, 5):
        runs = [(o, s, g + 1e-4 * s) for o, g in gains.items() for s in range(n_seeds)]
        ours = group(*(make("ar1", 0.5 + gain, order=order, seed=seed) for order, seed, gain in runs))
        tpc = group(*(make("tpc", 0.5, order=order, seed=seed) for order, seed, _ in runs))
        found.append(difference(ours, tpc, "final"))
    one, five = found
    assert one is not None and five is not None and (one.n, five.n) == (3, 15)
    assert one.over_orders is not None and five.over_orders == pytest.approx(one.over_orders, abs=1e-3)
    assert five.bootstrap == pytest.approx(one.bootstrap, abs=1e-3)


def test_the_bootstrap_covers_what_it_should() -> None:
    """Differences drawn from a normal distribution: the interval holds the true mean about 95 times in 100."""

    names = [f"{i:02}" for i in range(40)]
    covered = 0
    for trial in range(60):
        ours, tpc = make("ar1", 0.5, names=names), make("tpc", 0.5, names=names)
        drawn = 0.55 + 0.1 * torch.randn(40, generator=generator(trial, "trial"))
        ours.accuracy[-1] = drawn.tolist()
        found = difference(group(ours), group(tpc), "final")
        assert found is not None
        covered += found.bootstrap[0] <= 0.05 <= found.bootstrap[1]
    assert covered >= 51


@pytest.mark.parametrize(("n", "quantile"), [(2, 12.706), (3, 4.303), (4, 3.182), (11, 2.228), (121, 1.980)])
def test_the_interval_over_orders_has_the_printed_quantiles_of_students_t(n: int, quantile: float) -> None:
    values = torch.arange(n, dtype=torch.float64)
    interval = t_interval(values)
    assert interval is not None and t_interval(values[:1]) is None
    half = quantile * float(values.std()) / n**0.5
    assert (interval[1] - interval[0]) / 2 == pytest.approx(half, rel=2e-4)
