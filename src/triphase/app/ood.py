"""Out-of-distribution scores, and the thresholds below which an image is "unknown".

A score is high for images of classes that were taught and low for everything else.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from triphase.errors import InvalidValue

MIN_SCORES = 4  # from which a threshold can be fitted


def threshold(scores_known: Tensor, accept: float = 0.95) -> float:
    """Answer "unknown" below this score: in expectation at least `accept` of known images are above it.

    Conformal: if the scores of known images are exchangeable, a threshold at the k-th lowest of n scores rejects k
    in n + 1 known images. k is the largest number that `accept` allows. If it allows none, the threshold is at most
    the lowest score, and lies at a quantile of a normal distribution that was fitted to the scores. With fewer than
    MIN_SCORES scores it is -inf, and nothing is unknown.

    >>> threshold(torch.arange(100.0))
    4.0
    """
    _check_share(accept)
    scores = _double(scores_known).sort().values
    n = len(scores)
    k = int(round((n + 1) * (1 - accept), 9))
    if k >= 1:
        return float(scores[k - 1])
    if n < MIN_SCORES:
        return -math.inf
    reach = _student_t(accept, n - 1) * float(scores.std()) * math.sqrt(1 + 1 / n)
    return min(float(scores[0]), float(scores.mean()) - reach)


@dataclass(frozen=True)
class Moments:
    """Number, mean and central moments of the scores of each class: kept where no sample may be stored."""

    n: Tensor  # (c,)
    mean: Tensor  # (c,)
    squares: Tensor  # (c,): the sum of (score - mean)^2
    cubes: Tensor  # (c,): the sum of (score - mean)^3


def moments(scores: Tensor, y: Tensor, n_classes: int) -> Moments:
    """The moments of each class's scores.

    >>> moments(torch.tensor([1.0, 3.0, 5.0]), torch.tensor([0, 0, 1]), 2).mean.tolist()
    [2.0, 5.0]
    """
    scores, y = _double(scores), y.cpu()
    n = torch.bincount(y, minlength=n_classes).double()
    mean = torch.zeros_like(n).index_add(0, y, scores) / n.clamp(min=1)
    squares, cubes = (torch.zeros_like(n).index_add(0, y, (scores - mean[y]) ** power) for power in (2, 3))
    return Moments(n, mean, squares, cubes)


def merge(a: Moments, b: Moments) -> Moments:
    """The moments of both together (Chan, Golub and LeVeque, 1983); one may know more classes than the other."""
    width = max(len(a.n), len(b.n))
    n_a, mean_a, squares_a, cubes_a = (F.pad(part, (0, width - len(part))) for part in _parts(a))
    n_b, mean_b, squares_b, cubes_b = (F.pad(part, (0, width - len(part))) for part in _parts(b))
    n, gap = (n_a + n_b).clamp(min=1), mean_b - mean_a
    squares = squares_a + squares_b + gap**2 * n_a * n_b / n
    cubes = cubes_a + cubes_b + gap**3 * n_a * n_b * (n_a - n_b) / n**2
    cubes = cubes + 3 * gap * (n_a * squares_b - n_b * squares_a) / n
    return Moments(n_a + n_b, mean_a + gap * n_b / n, squares, cubes)


def without(of: Moments, y: Tensor) -> Moments:
    """The moments without some images of classes y; their scores are unknown, so mean and shape stay the same.

    >>> without(moments(torch.tensor([1.0, 3.0, 5.0]), torch.tensor([0, 0, 1]), 2), torch.tensor([0])).n.tolist()
    [1.0, 1.0]
    """
    gone = torch.bincount(y.cpu(), minlength=len(of.n))[: len(of.n)]
    n = (of.n - gone).clamp(min=0)
    share = n / of.n.clamp(min=1)
    return Moments(n, of.mean, of.squares * share, of.cubes * share)


def drop_class(of: Moments, label: int) -> Moments:
    """The moments without a class; later labels move down by one."""
    return Moments(*(torch.cat([part[:label], part[label + 1 :]]) for part in _parts(of)))


def threshold_from_moments(known: Moments, accept: float = 0.95) -> float:
    """Like `threshold`, from moments; every class has the same weight.

    Scores have a long tail on one side, so the skewness matters: the quantile is that of a shifted Gamma
    distribution with the same three moments (Wilson and Hilferty, 1931), widened for the number of scores.
    """
    _check_share(accept)
    there = known.n > 0
    total = float(known.n.sum())
    if total < MIN_SCORES:
        return -math.inf
    n, means, squares, cubes = (part[there] for part in _parts(known))
    mean = means.mean()
    off, variances = means - mean, squares / n
    variance = float((variances + off**2).mean()) * total / (total - 1)
    if variance == 0.0:
        return float(mean)
    skewness = float((cubes / n + 3 * off * variances + off**3).mean()) / variance**1.5
    z = -_student_t(accept, int(total) - 1)
    return float(mean) + _skewed(z, skewness) * math.sqrt(variance * (1 + 1 / total))


def _double(tensor: Tensor) -> Tensor:
    """In double precision, without gradient."""
    return tensor.detach().cpu().double()


def _parts(of: Moments) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return of.n, of.mean, of.squares, of.cubes


def _skewed(z: float, skewness: float) -> float:
    """The point of a standardised Gamma distribution of that skewness that corresponds to z of the normal one."""
    if abs(skewness) < 1e-6:
        return z
    return 2 / skewness * (max(0.0, 1 + skewness * z / 6 - skewness**2 / 36) ** 3 - 1)


def _student_t(share: float, degrees: int) -> float:
    """A quantile of Student's t distribution with these degrees of freedom."""
    from scipy.special import stdtrit  # slow to import, and only a lesson fits anything

    return float(stdtrit(degrees, share))


def _check_share(accept: float) -> None:
    if not 0 < accept < 1:
        raise InvalidValue(f"accept must be between 0 and 1, got {accept}: 0.95 accepts 95 % of known images.")
