"""The layers that backbones share, and how a network gets its first weights (SPEC 5)."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from triphase.errors import InvalidValue
from triphase.models.split import SplitClassifier, linear_head
from triphase.randomness import generator


class SameConv2d(nn.Conv2d):
    """A convolution padded as TensorFlow's "SAME": ceil(size / stride) pixels come out (SPEC 5).

    Where the padding is uneven, the extra pixel goes right and bottom.

    >>> SameConv2d(1, 1, 3, stride=2)(torch.zeros(1, 1, 9, 8)).shape
    torch.Size([1, 1, 5, 4])
    """

    def forward(self, input: Tensor) -> Tensor:
        margins: list[int] = []
        for axis in (1, 0):  # F.pad wants the last axis first
            size, kernel, stride = input.shape[2 + axis], self.kernel_size[axis], self.stride[axis]
            total = max((math.ceil(size / stride) - 1) * stride + kernel - size, 0)
            margins += [total // 2, total - total // 2]
        return super().forward(F.pad(input, margins))


def conv(
    c_in: int, c_out: int, kernel: int, *, stride: int = 1, groups: int = 1, padding: int | None = None
) -> nn.Conv2d:
    """A convolution without bias and, until `assemble` draws them, without values; padding keeps the size.

    Torch would fill it from its global generator, which must neither matter nor move.
    """
    margin = kernel // 2 if padding is None else padding
    layer = nn.Conv2d(c_in, c_out, kernel, stride, margin, groups=groups, bias=False, device="meta")
    return layer.to_empty(device="cpu")


def same_conv(c_in: int, c_out: int, kernel: int, *, stride: int = 1, groups: int = 1) -> nn.Conv2d:
    """As `conv`, with TensorFlow's padding; for stride 1 the two are the same."""
    if stride == 1:
        return conv(c_in, c_out, kernel, groups=groups)
    layer = SameConv2d(c_in, c_out, kernel, stride, groups=groups, bias=False, device="meta")
    return layer.to_empty(device="cpu")


def assemble(
    llf: nn.Module, csf: nn.Module, n_features: int, n_classes: int, *, image_size: int, seed: int
) -> SplitClassifier:
    """Put the blocks together: random convolutions, a zero head, channels_last weights (SPEC 1.3, 7).

    The draw of a convolution depends on the seed and its position from the input, not on the cut.
    """
    if image_size < 1:
        raise InvalidValue(f"image_size must be at least 1 pixel, got {image_size}.")
    model = SplitClassifier(llf, csf, linear_head(n_features, n_classes), image_size=image_size)
    convolutions = [layer for layer in model.modules() if isinstance(layer, nn.Conv2d)]
    for position, layer in enumerate(convolutions):
        # Kaiming's fan_out; torch's own forgets that a group reaches only its share of the outputs
        fan_out = layer.out_channels // layer.groups * math.prod(layer.kernel_size)
        draw = generator(seed, "weights", position)
        nn.init.normal_(layer.weight, std=math.sqrt(2 / fan_out), generator=draw)
        layer.weight.data = layer.weight.data.contiguous(memory_format=torch.channels_last)
    return model
