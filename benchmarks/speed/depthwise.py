"""The gradient of depthwise filters on maps smaller than the filter: torch's own against ours, and a whole csf.

python benchmarks/speed/depthwise.py
"""

from __future__ import annotations

from statistics import median
from time import perf_counter

import torch
from torch import Tensor, nn

from triphase.models import build
from triphase.models.layers import DepthwiseConv2d

ROUNDS, STEPS = 7, 10


def seconds(network: nn.Module, x: Tensor) -> float:
    """Of one step forward and back."""
    since = perf_counter()
    for _ in range(STEPS):
        network(x).sum().backward()
    return (perf_counter() - since) / STEPS


def with_torchs_gradient(network: nn.Module) -> nn.Module:
    """The same network with plain convolutions, sharing the weights."""
    for module in network.modules():
        for name, layer in module.named_children():
            if isinstance(layer, DepthwiseConv2d):
                n = len(layer.weight)
                plain = nn.Conv2d(n, n, 1, groups=layer.groups, bias=False)
                plain.kernel_size, plain.padding = layer.kernel_size, layer.padding
                plain.weight = layer.weight
                setattr(module, name, plain)
    return network


def main() -> None:
    """Contestants take turns; the ratio is the median over the rounds."""
    for image_size in (96, 128, 160):
        ours = build("efficientnet_lite0", 10, image_size=image_size).csf.train()
        torchs = with_torchs_gradient(build("efficientnet_lite0", 10, image_size=image_size).csf.train())
        side = -(-image_size // 32)
        z = torch.randn(128, 192, side, side).contiguous(memory_format=torch.channels_last)
        ratios = []
        for round_ in range(ROUNDS + 1):
            slow, fast = seconds(torchs, z), seconds(ours, z)
            ratios += [slow / fast] if round_ else []  # the first warms up
        print(f"{image_size} px, map {side} x {side}: csf learns {median(ratios):.2f} times as fast")


if __name__ == "__main__":
    main()
