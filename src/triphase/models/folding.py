"""A frozen block in its fastest form."""

import copy

from torch import nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

from triphase.models.batchrenorm import BatchRenorm2d

FOLDABLE = (nn.BatchNorm2d, BatchRenorm2d)  # in evaluation the same; what others would do is not known


def folded(block: nn.Module) -> nn.Module:
    """A copy for evaluation in which each BatchNorm is part of the convolution before it.

    In evaluation mode both are linear, so one pass over the feature map does the work of two. Only neighbours in a
    plain `nn.Sequential` are joined: there nothing else can come between them. The values differ from those of
    the block by rounding (benchmarks/speed/folding.py).

    >>> folded(nn.Sequential(nn.Conv2d(3, 8, 1), nn.BatchNorm2d(8), nn.ReLU()))[1]
    Identity()
    """
    still = copy.deepcopy(block).eval().requires_grad_(False)
    for chain in [module for module in still.modules() if type(module) is nn.Sequential]:
        layers = list(chain.named_children())
        for (conv_name, conv), (norm_name, norm) in zip(layers, layers[1:], strict=False):
            if isinstance(conv, nn.Conv2d) and isinstance(norm, nn.BatchNorm2d) and type(norm) in FOLDABLE:
                setattr(chain, conv_name, fuse_conv_bn_eval(conv, norm))
                setattr(chain, norm_name, nn.Identity())
    return still
