"""Crops of feature maps are windows of them; random ones are the same when drawn again."""

from functools import partial

import pytest
import torch
from torch import nn

from triphase.data.latent_crops import (
    MIN_HEIGHT,
    MIN_WIDTH,
    crop_latents,
    crop_maps,
    middle_crops,
    random_crops,
)
from triphase.data.recipe import CropSize
from triphase.models import DepthFeatures
from triphase.models.summaries import SplitLatent


def draw(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def ramp(n: int, side: int = 14) -> torch.Tensor:
    """Maps whose two channels are the row and the column of each place."""
    rows = torch.arange(float(side))
    return torch.stack([rows.view(-1, 1).expand(side, side), rows.expand(side, side)]).repeat(n, 1, 1, 1)


@pytest.mark.parametrize(
    ("side", "size", "scaled"), [(7, "small", 7), (14, "small", 10), (28, "small", 20), (14, "full", 14)]
)
def test_a_random_crop_is_a_window_of_the_map_scaled_to_one_size(side: int, size: CropSize, scaled: int) -> None:
    crops = random_crops(ramp(300 * side, side), draw(), size)
    rows, columns = crops[:, 0, :, 0], crops[:, 1, 0]
    torch.testing.assert_close(crops[:, 0], rows.unsqueeze(2).expand(-1, -1, scaled))
    torch.testing.assert_close(crops[:, 1], columns.unsqueeze(1).expand(-1, scaled, -1))
    for places, least in ((rows, MIN_HEIGHT), (columns, MIN_WIDTH)):
        middle = scaled // 2
        window = (places[:, middle + 1] - places[:, middle]) * scaled  # its size, away from its border
        torch.testing.assert_close(window, window.round(), atol=1e-3, rtol=0)
        assert set(window.round().int().tolist()) == set(range(round(least * side), side + 1))
        assert float(places.min()) >= 0 and float(places.max()) <= side - 1


def test_random_crops_are_drawn_from_the_generator_alone_and_leave_the_map() -> None:
    maps = torch.randn(5, 3, 7, 7, generator=draw(1))
    before = maps.clone()
    first = random_crops(maps, draw(), "small")
    assert torch.equal(first, random_crops(maps, draw(), "small")) and torch.equal(maps, before)
    assert not torch.equal(first, random_crops(maps, draw(2), "small"))


def test_processes_crop_their_shards_as_one_would_crop_the_whole_minibatch() -> None:
    maps = torch.randn(7, 3, 7, 7, generator=draw(1))
    whole = random_crops(maps, draw(), "small")
    for shard in (slice(0, None, 2), slice(1, None, 2)):
        assert torch.equal(random_crops(maps[shard], draw(), "small", n=7, shard=shard), whole[shard])


def test_the_middle_of_a_map_is_what_its_border_is_left_out_of() -> None:
    maps = torch.zeros(1, 1, 14, 14)
    maps[:, :, 2:12, 2:12] = 1
    torch.testing.assert_close(middle_crops(maps), torch.ones(1, 1, 14, 14))
    torch.testing.assert_close(middle_crops(1 - maps), torch.zeros(1, 1, 14, 14))


def test_latents_are_cropped_where_they_are_maps() -> None:
    flat, maps = torch.randn(4, 9), torch.randn(4, 2, 7, 7)
    assert crop_latents(nn.Sequential(nn.ReLU()), flat, middle_crops) is flat
    torch.testing.assert_close(crop_latents(nn.Sequential(nn.ReLU()), maps, middle_crops), middle_crops(maps))
    split = SplitLatent(2, 7, [5])
    z = torch.cat([maps.permute(0, 2, 3, 1).flatten(1), torch.randn(4, 5)], 1)
    for csf in (nn.Sequential(split), DepthFeatures(nn.Sequential(split), max_width=9)):
        cropped = crop_latents(csf, z, middle_crops)
        torch.testing.assert_close(split(cropped), middle_crops(maps))
        assert torch.equal(split.summaries(cropped)[0], z[:, -5:])


def test_csf_learns_from_crops_of_the_maps_alone() -> None:
    flat, maps = torch.randn(4, 9), torch.randn(4, 2, 14, 14)
    crop = partial(random_crops, random=draw(), size="small")
    assert crop_maps(nn.Sequential(nn.ReLU()), flat, crop) is flat
    expected = random_crops(maps, draw(), "small")
    torch.testing.assert_close(crop_maps(nn.Sequential(nn.ReLU()), maps, crop), expected)
    split = SplitLatent(2, 14, [5])
    z = torch.cat([maps.permute(0, 2, 3, 1).flatten(1), torch.randn(4, 5)], 1)
    cropped = crop_maps(nn.Sequential(split), z, partial(random_crops, random=draw(), size="small"))
    torch.testing.assert_close(cropped, expected)
    assert split(cropped) is cropped, "a feature map passes on as it is"
