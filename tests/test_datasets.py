"""The datasets of benchmarks and their class orders."""

from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image

from triphase.bench.datasets import class_order, load
from triphase.errors import TriphaseWarning


def test_an_imagenet_of_few_images_is_not_passed_over_in_silence(tmp_path: Path) -> None:
    for split in ("train", "val"):
        (tmp_path / split / "n01440764").mkdir(parents=True)
        Image.new("RGB", (8, 8)).save(tmp_path / split / "n01440764" / "n01440764_1.JPEG")
    with pytest.warns(TriphaseWarning, match="holds 1 of ImageNet's 1,281,167 training images and 1 of 50,000"):
        load("imagenet", tmp_path, 8, skip_bad=False)


def test_order_0_of_cifar100_is_icarls() -> None:
    assert list(class_order("cifar100", 100, 0)[:10]) == [68, 56, 78, 8, 23, 84, 90, 65, 74, 76]


def test_order_0_of_digits_is_the_natural_one() -> None:
    assert list(class_order("digits", 10, 0)) == list(range(10))


@pytest.mark.parametrize(("dataset", "n_classes"), [("cifar100", 100), ("imagenet", 1000), ("core50", 50)])
def test_four_orders_are_permutations_and_differ(dataset: str, n_classes: int) -> None:
    orders = [tuple(class_order(dataset, n_classes, order)) for order in range(4)]
    assert all(sorted(order) == list(range(n_classes)) for order in orders)
    assert len(set(orders)) == 4
    assert orders == [tuple(class_order(dataset, n_classes, order)) for order in range(4)]
