"""Stochastic gradient descent with momentum: the arithmetic of torch.optim.SGD without importing it.

Building a `torch.optim.SGD` loads torch's compiler, which takes a second: as long as a short lesson trains.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor
from torch.amp.grad_scaler import GradScaler
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

    def __init__(
        self,
        param_groups: list[dict[str, Any]],
        momentum: float,
        context: Context | None = None,
        scaler: GradScaler | None = None,
    ) -> None:
        self.param_groups, self.momentum = param_groups, momentum
        self.context = Context() if context is None else context
        self.scaler = scaler  # of the loss, where activations are of a precision in which gradients underflow
        self.buffers: dict[Tensor, Tensor] = {}  # the momentum of each parameter that has moved

    def zero_grad(self) -> None:
        """Forget all gradients."""
        for group in self.param_groups:
            for p in group["params"]:
                p.grad = None

    def descend(self, loss: Tensor, share: float | None) -> Tensor:
        """Move every parameter against the gradient of the loss; see `sgd_step`."""
        processes = self.context.processes
        part = loss if processes.size == 1 else _share_of_loss(loss, share)
        (part if self.scaler is None else self.scaler.scale(part)).backward()
        if processes.size > 1:
            loss = self._sum_gradients(part, processes)
        if self.scaler is None:
            self.step()
        else:
            self.scaler.step(cast(torch.optim.Optimizer, self))  # no step where a gradient overflowed
            self.scaler.update()
        return loss

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

    def _sum_gradients(self, part: Tensor, processes: Processes) -> Tensor:
        """Sum all gradients over processes, in one message, with the parts of the loss; returns the whole loss."""
        moving = [p for group in self.param_groups for p in group["params"] if p.grad is not None]
        message = processes.sum_(torch.cat([*(p.grad.reshape(-1) for p in moving), part.detach().view(1)]))
        for p, grad in zip(moving, message[:-1].split([p.numel() for p in moving]), strict=True):
            p.grad.copy_(grad.view_as(p))
        return message[-1]


def _share_of_loss(loss: Tensor, share: float | None) -> Tensor:
    """What the loss of a shard adds to that of its minibatch."""
    if share is None:
        raise InvalidValue("Several processes share each minibatch: this learner must give sgd_step its mb.share.")
    return loss * share if share else loss.nan_to_num() * 0  # the mean over no sample is not a number
