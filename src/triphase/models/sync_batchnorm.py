"""BatchNorm over a minibatch of which several processes have a shard each."""

from __future__ import annotations

from typing import Literal

from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.modules.batchnorm import _BatchNorm

from triphase.errors import InvalidValue
from triphase.models.batchrenorm import BatchRenorm2d
from triphase.models.split import SplitClassifier
from triphase.models.sync_statistics import normalize, statistics
from triphase.processes import Processes

REPLACED = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)


class SyncBatchNorm(_BatchNorm):
    """torch's BatchNorm with the statistics of the minibatches of all processes."""

    running_mean: Tensor
    running_var: Tensor
    num_batches_tracked: Tensor

    def __init__(self, old: _BatchNorm, processes: Processes) -> None:
        """Takes over parameters and statistics of a layer of torch's."""
        if not (old.affine and old.track_running_stats):
            raise InvalidValue(
                f"Several processes can only train a BatchNorm with weights and statistics, got {old}."
            )
        super().__init__(old.num_features, old.eps, old.momentum, device="meta")
        self.processes = processes
        self.weight, self.bias = old.weight, old.bias
        for name, buffer in old.named_buffers():
            setattr(self, name, buffer)
        self.train(old.training)

    def forward(self, input: Tensor) -> Tensor:
        if not self.training:
            return F.batch_norm(input, self.running_mean, self.running_var, self.weight, self.bias, eps=self.eps)
        measured = statistics(input, self.running_mean, self.running_var, self.processes)
        self.num_batches_tracked += measured.several
        rate = 1 / self.num_batches_tracked if self.momentum is None else self.momentum
        self.running_mean.lerp_(measured.mean, rate)
        self.running_var.lerp_(measured.unbiased_var, rate)
        return normalize(input, self.weight, self.bias, measured, self.eps, self.processes)


def synchronize(model: SplitClassifier, processes: Processes) -> None:
    """Let the normalisation layers of the blocks that learn use the minibatches of all processes, in place."""
    blocks: tuple[Literal["llf", "csf"], ...] = ("llf", "csf")
    for block in blocks if processes.size > 1 else ():
        if not model.is_frozen(block):
            setattr(model, block, _synchronized(getattr(model, block), processes))


def _synchronized(module: nn.Module, processes: Processes) -> nn.Module:
    if type(module) in REPLACED:
        assert isinstance(module, _BatchNorm)
        return SyncBatchNorm(module, processes)
    if isinstance(module, SyncBatchNorm | BatchRenorm2d):
        module.processes = processes
    elif isinstance(module, _BatchNorm):
        raise InvalidValue(
            f"Several processes cannot train a layer {type(module).__name__}, whose statistics would be of one "
            "process alone; train this network in one process."
        )
    for name, child in module.named_children():
        if (replaced := _synchronized(child, processes)) is not child:
            setattr(module, name, replaced)
    return module
