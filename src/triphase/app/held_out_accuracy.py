"""Accuracy on the photos that are kept to measure with, with its interval."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from triphase.app.store.versions import Store
from triphase.data.memory import HELD_OUT

Z_95 = 1.959963984540054  # two-sided 95 % point of the normal distribution


@dataclass(frozen=True)
class Accuracy:
    """An accuracy on n held-out photos, with its 95 % interval."""

    value: float
    low: float
    high: float
    n: int


def wilson(right: int, n: int) -> Accuracy | None:
    """The share of n photos that are right, with Wilson's score interval; None where there is no photo.

    >>> a = wilson(9, 10)
    >>> round(a.low, 3), round(a.high, 3)
    (0.596, 0.982)
    """
    if n == 0:
        return None
    share, z2 = right / n, Z_95**2
    middle = (share + z2 / (2 * n)) / (1 + z2 / n)
    half = Z_95 / (1 + z2 / n) * math.sqrt(share * (1 - share) / n + z2 / (4 * n * n))
    return Accuracy(share, max(0.0, middle - half), min(1.0, middle + half), n)


def held_out_accuracy(store: Store, number: int | None = None) -> tuple[Accuracy | None, list[Accuracy | None]]:
    """Of a version (by default the one in use): over all held-out photos, and for each class."""
    parts, version = store.load(number, parts=("app", "memory"))
    correct, n_classes = parts["app"]["exemplar_correct"], len(version.info["classes"])
    if "memory" not in parts or len(correct) == 0:
        return None, [None] * n_classes
    columns = parts["memory"]["columns"]
    y = columns["y"][columns["split"] == HELD_OUT]
    right = torch.bincount(y[correct], minlength=n_classes).tolist()
    total = torch.bincount(y, minlength=n_classes).tolist()
    return wilson(sum(right), sum(total)), [wilson(*pair) for pair in zip(right, total, strict=True)]
