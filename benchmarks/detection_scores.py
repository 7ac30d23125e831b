"""Out-of-distribution scores and measures that the benchmarks compare; `teach` uses the one that won.

A score is high for images of classes that were taught and low for everything else.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F


def max_softmax(logits: Tensor, temperature: float = 1.0) -> Tensor:
    """(n,): the probability of the likeliest class."""
    return (logits.float() / temperature).softmax(1).amax(1)


def max_logit(logits: Tensor) -> Tensor:
    """(n,): the highest logit."""
    return logits.float().amax(1)


def energy(logits: Tensor, temperature: float = 1.0) -> Tensor:
    """(n,): T logsumexp(logits / T), a soft maximum (Liu et al., 2020)."""
    return temperature * (logits.float() / temperature).logsumexp(1)


def cosine(features: Tensor, means: Tensor) -> Tensor:
    """(n,): the cosine between features (n, D) and the nearest of the class means (c, D)."""
    return (F.normalize(features, dim=1) @ F.normalize(means, dim=1).T).amax(1)


def discriminant_mahalanobis(features: Tensor, means: Tensor) -> Tensor:
    """(n,): minus the squared distance to the nearest class mean in the directions in which means differ.

    Both are whitened.
    """
    centre = means.mean(0)
    directions = torch.linalg.svd(means - centre, full_matrices=False)[2][: len(means) - 1]
    f, m = (features - centre) @ directions.T, (means - centre) @ directions.T
    return -(torch.cdist(f, m) ** 2).amin(1)


def nearest_neighbour(features: Tensor, stored: Tensor) -> Tensor:
    """(n,): the cosine between features (n, D) and the nearest of the stored ones (m, D)."""
    return (F.normalize(features, dim=1) @ F.normalize(stored, dim=1).T).amax(1)


def auroc(known: Tensor, unknown: Tensor) -> float:
    """How likely a known image scores higher than an unknown one, a tie counts half; NaN without either."""
    a, b = known.double(), unknown.double().sort().values
    if not len(a) or not len(b):
        return math.nan
    lower, upper = torch.searchsorted(b, a), torch.searchsorted(b, a, right=True)
    return float((lower + upper).double().mean() / (2 * len(b)))


def expected_calibration_error(probabilities: Tensor, y: Tensor, bins: int = 15) -> float:
    """|accuracy - confidence|, averaged over images in bins of equal confidence; NaN without images."""
    confidence, guess = probabilities.double().max(1)
    number = (confidence * bins).ceil().long().clamp(1, bins) - 1
    gaps = (guess == y).double() - confidence
    total = torch.zeros(bins, dtype=torch.float64).index_add(0, number, gaps)
    return float(total.abs().sum() / len(gaps)) if len(gaps) else math.nan
