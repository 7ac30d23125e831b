"""Images in memory and on disk."""

from pathlib import Path

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from PIL import Image

from numbered_images import dataset, everything, images, pixels
from triphase.data.images import Images, check_size, concatenate, resize, select_classes, subsample
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
        (torch.full((1, 1, 2, 2), float("nan")), 1, "NaN or infinite"),
        (torch.full((1, 1, 2, 2), float("inf")), 1, "NaN or infinite"),
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


def test_selected_classes_keep_the_order_of_the_images() -> None:
    chosen = select_classes(images([3, 1, 2, 3, 0, 1]), [3, 1])
    assert chosen.ids.tolist() == [0, 1, 3, 5] and chosen.labels.tolist() == [3, 1, 3, 1]


@given(st.lists(st.integers(0, 4), min_size=1, max_size=40), st.integers(1, 8), st.integers(0, 3))
def test_a_subsample_has_at_most_n_of_each_class(labels: list[int], n: int, seed: int) -> None:
    source = images(labels)
    chosen = subsample(source, n, seed)
    for c in set(labels):
        assert int((chosen.labels == c).sum()) == min(n, labels.count(c))
    assert chosen.ids.tolist() == sorted(set(chosen.ids.tolist()))  # in the order of the dataset, none twice
    assert torch.equal(chosen.labels, source.labels[chosen.ids])
    assert torch.equal(everything(chosen), pixels(chosen.ids))
    assert torch.equal(subsample(source, n, seed).ids, chosen.ids)


def test_a_subsample_is_drawn_at_random_and_by_seed() -> None:
    source = dataset(n_classes=2, each=50)
    draws = [subsample(source, 5, seed).ids.tolist() for seed in range(4)]
    assert len({tuple(d) for d in draws}) == 4 and max(max(d) for d in draws) > 50


@given(st.lists(st.integers(0, 7), min_size=1, max_size=5), st.data())
def test_concatenation_reads_the_right_pixels_in_any_order(sizes: list[int], data: st.DataObject) -> None:
    assume(sum(sizes) > 0)
    starts = [sum(sizes[:i]) for i in range(len(sizes))]
    shuffles = [torch.tensor(data.draw(st.permutations(range(n))), dtype=torch.long) for n in sizes]
    parts = [
        images([i] * n, start).select(p)
        for i, (n, start, p) in enumerate(zip(sizes, starts, shuffles, strict=True))
    ]
    whole = concatenate(parts)
    ids = torch.cat([part.ids for part in parts])
    assert torch.equal(whole.ids, ids) and len(whole) == sum(sizes)
    rows = torch.tensor(data.draw(st.lists(st.integers(0, sum(sizes) - 1))), dtype=torch.long)
    assert torch.equal(whole.read(rows), pixels(ids[rows]))
    assert torch.equal(everything(whole.select(rows)), pixels(ids[rows]))
    assert torch.equal(everything(concatenate([whole, whole])), pixels(ids.repeat(2)))
