"""The parts of an answer: probabilities, whether an image is known, and how doubtful the answer is.

Scores may be torch tensors or numpy arrays.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from triphase.scoring import Array, namespace, softmax

if TYPE_CHECKING:
    from triphase.app.ood import Moments


@dataclass(frozen=True)
class Calibration:
    """The temperature and the thresholds that turn scores into an answer."""

    temperature: float = 1.0
    thresholds: tuple[float, ...] = ()  # one for each out-of-distribution score; -inf accepts everything
    moments: tuple[Moments, ...] = ()  # of each score by class, where no exemplar may be kept

    @classmethod
    def stored(cls, about: Mapping[str, Any]) -> Calibration:
        """The calibration that a version stores for inference, without moments."""
        return cls(about["temperature"], tuple(-math.inf if t is None else t for t in about["thresholds"]))

    @property
    def rejects(self) -> bool:
        """Whether an answer can be "unknown"; not with few photos, nor after `forget` without stored samples."""
        return any(threshold > -math.inf for threshold in self.thresholds)

    def probabilities(self, logits: Array) -> Array:
        """(n, classes)"""
        return softmax(logits / self.temperature)

    def accepts(self, ood_scores: Array) -> Array:
        """(n,) bool: whether all of an image's out-of-distribution scores (n, k) are above their thresholds."""
        xp = namespace(ood_scores)
        known = xp.ones_like(ood_scores[:, 0], dtype=bool)  # with len(), an export would fix the number of rows
        if self.rejects:
            for column, least in zip(range(ood_scores.shape[1]), self.thresholds, strict=True):
                known = known & (ood_scores[:, column] >= least)
        return known


def ood_scores(logits: Array, distances: Array) -> Array:
    """(n, k): a member's distances where it has some, else the highest logit (Hendrycks et al., 2022)."""
    return distances if distances.shape[1] else namespace(logits).amax(logits, 1)[:, None]


def doubts(probabilities: Array, known: Array) -> Array:
    """(n,): 1 minus the margin between the two best classes; for "unknown" 2 minus the best probability.

    >>> doubts(np.array([[0.75, 0.25], [0.75, 0.25]]), np.array([True, False])).tolist()
    [0.5, 1.25]
    """
    xp = namespace(probabilities)
    ordered = np.sort(probabilities, 1) if xp is np else probabilities.sort(1).values
    best = ordered[:, -1]
    margin = best - ordered[:, -2] if ordered.shape[1] > 1 else best
    return xp.where(known, 1 - margin, 2 - best)
