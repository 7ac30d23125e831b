"""Online bias correction (Sec. IV-A): each class row of the head is drawn to mean 0 and std s."""

from collections.abc import Collection
from functools import lru_cache

import torch
from torch import Tensor

from triphase.errors import InvalidValue


def bias_correction_loss(rows: Tensor, s: float, eps: float = 1e-4) -> Tensor:
    """L_BC: the mean over the rows of KL(N(mu_j, sigma_j^2) || N(0, s^2)) (Eq. 10).

    >>> round(bias_correction_loss(torch.tensor([[0.10, -0.10]]), s=0.05).item(), 3)
    0.807
    """
    check_std(s)
    if len(rows) == 0:
        return rows.sum()
    mu = rows.mean(dim=1)
    # The variance, not its root: Eq. 10 only uses sigma squared, and the root has no gradient at a zero row.
    variance = rows.var(dim=1, correction=0) / s**2
    return ((mu / s) ** 2 + variance - torch.log(variance + eps) - 1).mean() / 2


@torch.no_grad()
def normalize_(weight: Tensor, classes: Collection[int], s: float) -> None:
    """Give the row of each class zero mean and standard deviation s, in place (Eq. 9).

    A row with sigma = 0 (a class that never learned) has no direction to keep and is left alone.

    >>> weight = torch.tensor([[1.0, 3.0], [1.0, 3.0]])
    >>> normalize_(weight, {1}, s=0.5)
    >>> weight
    tensor([[ 1.0000,  3.0000],
            [-0.5000,  0.5000]])
    """
    check_std(s)
    index = class_rows(classes, weight)
    if len(index) == 0:
        return
    rows = weight[index].cpu().double()  # half precision would leave a mean behind, and MPS has no double
    centred = rows - rows.mean(dim=1, keepdim=True)
    sigma = centred.square().mean(dim=1, keepdim=True).sqrt()
    varies = sigma > 1e-12
    scaled = torch.where(varies, centred * (s / sigma.clamp_min(1e-12)), rows)
    weight.index_copy_(0, index, scaled.to(weight.dtype).to(weight.device))


def class_rows(classes: Collection[int], like: Tensor) -> Tensor:
    """The row numbers of classes in ascending order, on the device of `like`; computed once for each set."""
    return _rows(frozenset(classes), like.device)


@lru_cache(maxsize=256)
def _rows(classes: frozenset[int], device: torch.device) -> Tensor:
    return torch.tensor(sorted(classes), dtype=torch.long).to(device)


def stable_lr(n_rows: int, n_features: int, s: float, w_bc: float, momentum: float) -> float:
    """The learning rate above which w_bc L_BC alone makes SGD with momentum diverge.

    At its minimum, L_BC curves most along a row's own direction, by 2 / (n D s^2); heavy-ball descent is
    stable while lr times the curvature stays below 2 (1 + momentum).

    >>> round(stable_lr(2, 64, 0.05, 5.0, 0.9), 4)
    0.1216
    """
    return (1 + momentum) * n_rows * n_features * s**2 / w_bc if w_bc > 0 else float("inf")


def check_std(s: float) -> None:
    """Refuse a target standard deviation that is none."""
    if not s > 0:
        raise InvalidValue(f"s must be above 0, got {s}: it is the standard deviation of every class row.")
