"""Images in memory and on disk."""

from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from triphase.data.images import Images, check_size, resize
from triphase.errors import BadData, InvalidValue


@given(st.data())
def test_selecting_twice_is_selecting_once(data: st.DataObject) -> None:
    pixels = torch.arange(6, dtype=torch.uint8).view(6, 1, 1, 1)
    images = Images.from_array(pixels, torch.arange(6) % 3, torch.arange(6) + 100)
    first = torch.tensor(data.draw(st.lists(st.integers(0, 5), min_size=1)))
    second = torch.tensor(data.draw(st.lists(st.integers(0, len(first) - 1))), dtype=torch.long)
    chosen = images.select(first).select(second)
    expected = first[second]
    assert torch.equal(chosen.read(torch.arange(len(chosen))), pixels[expected])
    assert torch.equal(chosen.ids, expected + 100) and torch.equal(chosen.labels, expected % 3)


@pytest.mark.parametrize(
    ("pixels", "n_labels", "words"),
    [
        (torch.zeros(3, 1, 2, 2, dtype=torch.uint8), 2, "one label for each image"),
        (torch.full((1, 1, 2, 2), float("nan")), 1, "NaN"),
        (torch.zeros(1, 1, 2, 2), 1, "uint8"),
        (torch.zeros(1, 2, 2, dtype=torch.uint8), 1, "shape"),
    ],
)
def test_arrays_that_are_no_images_are_refused(pixels: torch.Tensor, n_labels: int, words: str) -> None:
    with pytest.raises(BadData, match=words):
        Images.from_array(pixels, torch.zeros(n_labels))


def test_other_labels_must_be_as_many() -> None:
    images = Images.from_array(torch.zeros(2, 1, 2, 2, dtype=torch.uint8), torch.zeros(2))
    assert images.select(torch.tensor([0]), torch.tensor([7])).labels.tolist() == [7]
    with pytest.raises(BadData, match="one label and one id"):
        images.select(torch.tensor([0]), torch.tensor([7, 8]))


def test_resized_images_have_the_new_size_and_no_image_too() -> None:
    images = Images.from_array(torch.full((2, 3, 4, 6), 77, dtype=torch.uint8), torch.zeros(2)).resized(5)
    assert images.read(torch.tensor([1])).shape == (1, 3, 5, 5)
    assert images.read(torch.tensor([], dtype=torch.long)).shape == (0, 3, 5, 5)
    assert images.read(torch.tensor([0, 1])).unique().tolist() == [77]
    assert resize(torch.zeros(1, 1, 5, 5, dtype=torch.uint8), 5).shape == (1, 1, 5, 5)


@pytest.mark.parametrize("size", [0, -3])
def test_a_size_without_pixels_is_refused(size: int) -> None:
    with pytest.raises(InvalidValue, match="at least 1 pixel"):
        check_size(size)
    with pytest.raises(InvalidValue, match="at least 1 pixel"):
        Images.from_files([], torch.zeros(0), torch.zeros(0), size)


def test_files_are_read_in_the_order_asked_for(tmp_path: Path) -> None:
    paths = [tmp_path / f"{i}.png" for i in range(20)]
    for i, path in enumerate(paths):
        Image.new("L", (3, 5), i).save(path)
    images = Images.from_files(paths, torch.arange(20), torch.arange(20), 4)
    order = torch.randperm(20, generator=torch.Generator().manual_seed(0))
    assert torch.equal(images.read(order)[:, 0, 0, 0].long(), order)
    assert images.read(order[:0]).shape == (0, 3, 4, 4)
    with pytest.raises(BadData, match="one label for each image"):
        Images.from_files(paths, torch.arange(19), torch.arange(19), 4)
