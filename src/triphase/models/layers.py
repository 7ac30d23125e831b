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

N_COLUMNS = 3  # taps side by side for which oneDNN has a fast gradient of depthwise filters


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
        padded = F.pad(input, margins)
        if _has_slow_gradient(self, padded):
            return _WideDepthwise.apply(padded, self.weight, self.stride[0], 0)  # type: ignore[no-any-return,no-untyped-call]
        return super().forward(padded)


class DepthwiseConv2d(nn.Conv2d):
    """One filter per channel, stride 1: as in torch, with a faster gradient of wide filters on the CPU."""

    def forward(self, input: Tensor) -> Tensor:
        if _has_slow_gradient(self, input):
            return _WideDepthwise.apply(input, self.weight, 1, self.padding[0])  # type: ignore[no-any-return,no-untyped-call]
        return super().forward(input)


def _has_slow_gradient(layer: nn.Conv2d, x: Tensor) -> bool:
    """Whether wide depthwise filters learn on the CPU: oneDNN has no fast kernel for their gradient.

    `benchmarks/speed/depthwise.py` measures what is saved.
    """
    learns = layer.weight.requires_grad and torch.is_grad_enabled() and x.device.type == "cpu"
    depthwise = layer.groups == layer.in_channels == layer.out_channels and layer.bias is None
    return learns and depthwise and layer.kernel_size[1] > N_COLUMNS


class _WideDepthwise(torch.autograd.Function):
    """A depthwise convolution whose gradient of the filters is put together from parts that are fast."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, stride: int, padding: int) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.stride, ctx.padding = stride, padding
        return F.conv2d(x, weight, stride=stride, padding=padding, groups=len(weight))

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor, None, None]:
        x, weight = ctx.saved_tensors
        x, taps = x.to(grad.dtype), weight.to(grad.dtype)  # under autocast the gradient is of lower precision
        stride, padding, grad_x = ctx.stride, ctx.padding, None
        if ctx.needs_input_grad[0]:
            grad_x = _gradients(grad, x, taps, stride, (padding, padding), of_x=True)[0]
        larger_than_map = padding > 0 and weight.shape[-1] > max(x.shape[2:])
        of_weight = _by_taps(x, grad, padding) if larger_than_map else _by_columns(x, grad, taps, stride, padding)
        return grad_x, of_weight.to(weight.dtype), None, None


def _by_columns(x: Tensor, grad: Tensor, weight: Tensor, stride: int, padding: int) -> Tensor:
    """The gradient of the filters (c, 1, k, k), of a few columns of taps at a time."""
    kernel, parts = weight.shape[-1], []
    for first in range(0, kernel, N_COLUMNS):
        n_columns = min(N_COLUMNS, kernel - first)
        left = padding - first
        right = (grad.shape[-1] - 1) * stride + n_columns - x.shape[-1] - left
        seen = F.pad(x, (left, right))  # what these columns see; negative margins cut off
        taps = weight[..., first : first + n_columns]
        parts.append(_gradients(grad, seen, taps, stride, (padding, 0), of_x=False)[1])
    return torch.cat(parts, 3)


def _gradients(
    grad: Tensor, x: Tensor, weight: Tensor, stride: int, padding: tuple[int, int], *, of_x: bool
) -> tuple[Tensor, Tensor]:
    """Torch's own gradient of a depthwise convolution: of x, or else of the filters."""
    geometry = [stride, stride], list(padding), [1, 1], False, [0, 0], len(weight)
    backward = torch.ops.aten.convolution_backward
    return backward(grad, x, weight, None, *geometry, [of_x, not of_x, False])[:2]  # type: ignore[no-any-return]


def _by_taps(x: Tensor, grad: Tensor, padding: int) -> Tensor:
    """The gradient of filters that are larger than the map and keep its size: a sum for each tap."""
    height, width = x.shape[2:]
    above, below = x.permute(0, 2, 3, 1), grad.permute(0, 2, 3, 1)  # as they lie in memory
    grad_weight = x.new_zeros(x.shape[1], 1, 2 * padding + 1, 2 * padding + 1)
    for i, j in itertools.product(range(1 - height, height), range(1 - width, width)):
        if max(abs(i), abs(j)) <= padding:  # the tap that looks i pixels down and j to the right
            seen = above[:, max(i, 0) : height + min(i, 0), max(j, 0) : width + min(j, 0)]
            from_ = below[:, max(-i, 0) : height - max(i, 0), max(-j, 0) : width - max(j, 0)]
            grad_weight[:, 0, i + padding, j + padding] = (seen * from_).sum((0, 1, 2))
    return grad_weight


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
