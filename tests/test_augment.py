"""Properties of whole-batch augmentation."""

import math
from collections.abc import Callable
from itertools import product

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

from triphase.data import augment
from triphase.errors import InvalidValue

NAMES = ["none", "flip", "crop", "rrc", "crop+flip", "rrc+flip", "flip+crop"]
seeds = st.integers(0, 2**40)
shapes = st.tuples(st.integers(1, 5), st.integers(1, 3), st.integers(2, 9), st.integers(2, 9))


def resize(x: Tensor, size: int) -> Tensor:
    """Torch's own bilinear scaling, antialiased, rounded to pixels."""
    scaled = F.interpolate(x.float(), size=(size, size), mode="bilinear", antialias=True)
    return scaled.round().clamp(0, 255).to(torch.uint8)


def rng(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def noise(shape: tuple[int, ...], seed: int = 0) -> Tensor:
    return torch.randint(1, 256, shape, generator=rng(seed), dtype=torch.uint8)


@given(shapes, seeds)
def test_flipping_twice_changes_nothing_and_once_only_the_chosen(shape: tuple[int, ...], seed: int) -> None:
    x, bits = noise(shape, seed), torch.rand(shape[0], generator=rng(seed)) < 0.5
    once = augment.flip(x, bits)
    assert torch.equal(augment.flip(once, bits), x)
    assert torch.equal(once[~bits], x[~bits]) and torch.equal(once[bits], x[bits].flip(-1))


@given(shapes, seeds, st.integers(0, 4))
def test_a_crop_is_a_window_of_the_padded_image(shape: tuple[int, ...], seed: int, pad: int) -> None:
    x = noise(shape, seed)
    cropped = augment.padded_crop(x, rng(seed), pad)
    padded = F.pad(x, (pad, pad, pad, pad))
    places = range(2 * pad + 1)
    height, width = shape[2:]
    for image, window in zip(padded, cropped, strict=True):
        candidates = [image[:, t : t + height, s : s + width] for t, s in product(places, places)]
        assert any(torch.equal(window, candidate) for candidate in candidates)


def test_crops_reach_every_place_about_equally_often() -> None:
    x = torch.zeros(9000, 1, 3, 3, dtype=torch.uint8)
    x[:, :, 1, 1] = 1  # stays visible for every offset of pad 1
    where = augment.padded_crop(x, rng(0), pad=1).flatten(1).long().argmax(1)
    assert where.bincount(minlength=9).float().sub(1000).abs().max() < 150  # five standard deviations


@pytest.mark.parametrize("name", NAMES)
@given(shape=shapes, seed=seeds)
@settings(max_examples=20)
def test_apply_is_a_pure_function_of_its_generator(name: str, shape: tuple[int, ...], seed: int) -> None:
    x = noise(shape, seed)
    before = x.clone()
    result = augment.apply(name, x, rng(seed), size=6)
    assert torch.equal(result, augment.apply(name, x, rng(seed), size=6))
    assert torch.equal(x, before)
    assert result.dtype == torch.uint8
    assert result.shape == ((*shape[:2], 6, 6) if "rrc" in name else shape)


@pytest.mark.parametrize("name", ["crop", "rrc", "flip"])
def test_other_generators_give_other_images(name: str) -> None:
    x = noise((8, 3, 16, 16))
    assert not torch.equal(augment.apply(name, x, rng(0), 16), augment.apply(name, x, rng(1), 16))


@pytest.mark.parametrize("name", ["none", "flip"])
@given(shape=shapes, seed=seeds)
def test_cached_and_computed_runs_see_the_same(name: str, shape: tuple[int, ...], seed: int) -> None:
    x = noise(shape, seed)
    views = augment.draw_views(name, len(x), rng(seed))
    assert views.dtype == torch.long and views.shape == (len(x),)
    assert torch.equal(augment.apply(name, x, rng(seed), size=4), augment.view(x, views))


def test_both_views_are_drawn_about_equally_often() -> None:
    assert 4750 < int(augment.draw_views("flip", 10_000, rng(0)).sum()) < 5250
    assert augment.draw_views("none", 5, rng(0)).tolist() == [0] * 5


@pytest.mark.parametrize(
    ("name", "views"),
    [("none", 1), ("flip", 2), ("crop", None), ("rrc", None), ("crop+flip", None), ("rrc+flip", None)],
)
def test_only_none_and_flip_have_numbered_views(name: str, views: int | None) -> None:
    assert augment.n_views(name) == views
    if views is None:
        with pytest.raises(InvalidValue, match="cannot be numbered"):
            augment.draw_views(name, 3, rng(0))


@pytest.mark.parametrize("name", ["", "blur", "flip+blur", "none+flip", "flip+flip", "crop+", "Flip"])
def test_unknown_augmentations_are_refused_with_what_exists(name: str) -> None:
    with pytest.raises(InvalidValue, match=r"'none' or some of crop, rrc, flip"):
        augment.parse(name)


@given(shapes, seeds, st.integers(1, 20))
def test_rrc_of_everything_is_a_plain_resize(shape: tuple[int, ...], seed: int, extra: int) -> None:
    n, channels, side, _ = shape
    x = noise((n, channels, side, side), seed)
    whole = augment.random_resized_crop(x, rng(seed), side + extra, scale=(1, 1), ratio=(1, 1))
    assert (whole.int() - resize(x, side + extra).int()).abs().max() <= 1
    same = augment.random_resized_crop(x, rng(seed), side, scale=(1, 1), ratio=(1, 1))
    assert torch.equal(same, x)


def test_rrc_to_a_quarter_is_close_to_an_antialiased_resize() -> None:
    x = noise((4, 3, 64, 64))
    small = augment.random_resized_crop(x, rng(0), 16, scale=(1, 1), ratio=(1, 1)).float()
    assert (small - resize(x, 16).float()).std() < 12  # plain bilinear sampling: 31
    assert small.std() < 25  # of 74; plain bilinear sampling: 37


@given(seeds, st.integers(4, 40), st.integers(4, 40))
@settings(max_examples=30)
def test_rrc_equals_cutting_out_and_resizing_one_by_one(seed: int, height: int, width: int) -> None:
    x, size = noise((6, 2, height, width), seed), max(height, width)
    boxes = augment._boxes(6, height, width, rng(seed), (0.08, 1.0), (3 / 4, 4 / 3))
    cut = [
        resize(image[None, :, top : top + h, left : left + w], size)
        for image, (top, left, h, w) in zip(x, boxes.T.tolist(), strict=True)
    ]
    difference = augment.random_resized_crop(x, rng(seed), size).int() - torch.cat(cut).int()
    assert difference.abs().max() <= 1


@given(seeds, st.integers(1, 60), st.integers(1, 60))
def test_boxes_lie_inside_the_image(seed: int, height: int, width: int) -> None:
    top, left, h, w = augment._boxes(50, height, width, rng(seed), (0.08, 1.0), (3 / 4, 4 / 3))
    assert (top >= 0).all() and (left >= 0).all() and (h >= 1).all() and (w >= 1).all()
    assert (top + h <= height).all() and (left + w <= width).all()


def test_boxes_have_the_areas_and_shapes_asked_for() -> None:
    top, left, h, w = augment._boxes(20_000, 1000, 1000, rng(0), (0.1, 0.5), (0.8, 1.25))
    area, shape = h * w / 1e6, (w / h).log() / torch.tensor(1.25).log()
    assert 0.099 < area.min() and area.max() < 0.501 and abs(float(area.mean()) - 0.3) < 0.005  # uniform
    assert shape.abs().max() < 1.01 and abs(float(shape.std()) - 3**-0.5) < 0.01  # log-uniform
    assert abs(float((top / (1000 - h)).mean()) - 0.5) < 0.01
    assert abs(float((left / (1000 - w)).mean()) - 0.5) < 0.01


@pytest.mark.parametrize(
    ("height", "width", "box"),
    [(100, 10, [43, 0, 13, 10]), (10, 100, [0, 43, 10, 13]), (20, 20, [0, 0, 20, 20])],
)
def test_where_no_try_fits_the_centre_is_taken(height: int, width: int, box: list[int]) -> None:
    boxes = augment._boxes(3, height, width, rng(0), (4.0, 5.0), (3 / 4, 4 / 3))  # larger than the image
    assert boxes.T.tolist() == [box] * 3


@given(seeds, st.sampled_from([(50, 50), (30, 80), (90, 20)]), st.sampled_from([(0.08, 1.0), (0.5, 2.0)]))
@settings(max_examples=20)
def test_boxes_are_those_of_trying_one_after_the_other(
    seed: int, shape: tuple[int, int], scale: tuple[float, float]
) -> None:
    height, width = shape
    boxes = augment._boxes(40, height, width, rng(seed), scale, (3 / 4, 4 / 3))
    areas, ratios = torch.rand(2, 40, 10, generator=rng(seed), dtype=torch.float64).tolist()
    for box, image_areas, image_ratios in zip(boxes.T.tolist(), areas, ratios, strict=True):
        expected = list(augment._central_box(height, width, (3 / 4, 4 / 3)))[2:]
        for u, v in zip(image_areas, image_ratios, strict=True):
            area = (scale[0] + (scale[1] - scale[0]) * u) * height * width
            ratio = math.exp(math.log(3 / 4) + (math.log(4 / 3) - math.log(3 / 4)) * v)
            w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
            if 0 < w <= width and 0 < h <= height:
                expected = [h, w]
                break
        assert box[2:] == expected


@given(shapes, st.data())
def test_center_crop_is_centred(shape: tuple[int, ...], data: st.DataObject) -> None:
    x = noise(shape)
    size = data.draw(st.integers(1, min(shape[2:])))
    middle = augment.center_crop(x, size)
    places = [
        (top, left)
        for top, left in product(range(shape[2] - size + 1), range(shape[3] - size + 1))
        if torch.equal(x[..., top : top + size, left : left + size], middle)
    ]
    margins = [(shape[2] - size - 2 * top, shape[3] - size - 2 * left) for top, left in places]
    assert any(abs(vertical) <= 1 and abs(horizontal) <= 1 for vertical, horizontal in margins)


@pytest.mark.parametrize(
    "call",
    [
        lambda x: augment.center_crop(x, 9),
        lambda x: augment.center_crop(x, 0),
        lambda x: augment.padded_crop(x, rng(0), -1),
        lambda x: augment.random_resized_crop(x, rng(0), 0),
        lambda x: augment.random_resized_crop(x, rng(0), 4, scale=(0, 1)),
        lambda x: augment.random_resized_crop(x, rng(0), 4, ratio=(2, 1)),
    ],
)
def test_impossible_crops_are_refused(call: Callable[[Tensor], Tensor]) -> None:
    with pytest.raises(InvalidValue):
        call(noise((2, 1, 8, 8)))


@pytest.mark.parametrize("name", NAMES)
def test_an_empty_batch_stays_empty(name: str) -> None:
    assert augment.apply(name, noise((0, 3, 8, 8)), rng(0), 8).shape == (0, 3, 8, 8)
