"""For tests that derive a whole run again in NumPy: a model that is all head, and the minibatches it saw."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from torch import nn

from triphase import SplitClassifier
from triphase.data.batches import Batches
from triphase.models import Normalize, linear_head


class Linear(SplitClassifier):
    """llf and csf without parameters, so that the head is all there is to derive."""

    def __init__(self, n_features: int, n_classes: int) -> None:
        super().__init__(Normalize((0.0,) * 3, (255.0,) * 3), nn.Flatten(), linear_head(n_features, n_classes))


def minibatches(batches: Batches, epochs: int, first_epoch: int, balanced: bool = False) -> Iterator[Any]:
    n = batches.n_balanced if balanced else batches.n_mixed
    steps = [(first_epoch + e, k) for e in range(epochs) for k in range(n)]
    yield from batches.balanced(steps) if balanced else batches.mixed(steps)


def softmax(z: np.ndarray) -> np.ndarray:
    """Over the last axis."""
    p = np.exp(z - z.max(-1, keepdims=True))
    shares: np.ndarray = p / p.sum(-1, keepdims=True)
    return shares
