"""Crops of feature maps: augmentation for stored latents, whose pixels are not stored."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional as F

from triphase.data.recipe import CropSize
from triphase.models import DepthFeatures
from triphase.models.summaries import SplitLatent

MIN_HEIGHT, MIN_WIDTH = 0.64, 0.57  # of the map, of random crops
MAX_DIFFERENCE = 2  # between height and width, in pixels of the map
SMALL_SIDE, LEAST_SIDE = 5 / 7, 10  # of the map, and in pixels: to which small random crops are scaled
MARGIN = 1 / 7  # of the map, that the crop of its middle leaves out on each side


def crop_latents(csf: nn.Module, z: Tensor, crop: Callable[[Tensor], Tensor]) -> Tensor:
    """Latents with crops of their feature maps, as large as these; z itself where there are no maps."""
    first = _first_layer(csf)
    if isinstance(first, SplitLatent):
        return first.with_map(z, crop)
    return crop(z) if z.dim() == 4 else z


def crop_maps(csf: nn.Module, z: Tensor, crop: Callable[[Tensor], Tensor]) -> Tensor:
    """Crops of the feature maps alone, of any size: what csf learns from; z itself where there are no maps."""
    first = _first_layer(csf)
    maps = first(z) if isinstance(first, SplitLatent) else z
    return crop(maps) if maps.dim() == 4 else z


def random_crops(
    maps: Tensor, random: Generator, size: CropSize, n: int | None = None, shard: slice = slice(None)
) -> Tensor:
    """(n, channels, height, width): of each map a random window of whole pixels, scaled to one size.

    Small crops of large maps take half the time to train on. Where several processes share a minibatch of
    n maps, these are those of one shard of it.

    >>> random_crops(torch.zeros(1, 8, 14, 14), torch.Generator().manual_seed(0), "small").shape
    torch.Size([1, 8, 10, 10])
    """
    n, (rows, columns) = len(maps) if n is None else n, maps.shape[2:]
    height = _random_integers(round(MIN_HEIGHT * rows), torch.full((n,), rows), random)
    width = height * columns / rows + _random_integers(-MAX_DIFFERENCE, torch.full((n,), MAX_DIFFERENCE), random)
    width = width.round().clamp(round(MIN_WIDTH * columns), columns)
    top, left = _random_integers(0, rows - height, random), _random_integers(0, columns - width, random)
    windows = torch.zeros(n, 2, 3)  # from coordinates in the crop, -1 to 1, to those in the map
    windows[:, 0, 0], windows[:, 0, 2] = width / columns, (2 * left + width) / columns - 1
    windows[:, 1, 1], windows[:, 1, 2] = height / rows, (2 * top + height) / rows - 1
    sides = (small_side(rows), small_side(columns)) if size == "small" else (rows, columns)
    places = F.affine_grid(windows[shard].to(maps), [len(maps), maps.shape[1], *sides], align_corners=False)
    crops = F.grid_sample(maps, places, padding_mode="border", align_corners=False)
    return crops.contiguous(memory_format=torch.channels_last)


def small_side(side: int) -> int:
    """To how many pixels small random crops of a map are scaled; small maps keep their size.

    >>> small_side(14), small_side(20), small_side(6)
    (10, 14, 6)
    """
    return max(min(side, LEAST_SIDE), round(SMALL_SIDE * side))


def middle_crops(maps: Tensor) -> Tensor:
    """(n, channels, height, width): the middle of each map, scaled to the size of the map.

    >>> middle_crops(torch.eye(7).view(1, 1, 7, 7)).argmax(3).tolist()
    [[[0, 1, 2, 3, 4, 5, 6]]]
    """
    rows, columns = (slice(margin := round(MARGIN * side), side - margin) for side in maps.shape[2:])
    return F.interpolate(maps[:, :, rows, columns], list(maps.shape[2:]), mode="bilinear", align_corners=False)


def _first_layer(csf: nn.Module) -> nn.Module | None:
    layers = csf.csf if isinstance(csf, DepthFeatures) else csf
    return next(layers.children(), None)


def _random_integers(low: int, high: Tensor, random: Generator) -> Tensor:
    """(n,): random integers from low to high, both included."""
    return low + (torch.rand(len(high), generator=random) * (high - low + 1)).floor()
