"""The images and the class orders of the datasets that benchmarks use."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from triphase.data import sources
from triphase.data.images import Images
from triphase.data.sources.imagenet import TRAIN_IMAGES, VAL_IMAGES
from triphase.data.streams import random_class_order
from triphase.errors import BadData, TriphaseWarning
from triphase.randomness import keys


def class_order(dataset: str, n_classes: int, order: int) -> Sequence[int]:
    """A class order by its published number; order 0 of CIFAR-100 is iCaRL's, of digits 0 to 9.

    >>> class_order("cifar100", 100, 0)[:5]
    [68, 56, 78, 8, 23]
    """
    if dataset == "core50":
        return sources.core50_41_order(order)
    if dataset == "cifar100" and order == 0:
        classes = np.arange(n_classes)
        np.random.RandomState(1993).shuffle(classes)
        return [int(c) for c in classes]
    return list(range(n_classes)) if dataset == "digits" and order == 0 else random_class_order(n_classes, order)


Dataset = tuple[Images, Images, list[str]]  # training images, test images, class names


def load(dataset: str, data: Path, size: int, skip_bad: bool) -> Dataset:
    """Training images, test images and class names of a dataset."""
    if dataset == "folder":
        return _load_folder(data, size, skip_bad)
    if dataset == "hf":
        return _load_hugging_face(data, size, skip_bad)
    if dataset == "imagenet":
        return _load_imagenet(data, size)
    if dataset == "core50":
        return sources.core50_classes(data, size)
    train, test, names = sources.digits() if dataset == "digits" else sources.cifar100(data)
    return train.resized(size), test.resized(size), names


def _load_imagenet(data: Path, size: int) -> Dataset:
    train, test, names = sources.imagenet(data, size=round(size * 256 / 224))
    if (len(train), len(test)) != (TRAIN_IMAGES, VAL_IMAGES):
        warnings.warn(
            f"{data} holds {len(train):,} of ImageNet's {TRAIN_IMAGES:,} training images and {len(test):,} of "
            f"{VAL_IMAGES:,} for validation, so results are not the benchmark's; `triphase data` says more.",
            TriphaseWarning,
            stacklevel=2,
        )
    return train, test, names


def _load_folder(data: Path, size: int, skip_bad: bool) -> Dataset:
    photos = sources.folder(data, size, skip_bad=skip_bad)
    _announce_skipped(photos.skipped, len(photos.images))
    return *_split(photos.images, photos.names), photos.names


def _load_hugging_face(data: Path, size: int, skip_bad: bool) -> Dataset:
    found = sources.hugging_face(data, size, skip_bad=skip_bad)
    train, test = (found.train, found.test) if found.test is not None else _split(found.train, found.names)
    _announce_skipped(found.skipped, len(train) + len(test))
    return train, test, found.names


def _announce_skipped(skipped: Sequence[object], n_read: int) -> None:
    if skipped:
        warnings.warn(
            f"{len(skipped)} of {len(skipped) + n_read} photos cannot be read and were left out, the first is "
            f"{skipped[0]}.",
            TriphaseWarning,
            stacklevel=2,
        )


def _split(images: Images, names: list[str]) -> tuple[Images, Images]:
    """One photo in five of each class, drawn by its id, is for testing; the rest is for training."""
    tested = torch.zeros(len(images), dtype=torch.bool)
    for label in images.labels.unique().tolist():
        members = (images.labels == label).nonzero().view(-1)
        if len(members) < 2:
            raise BadData(f"Class {names[label]} has one photo only; give at least 2, one of them for testing.")
        by_key = members[keys(0, images.ids[members]).argsort()]
        tested[by_key[: max(1, len(members) // 5)]] = True
    return images.select((~tested).nonzero().view(-1)), images.select(tested.nonzero().view(-1))
