"""Paired differences between two learners with 95 % confidence intervals.

There are two intervals. *Over orders*: Student's t on the differences per class order; it says whether another
class order would agree, and is wide for the three orders of the paper. *Bootstrap*: class orders and test classes
are drawn with replacement, the same classes for both learners and for all orders, and the percentiles of the mean
difference are taken; it pairs the accuracies of every class and says whether other classes would agree. With few
orders the bootstrap understates the spread between orders; with one it is over classes alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from triphase.bench.report.group import Group
from triphase.bench.run.results import Report
from triphase.randomness import generator

DRAWS = 4000
Interval = tuple[float, float]


@dataclass(frozen=True)
class Difference:
    """A group minus its reference, in [-1, 1]."""

    n: int  # pairs of runs with the same order and seed
    mean: float
    over_orders: Interval | None  # None: one order has no spread
    bootstrap: Interval


def difference(group: Group, reference: Group, measure: str) -> Difference | None:
    """The paired difference in "amca" or "final"; None where no run of the two can be paired."""
    by_order = _paired(group, reference, measure)
    if not by_order or (measure == "amca" and (group.is_joint or reference.is_joint)):
        return None
    by_class = [torch.stack(seeds).mean(0) for seeds in by_order.values()]  # seeds are no class orders
    means = torch.stack([rows.nanmean(1).mean() for rows in by_class])
    n = sum(map(len, by_order.values()))
    return Difference(n, float(means.mean()), t_interval(means), bootstrap_interval(by_class))


def t_interval(values: Tensor) -> Interval | None:
    """The 95 % confidence interval of a mean by Student's t.

    >>> t_interval(torch.tensor([1.0, 2.0, 3.0]))  # doctest: +ELLIPSIS
    (-0.484..., 4.484...)
    """
    from scipy.stats import t  # slow to import

    n = len(values)
    if n < 2:
        return None
    half = float(t.ppf(0.975, n - 1)) * float(values.std()) / math.sqrt(n)
    return float(values.mean()) - half, float(values.mean()) + half


def _paired(group: Group, reference: Group, measure: str) -> dict[int, list[Tensor]]:
    """By class order, one matrix of differences (evaluations, classes) per seed."""
    theirs = {run.order_and_seed: run.report for run in reference.runs}
    by_order: dict[int, list[Tensor]] = {}
    for run in group.runs:
        ours, other = run.report, theirs.get(run.order_and_seed)
        if other is None or sorted(ours.names) != sorted(other.names):
            continue
        if measure != "amca" or ours.evaluated_after == other.evaluated_after:
            difference = _matrix(ours, measure) - _matrix(other, measure)
            by_order.setdefault(run.order_and_seed[0], []).append(difference)
    return by_order


def _matrix(report: Report, measure: str) -> Tensor:
    """(evaluations, classes) with the classes by name, so that orders can be compared."""
    by_name = sorted(range(len(report.names)), key=lambda label: report.names[label])
    rows = report.matrix[:, by_name]
    return rows if measure == "amca" else rows[-1:]


def bootstrap_interval(by_class: list[Tensor]) -> Interval:
    """The 95 % interval of a mean of (evaluations, classes) for each order, over orders and classes."""
    n, n_classes = len(by_class), by_class[0].shape[1]
    draws = generator(0, "bootstrap", n, n_classes)
    classes = _times_drawn(n_classes, draws)
    orders = _times_drawn(n, draws)
    means = []
    for rows in by_class:
        tested = (~rows.isnan()).double()
        row_means = (classes @ rows.nan_to_num(0.0).T) / (classes @ tested.T)  # NaN: none of its classes was drawn
        means.append(row_means.nanmean(1))
    mean = (orders * torch.stack(means, 1)).sum(1) / n
    low, high = mean.quantile(torch.tensor([0.025, 0.975], dtype=torch.float64)).tolist()
    return low, high


def _times_drawn(n: int, draws: torch.Generator) -> Tensor:
    """(DRAWS, n): how often each of n was drawn, n times with replacement."""
    drawn = torch.randint(n, (DRAWS, n), generator=draws)
    return torch.zeros(DRAWS, n, dtype=torch.float64).scatter_add_(1, drawn, torch.ones(DRAWS, n).double())
