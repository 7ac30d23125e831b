"""Leave-fold-out discriminants: one factorisation serves all folds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from triphase.learners.slda import SLDA, cholesky
from triphase.learners.training import mask_unseen


class _Remaining(NamedTuple):
    """Class statistics without one part; the scatter within classes is less by `removed`^T `removed`."""

    counts: Tensor  # (n_classes,)
    means: Tensor  # (n_classes, D)
    removed: Tensor  # (r, D)


def scores_without(closed: SLDA, f: Tensor, y: Tensor, parts: Sequence[Tensor]) -> Iterator[Tensor]:
    """For each part, rows of features f (n, D) of classes y, its scores by the statistics without it.

    As `without(closed, f[part], y[part]).scores(f[part])`, but with one factorisation for all parts: Sigma is less
    by a matrix of low rank (Woodbury). Shrinkage takes the variance that is left on average.
    """
    f, s, D = f.double(), closed.shrinkage, f.shape[1]
    within = closed.products - (closed.means * closed.counts.unsqueeze(1)).T @ closed.means
    removed = [float(_without(closed, f[part], y[part]).removed.square().sum()) for part in parts]
    variance = float(within.trace()) - sum(removed) / max(1, len(parts))
    total = float(closed.counts.sum()) - sum(map(len, parts)) / max(1, len(parts))
    if variance <= 1e-12 * max(float(closed.products.trace()), D * total):  # as in SLDA.covariance
        variance = D * total
    scatter = (1 - s) * within
    scatter.diagonal().add_(s * variance / D)
    factor = cholesky(scatter)
    for part in parts:
        left = _without(closed, f[part], y[part])
        white = [_whiten(v, factor) for v in ((1 - s) ** 0.5 * left.removed, f[part], left.means)]
        scores = float(left.counts.sum()) * _scores(*white)
        yield mask_unseen(scores.float(), closed.known)


def _without(closed: SLDA, f: Tensor, y: Tensor) -> _Remaining:
    n = torch.zeros_like(closed.counts).index_add(0, y, torch.ones(len(y), dtype=torch.float64))
    sums = torch.zeros_like(closed.sums).index_add(0, y, f)
    counts, own = closed.counts - n, sums / n.clamp(min=1).unsqueeze(1)
    means = (closed.sums - sums) / counts.clamp(min=1).unsqueeze(1)
    weight = (n * counts / closed.counts.clamp(min=1)).sqrt().unsqueeze(1)
    return _Remaining(counts, means, torch.cat([f - own[y], (weight * (own - means))[n > 0]]))


def _scores(removed: Tensor, f: Tensor, means: Tensor) -> Tensor:
    """(n, n_classes) in whitened space, where what is left of Sigma is I - removed^T removed."""
    core = torch.eye(len(removed), dtype=removed.dtype) - removed @ removed.T
    projected = removed @ means.T  # (r, n_classes)
    solved = torch.cholesky_solve(projected, cholesky(core))
    squares = means.square().sum(1) + (projected * solved).sum(0)
    return f @ means.T + (f @ removed.T) @ solved - squares / 2


def _whiten(v: Tensor, factor: Tensor) -> Tensor:
    white: Tensor = torch.linalg.solve_triangular(factor, v.T, upper=False).T
    return white
