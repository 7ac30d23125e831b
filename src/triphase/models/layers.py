"""The layers that backbones share, and how a network gets its first weights."""

import itertools
import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from triphase.errors import InvalidValue
from triphase.models.split import SplitClassifier, linear_head
from triphase.randomness import generator


class SameConv2d(nn.Conv2d):
    """A convolution padded as TensorFlow's "SAME": ceil(size / stride) pixels come out.

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


class DepthwiseConv2d(nn.Conv2d):
    """One filter per channel, stride 1. Torch's own, but for a gradient that it is slow at.

    Where the map is smaller than the kernel (5 x 5 filters on 3 x 3 pixels, as in the last blocks of a network for
    small images), oneDNN has no fast kernel for the gradient of the filters.
    `benchmarks/speed/depthwise.py` measures what this saves.
    """

    def forward(self, input: Tensor) -> Tensor:
        if max(input.shape[2:]) < self.kernel_size[0] and self.weight.requires_grad and torch.is_grad_enabled():
            return _SmallMap.apply(input, self.weight)  # type: ignore[no-any-return,no-untyped-call]
        return super().forward(input)


class _SmallMap(torch.autograd.Function):
    """A depthwise convolution that keeps the size, whose gradient of the filters is a sum tap by tap."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        return F.conv2d(x, weight, padding=weight.shape[-1] // 2, groups=len(weight))

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor]:
        x, weight = ctx.saved_tensors
        margin, (height, width) = weight.shape[-1] // 2, x.shape[2:]
        grad_x = None
        if ctx.needs_input_grad[0]:
            taps = weight.to(grad.dtype)  # under autocast the gradient is of lower precision
            grad_x = F.conv_transpose2d(grad, taps, padding=margin, groups=len(weight)).to(x.dtype)
        above, below = x.permute(0, 2, 3, 1), grad.permute(0, 2, 3, 1).to(x.dtype)  # as they lie in memory
        grad_weight = torch.zeros_like(weight)
        for i, j in itertools.product(range(1 - height, height), range(1 - width, width)):
            if max(abs(i), abs(j)) <= margin:  # the tap that looks i pixels down and j to the right
                seen = above[:, max(i, 0) : height + min(i, 0), max(j, 0) : width + min(j, 0)]
                from_ = below[:, max(-i, 0) : height - max(i, 0), max(-j, 0) : width - max(j, 0)]
                grad_weight[:, 0, i + margin, j + margin] = (seen * from_).sum((0, 1, 2))
        return grad_x, grad_weight


def conv(
    c_in: int, c_out: int, kernel: int, *, stride: int = 1, groups: int = 1, padding: int | None = None
) -> nn.Conv2d:
    """A convolution without bias; `assemble` draws its values; padding keeps the size.

    Torch fills it from its global generator, which must neither matter nor move.
    """
    margin = kernel // 2 if padding is None else padding
    depthwise = groups == c_in == c_out and stride == 1 and kernel % 2 == 1 and margin == kernel // 2
    with torch.random.fork_rng(devices=()):
        return (DepthwiseConv2d if depthwise else nn.Conv2d)(
            c_in, c_out, kernel, stride, margin, groups=groups, bias=False, device="cpu"
        )


def same_conv(c_in: int, c_out: int, kernel: int, *, stride: int = 1, groups: int = 1) -> nn.Conv2d:
    """As `conv`, with TensorFlow's padding; for stride 1 the two are the same."""
    if stride == 1:
        return conv(c_in, c_out, kernel, groups=groups)
    with torch.random.fork_rng(devices=()):
        return SameConv2d(c_in, c_out, kernel, stride, groups=groups, bias=False, device="cpu")


def assemble(
    llf: nn.Module, csf: nn.Module, n_features: int, n_classes: int, *, image_size: int, seed: int
) -> SplitClassifier:
    """Put the blocks together: random convolutions, a zero head, channels_last weights.

    The draw of a convolution depends on the seed and its position from the input, not on the cut.
    """
    if image_size < 1:
        raise InvalidValue(f"image_size must be at least 1 pixel, got {image_size}.")
    model = SplitClassifier(llf, csf, linear_head(n_features, n_classes), image_size=image_size)
    convolutions = [layer for layer in model.modules() if isinstance(layer, nn.Conv2d)]
    for position, layer in enumerate(convolutions):
        # Kaiming's fan_out; torch's own ignores groups, each of which reaches only its share of the outputs
        fan_out = layer.out_channels // layer.groups * math.prod(layer.kernel_size)
        draw = generator(seed, "weights", position)
        nn.init.normal_(layer.weight, std=math.sqrt(2 / fan_out), generator=draw)
        layer.weight.data = layer.weight.data.contiguous(memory_format=torch.channels_last)
    return model
