"""BatchNorm statistics for networks that came without any."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from triphase.errors import BadData
from triphase.models.split import SplitClassifier


def lacks_statistics(model: SplitClassifier) -> bool:
    """Whether weights with folded BatchNorm filled a block that may learn: call `rebuild_batchnorm` before it does.

    >>> from triphase.models import small_cnn
    >>> lacks_statistics(small_cnn())
    False
    """
    return any(_lacks_statistics(layer) for _, layer in _unfrozen_batchnorms(model))


def rebuild_batchnorm(model: SplitClassifier, images: Tensor, *, batch_size: int = 64) -> tuple[str, ...]:
    """Measure the statistics that folded weights lack and return the names of these layers.

    Each such BatchNorm gets the mean and variance of its input over `images` (uint8 NCHW) as running
    statistics, and the weight and bias that leave its output in evaluation mode as it was. Layers that have
    statistics, or none of whose parameters were ever set, are left alone, and so are frozen blocks: calling
    this on any model, or twice, does no harm.

    >>> from triphase.models import small_cnn
    >>> rebuild_batchnorm(small_cnn(), torch.zeros(4, 1, 8, 8))
    ()
    """
    layers = {name: layer for name, layer in _unfrozen_batchnorms(model) if _lacks_statistics(layer)}
    if not layers:
        return ()
    if not len(images):
        raise BadData("BatchNorm statistics cannot be measured without images; give at least one.")
    moments = {name: _Moments(layer) for name, layer in layers.items()}
    training = model.training
    model.eval()
    hooks = [layers[name].register_forward_pre_hook(moments[name].add) for name in layers]
    try:
        with torch.no_grad():
            for batch in images.split(batch_size):
                model.tail(model.encode(batch))
    finally:
        for hook in hooks:
            hook.remove()
        model.train(training)
    for name, layer in layers.items():
        _set_statistics_(layer, *moments[name].mean_and_variance())
    return tuple(layers)


class _Moments:
    """Sums over all pixels of all batches, in float64 so that their order hardly matters."""

    def __init__(self, layer: _BatchNorm) -> None:
        self.n = 0
        self.first = torch.zeros(layer.num_features, dtype=torch.float64)
        self.second = torch.zeros_like(self.first)

    def add(self, layer: nn.Module, args: tuple[Any, ...]) -> None:
        x: Tensor = args[0]
        n = x.numel() // x.shape[1]
        var, mean = (m.cpu().double() for m in torch.var_mean(x, dim=(0, 2, 3), correction=0))
        self.n += n
        self.first += n * mean
        self.second += n * (var + mean.square())

    def mean_and_variance(self) -> tuple[Tensor, Tensor]:
        mean = self.first / self.n
        return mean, (self.second / self.n - mean.square()).clamp(min=0)


def _unfrozen_batchnorms(model: SplitClassifier) -> list[tuple[str, _BatchNorm]]:
    blocks = [("llf", model.llf)] if not model.is_frozen("llf") else []
    blocks += [("csf", model.csf)] if not model.is_frozen("csf") else []
    found = [pair for name, block in blocks for pair in block.named_modules(prefix=name)]
    return [(name, layer) for name, layer in found if isinstance(layer, _BatchNorm)]


def _lacks_statistics(layer: _BatchNorm) -> bool:
    """Whether parameters were set while the running mean has its initial value of zero."""
    if layer.running_mean is None or not layer.affine:
        return False
    return bool(layer.bias.any()) and not bool(layer.running_mean.any())


@torch.no_grad()
def _set_statistics_(layer: _BatchNorm, mean: Tensor, variance: Tensor) -> None:
    """Give the layer these running statistics without changing what it computes from running statistics."""
    assert layer.running_mean is not None and layer.running_var is not None
    weight, bias, old_mean, old_variance = (
        t.cpu().double() for t in (layer.weight, layer.bias, layer.running_mean, layer.running_var)
    )
    slope = weight / (old_variance + layer.eps).sqrt()
    shift = bias - slope * old_mean
    layer.running_mean.copy_(mean)
    layer.running_var.copy_(variance)
    layer.weight.copy_(slope * (variance + layer.eps).sqrt())
    layer.bias.copy_(shift + slope * mean)
