"""Handwritten digits."""

import torch

from triphase.data.images import Images
from triphase.data.sources import (
    digits,
)


def everything(images: Images) -> torch.Tensor:
    return images.read(torch.arange(len(images)))


def test_digits_are_split_within_each_class() -> None:
    train, test, names = digits()
    assert names == [str(digit) for digit in range(10)]
    assert sorted([*train.ids.tolist(), *test.ids.tolist()]) == list(range(1797))
    share = test.labels.bincount() / (train.labels.bincount() + test.labels.bincount())
    assert share.sub(0.25).abs().max() < 0.005
    pixels = everything(train)
    assert pixels.shape[1:] == (1, 8, 8) and int(pixels.min()) == 0 and int(pixels.max()) == 255


def test_digits_depend_on_the_seed_alone() -> None:
    assert torch.equal(digits(3)[0].ids, digits(3)[0].ids)
    assert not torch.equal(digits(3)[0].ids, digits(4)[0].ids)
