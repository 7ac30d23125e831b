"""Taught photos with a wrong label: how many of them are at the head of the list that the review shows.

python benchmarks/mislabelled.py --photos FOLDER [--classes 20] [--per-class 15] [--share 0.05] [--seeds 5]
    [--image-size 224]

FOLDER has one folder per class. Of each of `classes` classes the first photos are taken; a share of them, drawn at
random, gets the label of another class, drawn at random; a model is taught all of them. The list is
`Review.suspects`. Precision at k is the share of wrong labels among the first k of the list, where k is the number
of labels that are wrong. Beside it: the same ranked by the vote of the five nearest other photos.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from statistics import mean
from typing import Any

import torch

from triphase.app.review import Review
from triphase.app.teach import teach
from triphase.data.sources.files import file_id
from triphase.randomness import generator

NEIGHBOURS = 5


def choose(folder: Path, classes: int, per_class: int) -> list[list[Path]]:
    """The first photos of classes that are spread over the folder."""
    folders = sorted(path for path in folder.iterdir() if path.is_dir())
    step = max(1, len(folders) // classes)
    return [sorted(path.iterdir())[:per_class] for path in folders[::step][:classes]]


def write(photos: list[list[Path]], root: Path, share: float, seed: int) -> set[int]:
    """Links to the photos in class folders, some in a wrong one; ids of those."""
    rows = [(label, photo) for label, group in enumerate(photos) for photo in group]
    draw = generator(seed, "mislabelled")
    wrong = set(torch.randperm(len(rows), generator=draw)[: round(share * len(rows))].tolist())
    shift = torch.randint(1, len(photos), (len(rows),), generator=draw).tolist()
    for row, (label, photo) in enumerate(rows):
        taught = (label + shift[row]) % len(photos) if row in wrong else label
        folder = root / photos[taught][0].parent.name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{row}{photo.suffix}").symlink_to(photo.resolve())
    return {file_id(rows[row][1]) for row in wrong}


def by_neighbours(review: Review) -> list[int]:
    """Ids of all photos, those first whose class has the smallest share of their nearest neighbours' similarity."""
    index = review.index
    shares = {}
    for row, (id_, label) in enumerate(zip(index.ids.tolist(), index.labels.tolist(), strict=True)):
        (found,) = index.nearest(index.features[row : row + 1], NEIGHBOURS, without=(id_,))
        own = sum(max(0.0, n.similarity) for n in found if n.name == index.names[label])
        shares[id_] = own / sum(max(1e-9, n.similarity) for n in found)
    return sorted(shares, key=lambda id_: shares[id_])


def measure(photos: list[list[Path]], share: float, seed: int, image_size: int) -> dict[str, Any]:
    """One model."""
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch)
        wrong = write(photos, root / "photos", share, seed)
        teach(root / "model", root / "photos", {"image_size": image_size})
        review = Review(root / "model")
        listed = [suspect.id for suspect in review.suspects()]
        k = len(wrong)
        return {
            "seed": seed,
            "photos": len(review.taught),
            "wrong": k,
            "precision_at_k": len(wrong & set(listed[:k])) / k,
            "found_in_list": len(wrong & set(listed)) / k,
            "listed": len(listed),
            "precision_at_k_by_neighbours": len(wrong & set(by_neighbours(review)[:k])) / k,
        }


def main() -> None:
    """Print one JSON document."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--photos", type=Path, required=True)
    parser.add_argument("--classes", type=int, default=20)
    parser.add_argument("--per-class", type=int, default=15)
    parser.add_argument("--share", type=float, default=0.05)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--image-size", type=int, default=224)
    arguments = parser.parse_args()
    photos = choose(arguments.photos, arguments.classes, arguments.per_class)
    runs = [measure(photos, arguments.share, seed, arguments.image_size) for seed in range(arguments.seeds)]
    averages = {name: mean(run[name] for run in runs) for name in runs[0] if name not in ("seed",)}
    print(json.dumps({"mean": averages, "runs": runs}, indent=1))


if __name__ == "__main__":
    main()
