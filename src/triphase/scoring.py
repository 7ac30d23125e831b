"""How features become scores, in one form for arrays of torch, as in lessons, and of numpy, as in answers.

Answers need no torch, which takes a second to import. No array that is given here is changed.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

Array = Any  # a torch.Tensor or a numpy.ndarray
BLOCK = 128  # rows of a triangular system that are solved together


class ScoresFeatures(Protocol):
    """A member of an ensemble."""

    def features(self, z: Array) -> Array:
        """(n, D) of latents."""
        ...

    def scores(self, f: Array) -> Array:
        """(n, n_classes) of features."""
        ...

    def distances(self, f: Array) -> Array:
        """(n, k) out-of-distribution scores of features."""
        ...


def namespace(x: Array) -> Any:
    """The library whose array this is."""
    return np if isinstance(x, np.ndarray) else sys.modules["torch"]


def linear(f: Array, weight: Array, bias: Array | None) -> Array:
    """(n, n_classes): f W^T + b."""
    scores = f @ weight.T
    return scores if bias is None else scores + bias


def unit_length(f: Array) -> Array:
    """Rows scaled to length 1.

    >>> unit_length(np.array([[3.0, 4.0]]))
    array([[0.6, 0.8]])
    """
    return f / namespace(f).clip((f * f).sum(1)[:, None] ** 0.5, 1e-12, None)


def whiten(f: Array, factor: Array) -> Array:
    """(n, D): features in coordinates where the covariance L L^T is the identity; `factor` is the lower triangle L.

    >>> whiten(np.array([[2.0, 3.0]]), np.diag([2.0, 1.0]))
    array([[1., 3.]])
    """
    if not isinstance(f, np.ndarray):
        solve = namespace(f).linalg.solve_triangular
        return solve(factor, f.to(factor).T, upper=False).T
    white = np.empty_like(f)
    for start in range(0, len(factor), BLOCK):  # numpy solves no triangular systems, and scipy is slow to import
        rows = slice(start, start + BLOCK)
        left = f[:, rows] - white[:, :start] @ factor[rows, :start].T
        white[:, rows] = np.linalg.solve(factor[rows, rows], left.T).T
    return white


def unpacked(packed: Array, D: int) -> Array:
    """(D, D): a lower triangle of which the rows are stored one after another.

    >>> unpacked(np.array([1, 2, 3]), 2)
    array([[1, 0],
           [2, 3]])
    """
    factor, start = namespace(packed).zeros((D, D), dtype=packed.dtype), 0
    for i in range(D):
        factor[i, : i + 1] = packed[start : start + i + 1]
        start += i + 1
    return factor


def nearness(white: Array, means: Array) -> Array:
    """(n, 2): minus the squared distance to the nearest class mean, relative to that to the origin and absolute."""
    nearest = namespace(white).amax(2 * white @ means.T - (means * means).sum(1), 1)
    return namespace(white).stack([nearest, nearest - (white * white).sum(1)], 1)


def standardize(scores: Array, std: float | None = None) -> Array:
    """Mean 0 and standard deviation 1 over the classes, image by image, or divided by one `std` for all images.

    >>> standardize(np.array([[1.0, 3.0]]))
    array([[-1.,  1.]])
    """
    xp, centred = namespace(scores), scores - scores.mean(1)[:, None]
    own = (np.std(centred, 1) if xp is np else centred.std(1, correction=0))[:, None]
    return centred / xp.clip(own if std is None else xp.full_like(own, std), 1e-12, None)


def member_scores(
    members: Sequence[ScoresFeatures], stds: Sequence[float | None], z: Array, f: Array | None = None
) -> tuple[list[Array], Array]:
    """The scores of each member, standardized if there are several, and the last one's out-of-distribution scores.

    f are the last member's features, where they are known.
    """
    parts, last = [], len(members) - 1
    for number, (member, std) in enumerate(zip(members, stds, strict=True)):
        seen = f if number == last and f is not None else member.features(z)
        scores = member.scores(seen)
        parts.append(standardize(scores, std) if last else scores)
    return parts, members[-1].distances(seen)


def weighted(parts: Sequence[Array], weights: Sequence[float]) -> Array:
    """The weighted sum of members' scores; one member's as they are."""
    if len(parts) == 1:
        return parts[0]
    return sum(weight * scores for weight, scores in zip(weights, parts, strict=True))


def softmax(logits: Array) -> Array:
    """(n, classes): probabilities."""
    if not isinstance(logits, np.ndarray):
        return logits.softmax(1)
    powers = np.exp(logits - logits.max(1)[:, None])
    return powers / powers.sum(1)[:, None]
