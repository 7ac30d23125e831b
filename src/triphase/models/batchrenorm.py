"""Batch renormalisation (Ioffe, 2017), which AR1 uses instead of BatchNorm."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from triphase.errors import InvalidValue
from triphase.models.sync_statistics import normalize, statistics
from triphase.processes import Processes


class BatchRenorm2d(nn.BatchNorm2d):
    """BatchNorm whose training output is pulled towards what the running statistics would give.

    In training, y = ((x - batch mean) / batch std * r + d) * weight + bias, where r and d are constants that
    would replace the batch's statistics by the running ones, but r stays in [1/r_max, r_max] and d in
    [-d_max, d_max]. With r_max = 1 and d_max = 0 it is BatchNorm. Both limits and the momentum are buffers:
    they are saved with the model, and `layer.momentum.fill_(5e-5)` changes one.

    >>> layer = BatchRenorm2d(3)
    >>> layer(torch.zeros(4, 3, 2, 2)).shape, sorted(layer.state_dict())[-3:]
    (torch.Size([4, 3, 2, 2]), ['running_mean', 'running_var', 'weight'])
    """

    running_mean: Tensor
    running_var: Tensor
    num_batches_tracked: Tensor
    momentum: Tensor  # type: ignore[assignment]  # a buffer here, a float in torch's own layers
    r_max: Tensor
    d_max: Tensor

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float = 0.01,
        *,
        r_max: float = 1.25,
        d_max: float = 0.5,
    ) -> None:
        super().__init__(num_features, eps)
        if r_max < 1 or d_max < 0:
            raise InvalidValue(f"r_max must be at least 1 and d_max at least 0, got {r_max} and {d_max}.")
        self.processes = Processes()
        del self.momentum
        for name, value in (("momentum", momentum), ("r_max", r_max), ("d_max", d_max)):
            self.register_buffer(name, torch.tensor(value))

    def forward(self, input: Tensor) -> Tensor:
        self._check_input_dim(input)
        if not self.training:
            statistics = (self.running_mean, self.running_var)
            return F.batch_norm(input, *statistics, self.weight, self.bias, eps=self.eps)
        if self.processes.size > 1:
            return self._shared_forward(input)
        with torch.no_grad():
            r, d = self._correction(input)
        weight, bias = self.weight * r, self.weight * d + self.bias
        return F.batch_norm(input, None, None, weight, bias, training=True, eps=self.eps)

    def _correction(self, input: Tensor) -> tuple[Tensor, Tensor]:
        """r and d for this batch, which then enters the running statistics."""
        exact = input.to(self.running_mean.dtype)  # activations may be in half precision
        var, mean = torch.var_mean(exact, dim=(0, 2, 3), correction=0)
        r, d = self._limited(mean, var)
        n = input.numel() // input.shape[1]
        self.running_mean.lerp_(mean, self.momentum)
        self.running_var.lerp_(var * (n / max(n - 1, 1)), self.momentum)  # unbiased, as in BatchNorm
        self.num_batches_tracked += 1
        return r, d

    def _shared_forward(self, input: Tensor) -> Tensor:
        """The same for a minibatch of which several processes have a shard each."""
        measured = statistics(input, self.running_mean, self.running_var, self.processes)
        r, d = self._limited(measured.mean, measured.var)
        self.running_mean.lerp_(measured.mean, self.momentum)
        self.running_var.lerp_(measured.unbiased_var, self.momentum)
        self.num_batches_tracked += measured.several
        weight, bias = self.weight * r, self.weight * d + self.bias
        return normalize(input, weight, bias, measured, self.eps, self.processes)

    def _limited(self, mean: Tensor, var: Tensor) -> tuple[Tensor, Tensor]:
        """r and d within their limits."""
        std = (self.running_var + self.eps).sqrt()
        r = ((var + self.eps).sqrt() / std).clamp(1 / self.r_max, self.r_max)
        d = ((mean - self.running_mean) / std).clamp(-self.d_max, self.d_max)
        return r, d


def with_batch_renorm(module: nn.Module) -> nn.Module:
    """Swap every BatchNorm2d inside the module, in place; parameters and statistics are kept.

    >>> with_batch_renorm(nn.Sequential(nn.BatchNorm2d(3)))[0].r_max
    tensor(1.2500)
    """
    if isinstance(module, nn.BatchNorm2d) and not isinstance(module, BatchRenorm2d):
        return _renormalised(module)
    for name, child in module.named_children():
        setattr(module, name, with_batch_renorm(child))
    return module


def _renormalised(old: nn.BatchNorm2d) -> BatchRenorm2d:
    if type(old) is not nn.BatchNorm2d:
        raise InvalidValue(f"A {type(old).__name__} does more than BatchNorm and cannot be swapped: use norm='bn'.")
    if not (old.affine and old.track_running_stats):
        raise InvalidValue(f"Only a BatchNorm2d with weights and running statistics can be swapped, got {old}.")
    new = BatchRenorm2d(old.num_features, old.eps)
    new.weight, new.bias = old.weight, old.bias
    for name, buffer in old.named_buffers():
        setattr(new, name, buffer)
    return new.to(old.weight.device).train(old.training)
