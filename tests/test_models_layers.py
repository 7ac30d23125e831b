"""Convolutions: TensorFlow's padding, and gradients of wide depthwise filters."""

import pytest
import torch
from torch import nn

from triphase.models.layers import DepthwiseConv2d, SameConv2d, conv


@pytest.mark.parametrize(
    ("size", "kernel", "before", "after"), [(8, 3, 0, 1), (9, 3, 1, 1), (8, 5, 1, 2), (9, 5, 2, 2)]
)
def test_same_padding_is_tensorflows(size: int, kernel: int, before: int, after: int) -> None:
    torch.manual_seed(0)
    layer, x = SameConv2d(1, 1, kernel, stride=2), torch.randn(1, 1, size, size)
    padded = nn.functional.pad(x, (before, after, before, after))
    assert torch.equal(layer(x), nn.functional.conv2d(padded, layer.weight, layer.bias, stride=2))


@pytest.mark.parametrize("size", [(1, 1), (2, 3), (3, 3), (4, 4), (6, 5), (3, 9), (7, 7), (14, 11)])
@pytest.mark.parametrize("kernel", [3, 5, 7])
def test_depthwise_gradients_are_those_of_torch(kernel: int, size: tuple[int, int]) -> None:
    torch.manual_seed(0)
    layer = conv(8, 8, kernel, groups=8).double()
    assert isinstance(layer, DepthwiseConv2d)
    nn.init.normal_(layer.weight)
    x, above = torch.randn(4, 8, *size).double().requires_grad_(), torch.randn(4, 8, *size).double()
    found = torch.autograd.grad(layer(x), (x, layer.weight), above)
    plain = nn.functional.conv2d(x, layer.weight, padding=kernel // 2, groups=8)
    wanted = torch.autograd.grad(plain, (x, layer.weight), above)
    for ours, torchs in zip(found, wanted, strict=True):
        torch.testing.assert_close(ours, torchs)


@pytest.mark.parametrize("size", [(5, 5), (8, 8), (9, 14)])
@pytest.mark.parametrize("kernel", [3, 5])
def test_gradients_of_depthwise_filters_that_shrink_the_map_are_those_of_torch(
    kernel: int, size: tuple[int, int]
) -> None:
    torch.manual_seed(0)
    layer = SameConv2d(8, 8, kernel, stride=2, groups=8, bias=False).double()
    x = torch.randn(4, 8, *size).double().requires_grad_()
    y = layer(x)
    above = torch.randn_like(y)
    found = torch.autograd.grad(y, (x, layer.weight), above)
    totals = [max((-(-n // 2) - 1) * 2 + kernel - n, 0) for n in reversed(size)]  # last axis first
    padded = nn.functional.pad(x, [margin for n in totals for margin in (n // 2, n - n // 2)])
    plain = nn.functional.conv2d(padded, layer.weight, stride=2, groups=8)
    wanted = torch.autograd.grad(plain, (x, layer.weight), above)
    for ours, torchs in zip(found, wanted, strict=True):
        torch.testing.assert_close(ours, torchs)


def test_gradients_of_depthwise_filters_keep_the_memory_layout_of_the_map() -> None:
    """A gradient with the channels first would slow every layer below."""
    layer = conv(8, 8, 5, groups=8)
    x = torch.randn(4, 8, 7, 7).contiguous(memory_format=torch.channels_last).requires_grad_()
    layer(x).sum().backward()
    assert x.grad is not None and x.grad.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("size", [3, 7])
def test_depthwise_gradients_survive_autocast(size: int) -> None:
    torch.manual_seed(0)
    layer = conv(8, 8, 5, groups=8)
    nn.init.normal_(layer.weight)
    x = torch.randn(4, 8, size, size, requires_grad=True)
    exact = torch.autograd.grad(layer(x).sum(), (x, layer.weight))
    with torch.autocast("cpu", torch.bfloat16):
        y = layer(x)
    rough = torch.autograd.grad(y.sum(), (x, layer.weight))
    for a, b in zip(rough, exact, strict=True):
        assert a.dtype == torch.float32
        torch.testing.assert_close(a, b, rtol=0.05, atol=0.1)
