"""Experiences in order, and the ways to make them: class-incremental, with repetition, joint."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

from triphase.data.images import Images, concatenate, select_classes
from triphase.errors import BadData, InvalidValue
from triphase.randomness import generator

UNLABELLED = -1  # in place of a label
NO_IMAGES = Images(lambda rows: torch.empty(0), torch.empty(0), torch.empty(0))


@dataclass(frozen=True)
class Experience:
    """E_i: the data of one experience, accessible only while it is learned (Eq. 2).

    Rows whose label is -1 have none: they are taken out of `images`, which every learner learns from, and become
    `unlabelled`, which only a learner that asks for them sees.

    >>> images = Images.from_array(torch.zeros(3, 1, 8, 8, dtype=torch.uint8), torch.tensor([4, -1, 4]))
    >>> experience = Experience(1, images)
    >>> len(experience.images), experience.classes, len(experience.unlabelled)
    (2, (4,), 1)
    """

    index: int  # from 1
    images: Images
    held_out: Tensor | None = None  # (n_i,) bool: images for evaluation, never trained on
    columns: dict[str, Tensor] = field(default_factory=dict)  # what else the memory keeps of each image
    unlabelled: Images = NO_IMAGES
    classes: tuple[int, ...] = field(init=False)  # E_i^y: those with training images

    def __post_init__(self) -> None:
        if len(self.images) == 0:
            raise BadData(f"Experience {self.index} has no images; drop it from the stream.")
        self._take_out_unlabelled()
        y = self.images.labels if self.held_out is None else self.images.labels[~self.held_out]
        object.__setattr__(self, "classes", tuple(y.unique().tolist()))

    def _take_out_unlabelled(self) -> None:
        lowest = int(self.images.labels.min())
        if lowest >= 0:
            return
        if lowest < UNLABELLED:
            raise BadData(
                f"Experience {self.index} has the label {lowest}: labels count from 0; -1 is an image without one."
            )
        labelled = self.images.labels >= 0
        if not bool(labelled.any()):
            raise BadData(
                f"No image of experience {self.index} has a label: label at least one, or drop it from the stream."
            )
        rows = labelled.nonzero().view(-1)
        without = self.images.select((~labelled).nonzero().view(-1))
        parts = [part for part in (self.unlabelled, without) if len(part)]
        taken_out: dict[str, object] = {
            "images": self.images.select(rows),
            "held_out": None if self.held_out is None else self.held_out[rows],
            "columns": {name: column[rows] for name, column in self.columns.items()},
            "unlabelled": concatenate(parts) if len(parts) > 1 else without,
        }
        for name, value in taken_out.items():
            object.__setattr__(self, name, value)

    @property
    def training(self) -> Images:
        """The images to train on."""
        return self.images if self.held_out is None else self.images.select((~self.held_out).nonzero().view(-1))


@dataclass(frozen=True)
class Stream:
    """CL = {E_1, ..., E_n} with the images to test on (Eq. 1).

    Labels are renamed to the order of first appearance (sorted within an experience), so the classes seen so far
    are always range(n); `names` keeps what they were called. `evaluation` says on which classes accuracy is
    measured: those seen so far, or all of them from the start. `n_classes` is None if it is not known beforehand.
    """

    experiences: tuple[Experience, ...]
    test: Images
    names: tuple[str, ...]
    n_classes: int | None = None
    evaluation: Literal["seen", "all"] = "seen"
    evaluate_after: tuple[int, ...] = ()  # indices of experiences; empty: after each

    def __post_init__(self) -> None:
        if not self.experiences:
            raise BadData("A stream needs at least one experience.")
        beyond = [i for i in self.evaluate_after if not 1 <= i <= len(self.experiences)]
        if beyond:
            raise InvalidValue(f"Cannot evaluate after experience {beyond[0]}: there are {len(self.experiences)}.")
        if self.evaluate_after and len(self.experiences) not in self.evaluate_after:
            raise InvalidValue("The last experience must be evaluated: it gives the final accuracy.")
        if not self.evaluate_after:
            object.__setattr__(self, "evaluate_after", tuple(e.index for e in self.experiences))

    @property
    def n_seen(self) -> tuple[int, ...]:
        """How many classes have been seen after each experience."""
        seen, counts = 0, []
        for experience in self.experiences:
            seen = max(seen, max(experience.classes) + 1)
            counts.append(seen)
        return tuple(counts)

    @property
    def fingerprint(self) -> str:
        """Equal exactly when labels, samples and protocol are equal."""
        digest = hashlib.blake2b(digest_size=16)
        protocol = [self.names, self.n_classes, self.evaluation, self.evaluate_after]
        digest.update(json.dumps(protocol).encode())
        for images in [*(e.images for e in self.experiences), self.test]:
            digest.update(f"{len(images)}:".encode())  # or pieces of one experience could pass for another
            digest.update(images.labels.numpy().tobytes())
            digest.update(images.ids.numpy().tobytes())
        for experience in self.experiences:
            if len(experience.unlabelled):
                digest.update(f"{experience.index} without labels:".encode())
                digest.update(experience.unlabelled.ids.numpy().tobytes())
        return digest.hexdigest()


def stream(
    experiences: Sequence[Images],
    test: Images,
    names: Sequence[str],
    *,
    n_classes: int | None = None,
    evaluation: Literal["seen", "all"] = "seen",
    evaluate_after: Sequence[int] = (),
) -> Stream:
    """A stream of the given experiences, with classes renamed to their order of first appearance.

    An image whose label is -1 has none and brings no class.

    >>> pixels = torch.zeros(4, 1, 8, 8, dtype=torch.uint8)
    >>> one = Images.from_array(pixels, torch.tensor([7, 7, 3, 3]))
    >>> two = Images.from_array(pixels, torch.tensor([0, 0, 7, 7]), torch.arange(4, 8))
    >>> s = stream([one, two], one, [f"class {c}" for c in range(8)])
    >>> [e.classes for e in s.experiences], s.names
    ([(0, 1), (1, 2)], ('class 3', 'class 7', 'class 0'))
    """
    order: list[int] = []
    for images in experiences:
        order += [c for c in images.labels.unique().tolist() if c >= 0 and c not in set(order)]
    if evaluation == "all":
        order += [c for c in test.labels.unique().tolist() if c >= 0 and c not in set(order)]
    renamed = torch.full((max([*order, *test.labels.tolist(), 0]) + 2,), UNLABELLED)  # the last one is row -1
    renamed[torch.tensor(order, dtype=torch.long)] = torch.arange(len(order))
    tested = test.renamed(renamed)
    return Stream(
        tuple(Experience(i, images) for i, images in enumerate((e.renamed(renamed) for e in experiences), start=1)),
        tested.select((tested.labels >= 0).nonzero().view(-1)),
        tuple(names[c] for c in order),
        n_classes,
        evaluation,
        tuple(evaluate_after),
    )


def class_incremental(
    train: Images,
    test: Images,
    names: Sequence[str],
    *,
    first: int,
    then: int,
    order: Sequence[int] | None = None,
    n_experiences: int | None = None,
    n_classes_known: bool = True,
    evaluation: Literal["seen", "all"] = "seen",
    evaluate_after: Sequence[int] = (),
) -> Stream:
    """A/B-C: `first` classes (B), then `then` new ones (C) in each of the other experiences (Sec. V-A).

    With `n_classes_known` the head can have all its rows from the start, as in the paper; otherwise it grows.
    """
    classes = [c for c in train.labels.unique().tolist() if c >= 0] if order is None else list(order)
    if first < 1 or then < 1:
        raise InvalidValue(f"An experience needs at least 1 class, got {first} first and {then} after.")
    if n_experiences is not None and n_experiences < 1:
        raise InvalidValue(f"A stream needs at least 1 experience, got {n_experiences}.")
    if len(set(classes)) < len(classes):
        raise InvalidValue("The class order names a class twice; give each class once.")
    n = n_experiences or 1 + max(0, -(-(len(classes) - first) // then))
    wanted = first + then * (n - 1)
    if wanted > len(classes):
        raise InvalidValue(f"{n}/{first}-{then} needs {wanted} classes, but the dataset has {len(classes)}.")
    groups = [classes[:first], *(classes[i : i + then] for i in range(first, wanted, then))]
    experiences = [select_classes(train, group) for group in groups]
    n_classes = wanted if n_classes_known else None
    return stream(
        experiences, test, names, n_classes=n_classes, evaluation=evaluation, evaluate_after=evaluate_after
    )


def with_repetition(
    train: Images,
    test: Images,
    names: Sequence[str],
    *,
    n_experiences: int,
    first: int,
    per_experience: int = 1,
    order: Sequence[int] | None = None,
    seed: int = 0,
    n_classes_known: bool = True,
    evaluation: Literal["seen", "all"] = "all",
    evaluate_after: Sequence[int] = (),
) -> Stream:
    """NIC: `first` classes, then experiences of at most `per_experience`, new or known, each with new images.

    Classes enter in the given order, or in one drawn by the seed, which also draws when they return. The images of
    a class are divided among its experiences. From published lists (NICv2), call `stream` with one `Images` each.
    """
    if order is None:
        classes = train.labels[train.labels >= 0].unique()  # without a label, there is no class
        order = classes[torch.randperm(len(classes), generator=generator(seed, "class order"))].tolist()
    schedule = _classes_with_repetition(order, n_experiences, first, per_experience, seed)
    experiences = _divide(train, names, schedule, seed)
    n_classes = len(order) if n_classes_known else None
    return stream(
        experiences, test, names, n_classes=n_classes, evaluation=evaluation, evaluate_after=evaluate_after
    )


def joint(source: Stream) -> Stream:
    """All the data of a stream as one experience: what the upper bound is trained on."""
    labels = torch.cat([e.images.labels for e in source.experiences])
    everything = concatenate([e.images for e in source.experiences])
    return Stream(
        (Experience(1, everything),),
        source.test,
        source.names,
        max(source.n_classes or 0, int(labels.max()) + 1),
        source.evaluation,
    )


def random_class_order(n_classes: int, seed: int) -> list[int]:
    """A permutation of the classes that depends on the seed alone."""
    return torch.randperm(n_classes, generator=generator(seed, "class order")).tolist()


def _classes_with_repetition(
    order: Sequence[int], n: int, first: int, per_experience: int, seed: int
) -> list[list[int]]:
    """The classes of each experience: new ones enter one after the other and return at any time after that.

    Classes have about equally many slots in a queue, at least two. An experience takes the next classes, each once.
    Slots left at the end are dropped: late experiences may have fewer classes, and a class may come only once.
    """
    n_classes, places = len(order), first + per_experience * (n - 1)
    sizes = (first, per_experience)
    if n < 1 or min(sizes) < 1 or max(sizes) > n_classes or places < 2 * n_classes:
        least = 1 + -(-(2 * n_classes - first) // max(1, per_experience))
        raise InvalidValue(
            f"nic-{n}/{first}-{per_experience} has {places} places, but each of {n_classes} classes comes at least "
            f"twice, and once in an experience; ask for 1 to {n_classes} classes at a time and at least "
            f"{max(2, least)} experiences."
        )
    draw = generator(seed, "repetition")
    visits: list[tuple[float, int]] = []  # when, and of which class
    for i, label in enumerate(order):
        enter = max(0, i - first + 1) / (n_classes - first + 1)
        n_returns = places // n_classes + (i < places % n_classes) - 1
        returns = enter + (1 - enter) * torch.rand(n_returns, generator=draw)
        visits += [(enter, label), *((when, label) for when in returns.tolist())]
    queue = [label for _, label in sorted(visits, key=lambda visit: visit[0])][first:]
    experiences = [list(order[:first])]
    for _ in range(n - 1):
        experience = list(dict.fromkeys(queue))[:per_experience]  # a class that comes twice waits for the next one
        for label in experience:
            queue.remove(label)
        experiences.append(experience)
    return experiences


def _divide(train: Images, names: Sequence[str], experiences: Sequence[Sequence[int]], seed: int) -> list[Images]:
    """The images of experiences that have these classes: those of a class are divided evenly, none comes twice."""
    pieces: dict[int, list[Tensor]] = {}
    for label, n in Counter(label for classes in experiences for label in classes).items():
        own = (train.labels == label).nonzero().view(-1)
        if n > len(own):
            raise InvalidValue(f"Class {names[label]} has {len(own)} images for {n} experiences; ask for fewer.")
        shuffled = own[torch.randperm(len(own), generator=generator(seed, "deal", label))]
        pieces[label] = list(shuffled.tensor_split(n))
    return [train.select(torch.cat([pieces[label].pop() for label in sorted(c)])) for c in experiences]
