"""Differences between two learners on the same occasions, with 95 % intervals: what claims rest on.

Two intervals, for two questions. *Over orders*: Student's t on the differences per class order; it asks whether the
next class order would agree, and is wide for the three orders of the paper. *Bootstrap*: class orders and test
classes are drawn anew with replacement, the same classes for both learners and for all orders, and the percentiles
of the mean difference are taken; it uses the pairing of every class's accuracy and asks whether other classes would
agree, too. With few orders the bootstrap understates the spread between orders; with one it is over classes alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from triphase.bench.report.group import Entry
from triphase.bench.run.results import Report
from triphase.randomness import generator

DRAWS = 4000
T_975 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)  # Student's t, 1 to 10 degrees
Interval = tuple[float, float]


@dataclass(frozen=True)
class Difference:
    """An entry minus its reference, in [-1, 1]."""

    n: int  # runs that both have, of one order and seed
    mean: float
    over_orders: Interval | None  # None: one order has no spread
    bootstrap: Interval


def difference(entry: Entry, reference: Entry, metric: str) -> Difference | None:
    """The paired difference in "amca" or "final"; None where the two share no occasion, or no loop."""
    theirs = {run.occasion: run.report for run in reference.runs}
    pairs = [(run.occasion[0], run.report, theirs[run.occasion]) for run in entry.runs if run.occasion in theirs]
    if metric == "amca":
        pairs = [(order, a, b) for order, a, b in pairs if a.evaluated_after == b.evaluated_after]
    pairs = [(order, a, b) for order, a, b in pairs if sorted(a.names) == sorted(b.names)]
    if not pairs or (metric == "amca" and "joint" in (entry.learner, reference.learner)):
        return None
    by_order: dict[int, list[Tensor]] = {}
    for order, a, b in pairs:
        by_order.setdefault(order, []).append(_matrix(a, metric) - _matrix(b, metric))
    by_class = [torch.stack(seeds).mean(0) for seeds in by_order.values()]  # seeds are no class orders
    means = torch.stack([rows.nanmean(1).mean() for rows in by_class])
    return Difference(len(pairs), float(means.mean()), student(means), _bootstrap(by_class))


def student(values: Tensor) -> Interval | None:
    """The 95 % interval of a mean by Student's t.

    >>> student(torch.tensor([1.0, 2.0, 3.0]))  # doctest: +ELLIPSIS
    (-0.484..., 4.484...)
    """
    n = len(values)
    if n < 2:
        return None
    half = _t_975(n - 1) * float(values.std()) / math.sqrt(n)
    return float(values.mean()) - half, float(values.mean()) + half


def _t_975(degrees: int) -> float:
    if degrees <= len(T_975):
        return T_975[degrees - 1]
    z = 1.959964  # of the normal distribution; the first terms of its expansion are good to three digits
    return z + (z**3 + z) / (4 * degrees) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * degrees**2)


def _matrix(report: Report, metric: str) -> Tensor:
    """(evaluations, classes) with the classes by name, so that orders can be compared."""
    by_name = sorted(range(len(report.names)), key=lambda label: report.names[label])
    rows = report.matrix[:, by_name]
    return rows if metric == "amca" else rows[-1:]


def _bootstrap(by_class: list[Tensor]) -> Interval:
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
