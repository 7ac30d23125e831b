"""A frozen block in its fastest form: each BatchNorm is part of the convolution before it."""

import copy
from collections.abc import Iterator

import torch
from torch import nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

from triphase.models.batchrenorm import BatchRenorm2d
from triphase.models.sync_batchnorm import SyncBatchNorm

FOLDABLE = (nn.BatchNorm2d, BatchRenorm2d, SyncBatchNorm)  # the same in evaluation mode; other layers may not be


def folded(block: nn.Module) -> nn.Module:
    """A copy for evaluation in which each BatchNorm is part of the convolution before it.

    In evaluation mode both are linear, so one pass over the feature map does the work of two. Only neighbours in a
    plain `nn.Sequential` are joined: there nothing else can come between them. The values differ from those of
    the block by rounding (benchmarks/speed/folding.py).

    >>> folded(nn.Sequential(nn.Conv2d(3, 8, 1), nn.BatchNorm2d(8), nn.ReLU()))[1]
    Identity()
    """
    frozen = copy.deepcopy(block).eval().requires_grad_(False)
    for chain, conv_name, norm_name in list(_pairs(frozen)):
        fused = fuse_conv_bn_eval(getattr(chain, conv_name), getattr(chain, norm_name))
        setattr(chain, conv_name, fused)
        setattr(chain, norm_name, nn.Identity())
    return frozen


def fold_layout_(block: nn.Module) -> nn.Module:
    """Give a block the layers of its folded form, in place; their values are to be loaded.

    >>> block = nn.Sequential(nn.Conv2d(3, 8, 1, bias=False), nn.BatchNorm2d(8))
    >>> values = folded(block).state_dict()
    >>> fold_layout_(block).load_state_dict(values)
    <All keys matched successfully>
    """
    for chain, conv_name, norm_name in list(_pairs(block)):
        conv = getattr(chain, conv_name)
        if conv.bias is None:
            conv.bias = nn.Parameter(torch.zeros(conv.out_channels), requires_grad=False)
        setattr(chain, norm_name, nn.Identity())
    return block.eval().requires_grad_(False)


def _pairs(block: nn.Module) -> Iterator[tuple[nn.Sequential, str, str]]:
    """Each convolution with the BatchNorm right after it: their chain and their names in it."""
    for chain in [module for module in block.modules() if type(module) is nn.Sequential]:
        layers = list(chain.named_children())
        for (conv_name, conv), (norm_name, norm) in zip(layers, layers[1:], strict=False):
            if isinstance(conv, nn.Conv2d) and type(norm) in FOLDABLE:
                yield chain, conv_name, norm_name
