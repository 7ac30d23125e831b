"""Real photographs for benchmarks: folders with train/CLASS and test/CLASS, drawn and ordered by a seed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch

from triphase.data.images import Images
from triphase.data.sources.folder import class_folders
from triphase.errors import BadData
from triphase.maths.sampling import evenly_spaced
from triphase.randomness import generator

KEPT_BACK = 5  # one in so many photos of a class arrives in the last lesson
HELD_OUT = 5  # one in so many training photos chooses a rival's learning rate or regularisation
Photos = dict[str, list[Path]]  # by class

# Kinds that a name does not end with: with these, the kinds of Grocery Store are its authors' coarse classes.
KINDS = {
    "Apple": "Golden-Delicious Granny-Smith Pink-Lady Red-Delicious Royal-Gala",
    "Juice": "Tropicana-Golden-Grapefruit Tropicana-Juice-Smooth Tropicana-Mandarin-Morning",
    "Melon": "Cantaloupe Watermelon",
    "Oat-Milk": "Oatly-Oat-Milk",
    "Pear": "Anjou Conference Kaiser",
    "Sour-Milk": "Arla-Sour-Milk",
    "Soy-Milk": "Alpro-Fresh-Soy-Milk Alpro-Shelf-Soy-Milk",
}
KIND_OF = {name: kind for kind, names in KINDS.items() for name in names.split()}


@dataclass(frozen=True)
class PhotoSet:
    """Training and test photos of the same classes."""

    train: Photos
    test: Photos

    @property
    def names(self) -> list[str]:
        """The classes, sorted."""
        return list(self.train)

    def select(self, names: list[str]) -> PhotoSet:
        """Some of the classes."""
        return PhotoSet({n: self.train[n] for n in names}, {n: self.test[n] for n in names})


def read(folder: Path, half: str = "all", n_classes: int | None = None, n_test: int | None = None) -> PhotoSet:
    """The photos of a folder: half A has the classes at even positions, sorted by name, half B the others.

    `n_classes` takes the first ones of them, `n_test` at most so many test photos of each.
    """
    train, test = ({c.path.name: c.images for c in class_folders(folder / part)} for part in ("train", "test"))
    missing = sorted(set(train) ^ set(test))
    if missing:
        raise BadData(f"{missing[0]} lies in only one of {folder}/train and {folder}/test; put it into both.")
    for name, photos in {**train, **test}.items():
        if not photos or not train[name]:
            raise BadData(
                f"The class {name} of {folder} has a folder without photos; remove the class, or add some."
            )
    names = sorted(train)
    chosen = {"A": names[::2], "B": names[1::2], "all": names}[half][:n_classes]
    return PhotoSet({name: train[name] for name in chosen}, {name: spread(test[name], n_test) for name in chosen})


def spread(files: list[Path], n: int | None) -> list[Path]:
    """At most n of the files, evenly spaced; None: all."""
    return files if n is None else [files[row] for row in evenly_spaced(len(files), n).tolist()]


def draw(photos: Photos, per_class: int | None, seed: int) -> Photos:
    """At most so many photos of each class, drawn by the seed; more of them contain the fewer."""
    return {
        name: sorted(files[i] for i in _shuffled(len(files), seed, f"draw {name}")[:per_class])
        for name, files in photos.items()
    }


def lessons(photos: Photos, seed: int, first: int, then: int, more: bool) -> list[Photos]:
    """`first` classes, then `then` a lesson, in an order drawn by the seed.

    With `more`, a fifth of the photos of each class is kept back, and all of these arrive in the last lesson.
    """
    names = sorted(photos)
    order = [names[i] for i in _shuffled(len(names), seed, "order")]
    now, later = dict(photos), {}
    for name in names if more else []:
        files = [photos[name][i] for i in _shuffled(len(photos[name]), seed, f"keep back {name}")]
        n = len(files) // KEPT_BACK
        now[name], later[name] = sorted(files[n:]), sorted(files[:n])
    starts = [0, *range(min(first, len(order)), len(order), then)]
    parts = [order[a:b] for a, b in zip(starts, [*starts[1:], len(order)], strict=True)]
    plan: list[Photos] = [{name: now[name] for name in part} for part in parts]
    return plan + ([later] if any(later.values()) else [])


def hold_out(photos: Photos) -> tuple[Photos, Photos]:
    """Photos to train on, and the last fifth of each class by file name, so that few bursts are on both sides."""
    n = {name: min(len(files) - 1, max(1, len(files) // HELD_OUT)) for name, files in photos.items()}
    return (
        {name: files[: len(files) - n[name]] for name, files in photos.items()},
        {name: files[len(files) - n[name] :] for name, files in photos.items()},
    )


def link(photos: Photos, folder: Path) -> Path:
    """A folder of class folders with links to the photos, under their own names: those tell bursts."""
    for name, files in photos.items():
        (folder / name).mkdir(parents=True)
        for number, file in enumerate(files):
            place = folder / name / file.name
            (place.with_stem(f"{file.stem}-{number}") if place.exists() else place).symlink_to(file.resolve())
    return folder


def images_of(photos: Photos, names: list[str], size: int) -> Images:
    """The photos, decoded when they are read; labels count the names, -1 for other classes."""
    listed = [
        (file, names.index(name) if name in names else -1) for name, files in photos.items() for file in files
    ]
    labels = torch.tensor([label for _, label in listed], dtype=torch.long)
    return Images.from_files([file for file, _ in listed], labels, torch.arange(len(listed)), size)


def kind(name: str) -> str:
    """What several classes may be kinds of: the last of the words that hyphens join.

    >>> kind("Vine-Tomato"), kind("Royal-Gala"), kind("crocodile_head")
    ('Tomato', 'Apple', 'crocodile_head')
    """
    return KIND_OF.get(name, name.rsplit("-", 1)[-1])


def strangers(data: PhotoSet) -> tuple[PhotoSet, Mapping[str, Photos]]:
    """Every other class to teach, and test photos of the rest: those of a kind that is taught are near."""
    taught = data.select(data.names[::2])
    kinds = {kind(name) for name in taught.names}
    rest = {name: data.test[name] for name in data.names[1::2]}
    near = {name: files for name, files in rest.items() if kind(name) in kinds}
    return taught, {"near": near, "others": {name: files for name, files in rest.items() if name not in near}}


def _shuffled(n: int, seed: int, purpose: str) -> list[int]:
    drawn: list[int] = torch.randperm(n, generator=generator(seed, f"photos {purpose}")).tolist()
    return drawn
