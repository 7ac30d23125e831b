"""Gradient masking (Sec. IV-B): which corrections may flow back through which output, per sample.

A mask is a boolean tensor of the logits' full shape (n_mb, n_classes): True where the gradient is blocked.
"""

import math
from collections.abc import Callable, Set
from functools import lru_cache

import torch
from torch import Tensor
from torch.nn import functional as F

from triphase.errors import InvalidValue

GradientMask = Callable[[Tensor, Tensor], Tensor]  # logits, y -> where the gradient is blocked


def block_gradient(logits: Tensor, blocked: Tensor) -> Tensor:
    """The same logits, through which no gradient passes where `blocked`.

    Values, softmax and loss are untouched; dL/dlogits is zeroed in the blocked cells (Sec. IV-B).

    >>> logits = torch.zeros(1, 2, requires_grad=True)
    >>> block_gradient(logits, torch.tensor([[True, False]])).sum().backward()
    >>> logits.grad
    tensor([[0., 1.]])
    """
    return torch.where(blocked, logits.detach(), logits)


def outside(classes: Set[int], logits: Tensor) -> Tensor:
    """True in the columns of every class that is not among `classes` (Phase I, Table 1).

    >>> outside({1}, torch.zeros(2, 3))[0]
    tensor([ True, False,  True])
    """
    return _outside(frozenset(classes), logits.shape[1], logits.device).expand(logits.shape)


@lru_cache(maxsize=256)
def _outside(classes: frozenset[int], n_classes: int, device: torch.device) -> Tensor:
    columns = torch.ones(n_classes, dtype=torch.bool)
    columns[sorted(classes)] = False
    return columns.to(device)


def harmless(logits: Tensor, y: Tensor, t: float) -> Tensor:
    """True where f(x)[k] < t f(x)[y]: too small to threaten the true class (Phase II, Table 2).

    f is the softmax, so the test needs only a difference of logits: z_k - z_y < log t.

    >>> harmless(torch.tensor([[0.70, 0.20, 0.10]]).log(), torch.tensor([0]), t=0.25)
    tensor([[False, False,  True]])
    """
    check_tolerance(t)
    if t == 0:  # log 0: nothing is harmless, not even a probability that underflowed to 0
        return torch.zeros_like(logits, dtype=torch.bool)
    true = logits.gather(1, y.view(-1, 1))  # (n_mb, 1)
    return logits - true < math.log(t)


def gradient_masks(
    masking: str, novel: frozenset[int], current: frozenset[int], t: float
) -> tuple[GradientMask, GradientMask]:
    """The masks of Phases I and II: "tpc", or "none", or Lesort's "single" and "group" as gradient masks.

    >>> phase_1, phase_2 = gradient_masks("tpc", novel=frozenset({1}), current=frozenset({0, 1}), t=0.5)
    >>> phase_1(torch.zeros(1, 3), torch.tensor([0]))
    tensor([[ True, False,  True]])
    """
    others: dict[str, GradientMask] = {
        "none": lambda logits, y: torch.zeros_like(logits, dtype=torch.bool),
        "single": lambda logits, y: ~F.one_hot(y, logits.shape[1]).bool(),  # the true class alone learns
        "group": lambda logits, y: outside(set(y.tolist()), logits),  # the classes of the minibatch learn
    }
    if masking in others:
        return others[masking], others[masking]
    return (
        lambda logits, y: outside(novel, logits),
        lambda logits, y: outside(current, logits) & harmless(logits, y, t),
    )


def check_tolerance(t: float) -> None:
    """Refuse a t for which masking makes no sense."""
    if not 0 <= t <= 1:
        raise InvalidValue(f"t must be in [0, 1], got {t}: above 1 the true class itself would be blocked.")
