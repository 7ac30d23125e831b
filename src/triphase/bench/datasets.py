"""Where the images of a benchmark come from, and the order in which its classes arrive."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import torch

from triphase.data import sources
from triphase.data.images import Images
from triphase.data.sources.imagenet import TRAIN_IMAGES, VAL_IMAGES
from triphase.data.streams import deal, seeded_order
from triphase.errors import BadData, InvalidValue, TriphaseWarning
from triphase.randomness import generator, keys


def class_order(dataset: str, n_classes: int, order: int) -> Sequence[int]:
    """Class orders by published seeds; order 0 of CIFAR-100 is iCaRL's, of digits 0 to 9.

    >>> class_order("cifar100", 100, 0)[:5]
    [68, 56, 78, 8, 23]
    """
    if dataset == "core50":
        return sources.core50_41_order(order)
    if dataset == "cifar100" and order == 0:
        classes = np.arange(n_classes)
        np.random.RandomState(1993).shuffle(classes)
        return [int(c) for c in classes]
    return list(range(n_classes)) if dataset == "digits" and order == 0 else seeded_order(n_classes, order)


def parse_numbers(option: str, text: str) -> tuple[int, ...]:
    """Classes or class orders as people write them.

    >>> parse_numbers("--orders", "0-3"), parse_numbers("--orders", "2,0")
    ((0, 1, 2, 3), (2, 0))
    """
    numbers: list[int] = []
    for part in text.split(","):
        begin, dash, end = part.strip().partition("-")
        ends = (begin, end if dash else begin)
        if not all(re.fullmatch(r"\d{1,5}", word, re.ASCII) for word in ends) or int(ends[0]) > int(ends[1]):
            numbers = []
            break
        numbers += range(int(ends[0]), int(ends[1]) + 1)
    if not numbers or len(set(numbers)) < len(numbers):
        raise InvalidValue(f"{option} takes different numbers such as 0-3 or 0,2,5, got {text!r}.")
    return tuple(numbers)


def as_ranges(numbers: Iterable[int]) -> str:
    """Numbers in ascending order, those that follow each other as a range.

    >>> as_ranges([5, 0, 1, 2])
    '0-2,5'
    """
    ranges: list[list[int]] = []
    for number in sorted(numbers):
        if ranges and ranges[-1][-1] == number - 1:
            ranges[-1] = [ranges[-1][0], number]
        else:
            ranges.append([number])
    return ",".join("-".join(map(str, ends)) for ends in ranges)


def load(dataset: str, data: Path, size: int, skip_bad: bool) -> tuple[Images, Images, list[str]]:
    """Training images, test images and class names of a dataset."""
    if dataset == "folder":
        photos = sources.folder(data, size, skip_bad=skip_bad)
        if photos.skipped:
            count = f"{len(photos.skipped)} of {len(photos.skipped) + len(photos.images)}"
            warnings.warn(
                f"{count} photos cannot be read and were left out, the first is {photos.skipped[0]}.",
                TriphaseWarning,
                stacklevel=2,
            )
        return *_held_out(photos.images, photos.names), photos.names
    if dataset == "digits":
        train, test, names = sources.digits()
    elif dataset == "cifar100":
        train, test, names = sources.cifar100(data)
    elif dataset == "core50":
        return sources.core50_classes(data, size)
    else:
        train, test, names = sources.imagenet(data, size=round(size * 256 / 224))
        if (len(train), len(test)) != (TRAIN_IMAGES, VAL_IMAGES):
            warnings.warn(
                f"{data} holds {len(train):,} of ImageNet's {TRAIN_IMAGES:,} training images and {len(test):,} of "
                f"{VAL_IMAGES:,} for validation, so results are not the benchmark's; `triphase data` tells more.",
                TriphaseWarning,
                stacklevel=2,
            )
        return train, test, names
    return train.resized(size), test.resized(size), names


def lessons_with_repetition(
    train: Images, names: Sequence[str], order: Sequence[int], shape: tuple[int, int, int], seed: int
) -> list[Images]:
    """NIC: the first B classes, then lessons of at most C that are new or come back, each time with new images."""
    return deal(train, names, _visits(order, shape, seed), seed)


def _visits(order: Sequence[int], shape: tuple[int, int, int], seed: int) -> list[list[int]]:
    """The classes of each lesson: new ones enter one after the other and return anywhere after that.

    Each class has about as many places in a queue, at least two. A lesson takes the next C different classes.
    Places left at the end are dropped: late lessons may have fewer classes, and a class may come only once.
    """
    n, first, then = shape
    n_classes, places = len(order), first + then * (n - 1)
    if max(first, then) > n_classes or places < 2 * n_classes:
        least = 1 + -(-(2 * n_classes - first) // then)
        raise InvalidValue(
            f"nic-{n}/{first}-{then} has {places} places, but each of {n_classes} classes comes at least twice and "
            f"once in a lesson; ask for at most {n_classes} classes at a time and at least {max(2, least)} lessons."
        )
    draw = generator(seed, "repetition")
    pieces: list[tuple[float, int]] = []  # when, and of which class
    for i, label in enumerate(order):
        enter = max(0, i - first + 1) / (n_classes - first + 1)
        again = enter + (1 - enter) * torch.rand(places // n_classes + (i < places % n_classes) - 1, generator=draw)
        pieces += [(enter, label), *((when, label) for when in again.tolist())]
    queue = [label for _, label in sorted(pieces, key=lambda piece: piece[0])][first:]
    lessons = [list(order[:first])]
    for _ in range(n - 1):
        lesson = list(dict.fromkeys(queue))[:then]  # a class twice in a lesson waits for the next one
        for label in lesson:
            queue.remove(label)
        lessons.append(lesson)
    return lessons


def _held_out(images: Images, names: list[str]) -> tuple[Images, Images]:
    """One photo in five of each class, drawn by its id, is for testing; the rest is for training."""
    tested = torch.zeros(len(images), dtype=torch.bool)
    for label in images.labels.unique().tolist():
        members = (images.labels == label).nonzero().view(-1)
        if len(members) < 2:
            raise BadData(f"Class {names[label]} has one photo only; give at least 2, one of them for testing.")
        by_key = members[keys(0, images.ids[members]).argsort()]
        tested[by_key[: max(1, len(members) // 5)]] = True
    return images.select((~tested).nonzero().view(-1)), images.select(tested.nonzero().view(-1))
