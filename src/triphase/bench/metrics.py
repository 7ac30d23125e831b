"""Accuracy matrix, AMCA, final accuracy, forgetting (Sec. V-D)."""

from __future__ import annotations

import torch
from torch import Tensor


def class_accuracy(predicted: Tensor, y: Tensor, n_classes: int) -> Tensor:
    """(n_classes,): the share of each class's images that are predicted right; NaN where there are none.

    >>> class_accuracy(torch.tensor([0, 1, 1]), torch.tensor([0, 0, 1]), 3)
    tensor([0.5000, 1.0000,    nan], dtype=torch.float64)
    """
    total = torch.bincount(y, minlength=n_classes)
    right = torch.bincount(y[predicted == y], minlength=n_classes)
    return right.double() / total.double()


def confusion(predicted: Tensor, y: Tensor, n_classes: int) -> Tensor:
    """(n_classes, n_classes): images of the row's class that were classified as the column's."""
    return torch.bincount(y * n_classes + predicted, minlength=n_classes**2).view(n_classes, n_classes)


def mean_class_accuracy(row: Tensor) -> float:
    """The mean over the classes that were evaluated."""
    return float(row.nanmean())


def amca(matrix: Tensor) -> float:
    """Average mean class accuracy: over evaluation points, of the mean over classes.

    >>> amca(torch.tensor([[1.0, float("nan")], [0.5, 0.0]]))
    0.625
    """
    return float(matrix.nanmean(dim=1).mean())


def forgetting(matrix: Tensor) -> Tensor:
    """(n_classes,): the best accuracy a class had before, minus its last one; NaN if it was evaluated once.

    >>> forgetting(torch.tensor([[1.0, float("nan")], [0.25, 0.5]]))
    tensor([0.7500,    nan])
    """
    past = matrix[:-1].nan_to_num(-torch.inf).amax(dim=0) if len(matrix) > 1 else matrix[-1] * torch.nan
    return torch.where(torch.isfinite(past), past - matrix[-1], torch.nan)


def ceiling(n_seen: list[int], n_evaluated: int) -> float:
    """The AMCA of a perfect learner on a fixed test set, which also has classes that are not seen yet.

    >>> ceiling([1, 2], 2)
    0.75
    """
    return sum(n / n_evaluated for n in n_seen) / len(n_seen)
