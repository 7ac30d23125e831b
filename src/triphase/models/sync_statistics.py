"""Mean and variance of a minibatch of which several processes have a shard each, and normalisation by them.

torch's SyncBatchNorm takes no CPU tensors, so the sums over processes are made here, forward and backward.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from triphase.processes import Processes


@dataclass(frozen=True)
class Statistics:
    """Of each channel, over the images of all processes; a single image is normalised by the running ones."""

    mean: Tensor  # (C,)
    var: Tensor  # (C,), biased
    unbiased_var: Tensor  # (C,)
    several: Tensor  # bool: whether there is more than one image
    correction: Tensor  # 1 / pixels of a channel; 0 if mean and variance do not depend on the images


def statistics(x: Tensor, running_mean: Tensor, running_var: Tensor, processes: Processes) -> Statistics:
    """The statistics of x (n, C, ...) over all processes; some of them may have no image."""
    channels = x.shape[1]
    sums = torch.zeros(2 * channels + 2, dtype=torch.float64, device=x.device)
    if len(x):
        mean, var = (m.double() for m in torch.batch_norm_update_stats(x.detach(), None, None, 0.0))
        n = x.numel() // channels
        sums = torch.cat([n * mean, n * (var + mean.square()), sums.new_tensor([n, len(x)])])
    processes.sum_(sums)
    n_all, images = sums[-2:]
    several = images > 1
    mean = sums[:channels] / n_all
    var = (sums[channels:-2] / n_all - mean.square()).clamp(min=0)
    mean, var = torch.where(several, mean, running_mean), torch.where(several, var, running_var)
    unbiased = torch.where(several, n_all / (n_all - 1).clamp(min=1), 1.0)
    like = running_mean.dtype
    return Statistics(mean.to(like), var.to(like), (var * unbiased).to(like), several, (several / n_all).to(like))


def normalize(
    x: Tensor, weight: Tensor, bias: Tensor, measured: Statistics, eps: float, processes: Processes
) -> Tensor:
    """(x - mean) / std * weight + bias; its gradient knows that the statistics depend on x in all processes."""
    constants = (measured.mean, measured.var, measured.correction, eps, processes)
    return _Normalize.apply(x, weight, bias, *constants)  # type: ignore[no-any-return,no-untyped-call]


class _Normalize(torch.autograd.Function):
    """The gradient of weight and bias is that of this process's images: `sgd_step` adds it up over processes."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor,
        mean: Tensor,
        var: Tensor,
        correction: Tensor,
        eps: float,
        processes: Processes,
    ) -> Tensor:
        ctx.save_for_backward(x, weight, mean, var, correction)
        ctx.eps, ctx.processes = eps, processes
        return F.batch_norm(x, mean, var, weight, bias, eps=eps) if len(x) else x.clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, mean, var, correction = ctx.saved_tensors
        grad_x, grad_weight, grad_bias = grad, torch.zeros_like(weight), torch.zeros_like(weight)
        if len(x):  # torch's kernels crash without images
            grad_x, grad_weight, grad_bias = torch.ops.aten.native_batch_norm_backward(
                grad, x, weight, mean, var, None, None, False, ctx.eps, [True, True, True]
            )
        if ctx.needs_input_grad[0]:
            sums = ctx.processes.sum_(torch.cat([grad_weight, grad_bias]))
            scale = -weight * (var + ctx.eps).rsqrt() * correction
            through_var, through_mean = (scale * part for part in sums.chunk(2))
            if len(x):
                grad_x += F.batch_norm(x, mean, var, through_var, through_mean, eps=ctx.eps)
        return grad_x, grad_weight, grad_bias, None, None, None, None, None
