"""Datasets of other libraries become streams: pixels and classes as they are there."""

from importlib import import_module
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from triphase.data.sources import stream_from_avalanche, stream_from_continuum, stream_from_datasets
from triphase.data.sources.torch_datasets import images_from, pixels_of
from triphase.errors import BadData, InvalidValue
from triphase.torchvision_operators import declare_torchvision_operators

PIXELS = torch.arange(2 * 4 * 3 * 6 * 6).remainder(251).to(torch.uint8).view(8, 3, 6, 6)
LABELS = [5, 5, 2, 2, 0, 0, 5, 7]


class Listed:
    """A dataset of (image, label, task), as libraries for continual learning have them."""

    def __init__(self, rows: range, augmented: bool = True) -> None:
        self.rows, self.augmented = rows, augmented

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> tuple[Tensor, int, int]:
        row = self.rows[index]
        x = PIXELS[row] / 255
        return (x.flip(2) if self.augmented else x), LABELS[row], 0

    def eval(self) -> "Listed":
        return Listed(self.rows, augmented=False)


def test_a_stream_has_one_experience_for_each_dataset() -> None:
    made = stream_from_datasets([Listed(range(4), False), Listed(range(4, 7), False)], [Listed(range(8), False)])
    assert [e.classes for e in made.experiences] == [(0, 1), (1, 2)]
    assert made.names == ("2", "5", "0")
    assert torch.equal(made.experiences[1].images.read(torch.tensor([2, 0])), PIXELS[[6, 4]])
    assert len(made.test) == 7  # class 7 is never learned


def test_a_benchmark_is_read_as_for_evaluation() -> None:
    train, test = ([SimpleNamespace(dataset=Listed(rows))] for rows in (range(4), range(2)))
    made = stream_from_avalanche(SimpleNamespace(train_stream=train, test_stream=test))
    assert torch.equal(made.experiences[0].images.read(torch.arange(4)), PIXELS[:4])
    assert torch.equal(made.test.ids, made.experiences[0].images.ids[:2])


@pytest.mark.parametrize(
    "image",
    [
        PIXELS[0],
        PIXELS[0].double() / 255,
        PIXELS[0].permute(1, 2, 0).numpy(),
        Image.fromarray(PIXELS[0].permute(1, 2, 0).numpy()),
    ],
    ids=["uint8", "0 to 1", "array", "PIL"],
)
def test_images_of_every_kind_have_the_same_pixels(image: Any) -> None:
    assert torch.equal(pixels_of(image), PIXELS[0])
    assert pixels_of(image, 3).shape == (3, 3, 3)


def test_grey_arrays_have_one_channel() -> None:
    assert pixels_of(np.zeros((4, 4), dtype=np.uint8)).shape == (1, 4, 4)


def test_what_cannot_be_learned_from_is_refused() -> None:
    with pytest.raises(BadData, match=r"pixels of an image are from -1 to 1: .* without normalisation"):
        pixels_of(torch.tensor([[[-1.0, 1.0]]]))
    mixed = [(PIXELS[0], 0), (PIXELS[0][:, :3], 0)]
    with pytest.raises(BadData, match="different shapes"):
        images_from(mixed)
    assert images_from(mixed, 4).read(torch.arange(2)).shape == (2, 3, 4, 4)
    with pytest.raises(BadData, match="no images"):
        images_from([])
    with pytest.raises(InvalidValue, match="at least 1 pixel, got 0"):
        images_from(mixed, 0)
    with pytest.raises(BadData, match="a PIL image, an array or a tensor, got NoneType"):
        images_from([(None, 0)])


@pytest.mark.parametrize("label", ["cat", 0.5, None, torch.tensor([0, 1])])
def test_a_class_that_is_no_whole_number_is_refused(label: Any) -> None:
    with pytest.raises(BadData, match="class of an image must be a whole number from 0, got "):
        images_from([(PIXELS[0], label)])


@pytest.mark.parametrize("label", [3, 3.0, np.int64(3), torch.tensor(3), torch.tensor([3])])
def test_a_class_may_be_a_number_of_any_kind(label: Any) -> None:
    assert images_from([(PIXELS[0], label)]).labels.tolist() == [3]


def test_a_stream_needs_test_images_and_a_name_for_each_class() -> None:
    some = Listed(range(4), False)
    with pytest.raises(BadData, match="at least one dataset to test on"):
        stream_from_datasets([some], [])
    with pytest.raises(InvalidValue, match="2 names for classes up to 5: give one for each number from 0"):
        stream_from_datasets([some], [some], names=["a", "b"])


@pytest.mark.skipif(find_spec("continuum") is None, reason="Continuum is not installed: make test-avalanche")
@pytest.mark.filterwarnings("ignore")
def test_a_scenario_of_continuum_is_a_stream_here() -> None:
    declare_torchvision_operators()
    in_memory = import_module("continuum.datasets").InMemoryDataset
    scenario = import_module("continuum").ClassIncremental
    x, y = PIXELS.permute(0, 2, 3, 1).numpy(), np.array([0, 0, 1, 1, 2, 2, 3, 3])
    train, test = (scenario(in_memory(x, y), increment=2) for _ in range(2))
    made = stream_from_continuum(train, test)
    assert [e.classes for e in made.experiences] == [(0, 1), (2, 3)]
    assert torch.equal(made.experiences[1].images.read(torch.arange(4)), PIXELS[4:])
    assert len(made.test) == 8
