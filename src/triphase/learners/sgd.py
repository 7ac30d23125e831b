"""Stochastic gradient descent with momentum: torch's arithmetic without torch's optimiser class.

Building a `torch.optim.SGD` loads torch's compiler, which takes a second: as long as a short lesson trains.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.optim.sgd import sgd

from triphase.context import Context
from triphase.errors import InvalidValue
from triphase.processes import Processes


class SGD:
    """Parameter groups with their own rates, as in torch: {"params": [...], "lr": ..., "weight_decay": ...}.

    >>> w = torch.ones(2, requires_grad=True)
    >>> optimizer = SGD([{"params": [w], "lr": 0.1, "weight_decay": 0.0}], momentum=0.9)
    >>> w.sum().backward()
    >>> optimizer.step()
    >>> w.tolist() == [torch.tensor(0.9).item()] * 2
    True
    """

    def __init__(self, param_groups: list[dict[str, Any]], momentum: float, context: Context | None = None) -> None:
        self.param_groups, self.momentum = param_groups, momentum
        self.context = Context() if context is None else context
        self.buffers: dict[Tensor, Tensor] = {}  # the momentum of each parameter that has moved

    def zero_grad(self) -> None:
        """Forget all gradients."""
        for group in self.param_groups:
            for p in group["params"]:
                p.grad = None

    @torch.no_grad()
    def step(self) -> None:
        """Move every parameter that has a gradient."""
        for group in self.param_groups:
            moving = [p for p in group["params"] if p.grad is not None]
            buffers: list[Tensor | None] = [self.buffers.get(p) for p in moving]
            sgd(
                moving,
                [p.grad for p in moving],
                buffers,
                foreach=True,
                weight_decay=group["weight_decay"],
                momentum=self.momentum,
                lr=group["lr"],
                dampening=0.0,
                nesterov=False,
                maximize=False,
            )
            self.buffers |= {p: b for p, b in zip(moving, buffers, strict=True) if b is not None}


def backward_in_all(
    param_groups: list[dict[str, Any]], loss: Tensor, share: float | None, processes: Processes
) -> Tensor:
    """The gradient of a minibatch's loss from those of its shards, summed in one message; returns that loss."""
    if share is None:
        raise InvalidValue("Several processes share each minibatch: this learner must give sgd_step its mb.share.")
    (loss * share).backward()
    moving = [p for group in param_groups for p in group["params"] if p.grad is not None]
    mine = loss.detach().view(1) * share if share else loss.new_zeros(1)  # the mean over no sample is not a number
    message = processes.sum_(torch.cat([*(p.grad.reshape(-1) for p in moving), mine]))
    for p, grad in zip(moving, message[:-1].split([p.numel() for p in moving]), strict=True):
        p.grad.copy_(grad.view_as(p))
    return message[-1]
