"""Latents that carry more than the last feature map: beside it the means of earlier ones, in one vector per image.

What a frozen network computes before the cut is lost in the latents. The mean of a feature map is small enough to
be stored with them.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn


class SummarizedStages(nn.Module):
    """An llf whose latents are its last feature map, channels last, and then the means of earlier stages' maps.

    >>> llf = SummarizedStages(nn.Sequential(nn.Conv2d(3, 8, 1), nn.Conv2d(8, 2, 1)), ends=[1])
    >>> llf(torch.zeros(5, 3, 4, 4)).shape  # 4 * 4 * 2 + 8
    torch.Size([5, 40])
    """

    def __init__(self, layers: nn.Sequential, ends: Sequence[int]) -> None:
        """`ends` are the numbers of layers up to the end of each stage whose map is averaged."""
        super().__init__()
        self.stages = nn.ModuleList(layers[a:b] for a, b in pairwise([0, *ends, len(layers)]))

    def forward(self, x: Tensor) -> Tensor:
        *earlier, last = self.stages
        means = []
        for stage in earlier:
            x = stage(x)
            means.append(x.mean((2, 3)))
        return torch.cat([last(x).permute(0, 2, 3, 1).flatten(1), *means], 1)


class Stage(nn.Sequential):
    """Blocks at the beginning of csf of which only the last output counts among the depths of a network."""


class SplitLatent(nn.Module):
    """The first layer of csf after `SummarizedStages`: it passes on the feature map.

    >>> split = SplitLatent(2, 4, [8])
    >>> split(torch.zeros(5, 40)).shape, [part.shape for part in split.summaries(torch.zeros(5, 40))]
    (torch.Size([5, 2, 4, 4]), [torch.Size([5, 8])])
    """

    def __init__(self, channels: int, side: int, widths: Sequence[int]) -> None:
        """`side` is that of the square feature map, `widths` are the lengths of the summaries."""
        super().__init__()
        self.channels, self.side, self.widths = channels, side, list(widths)

    def extra_repr(self) -> str:
        return f"channels={self.channels}, side={self.side}, widths={self.widths}"

    def forward(self, z: Tensor) -> Tensor:
        """(n, channels, side, side), as it lies in z; a feature map of any size passes unchanged."""
        if z.dim() == 4:
            return z
        feature_map: Tensor = self._parts(z)[0].unflatten(1, (self.side, self.side, self.channels))
        return feature_map.permute(0, 3, 1, 2)

    def with_map(self, z: Tensor, change: Callable[[Tensor], Tensor]) -> Tensor:
        """The latents with a changed feature map of the same shape."""
        changed = change(self(z)).permute(0, 2, 3, 1).flatten(1)
        return torch.cat([changed, *self.summaries(z)], 1)

    def summaries(self, z: Tensor) -> list[Tensor]:
        """The mean of each earlier feature map, (n, width)."""
        return list(self._parts(z)[1:])

    def _parts(self, z: Tensor) -> tuple[Tensor, ...]:
        return torch.split(z, [self.channels * self.side**2, *self.widths], 1)
