"""Photos of classes that were never taught: do groups by likeness match the classes, and what is labelled first?

python benchmarks/unlabelled.py --photos FOLDER [--classes 20] [--others 10] [--per-class 15] [--image-size 224]

FOLDER has one folder per class. A model is taught `classes` of them. Photos of `others` other classes, and as
many of the taught ones that it has not seen, are grouped by `group_similar` and ranked by
`rank_by_informativeness`. It prints the adjusted Rand index of the groups and the true classes, the share of
photos that belong to the most frequent class of their group (purity), and how many of the other classes are
among the first photos of the ranking, as many as there are other classes, beside the mean of 1000 random
orders.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections import Counter
from pathlib import Path

import torch
from mislabelled import choose, write
from sklearn.metrics import adjusted_rand_score

from triphase.app.answers import doubts
from triphase.app.grouping import group_similar, rank_by_informativeness
from triphase.app.predictor import Predictor
from triphase.app.review import Review
from triphase.app.teach import teach
from triphase.data.decoding import decode
from triphase.randomness import generator

DRAWS = 1000


def main() -> None:
    """Print one JSON document."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--photos", type=Path, required=True)
    parser.add_argument("--classes", type=int, default=20)
    parser.add_argument("--others", type=int, default=10)
    parser.add_argument("--per-class", type=int, default=15)
    parser.add_argument("--image-size", type=int, default=224)
    arguments = parser.parse_args()
    n_taught, n_others = arguments.classes, arguments.others
    photos = choose(arguments.photos, n_taught + n_others, 2 * arguments.per_class)
    every = (n_taught + n_others) // n_others
    others = [group[: arguments.per_class] for group in photos[::every][:n_others]]
    taught = [group for row, group in enumerate(photos) if row % every or row // every >= n_others]
    seen = [group[: arguments.per_class] for group in taught]
    rest = [photo for group in taught for photo in group[arguments.per_class :]]
    draw = generator(0, "unlabelled")
    some = [rest[i] for i in torch.randperm(len(rest), generator=draw)[: sum(map(len, others))].tolist()]
    with tempfile.TemporaryDirectory() as scratch:
        write(seen, Path(scratch) / "photos", share=0.0, seed=0)
        teach(Path(scratch) / "model", Path(scratch) / "photos", {"image_size": arguments.image_size})
        index, predictor = Review(Path(scratch) / "model").index, Predictor.open(Path(scratch) / "model")
    files = [photo for group in others for photo in group] + some
    pixels = torch.stack([decode(file, predictor.size) for file in files])
    parts = pixels.split(predictor.chunk)
    features = torch.cat([predictor.features(part) for part in parts])
    probabilities, known = (torch.cat(rows) for rows in zip(*(predictor(part) for part in parts), strict=True))
    names = [file.parent.name for file in files]
    n_new = sum(map(len, others))
    groups = group_similar(index, features[:n_new])
    cluster = {row: number for number, rows in enumerate(groups) for row in rows}
    pure = sum(Counter(names[row] for row in rows).most_common(1)[0][1] for rows in groups)
    ranked = rank_by_informativeness(doubts(probabilities, known), known, group_similar(index, features))
    new = set(names[:n_new])
    first = {names[r.row] for r in ranked[:n_others]} & new
    random = [
        len({names[i] for i in torch.randperm(len(files), generator=draw)[:n_others].tolist()} & new)
        for _ in range(DRAWS)
    ]
    result = {
        "photos": n_new,
        "classes": n_others,
        "groups": len(groups),
        "groups_of_3_or_more": sum(len(rows) >= 3 for rows in groups),
        "adjusted_rand_index": float(adjusted_rand_score(names[:n_new], [cluster[row] for row in range(n_new)])),
        "purity": pure / n_new,
        "new_photos_called_unknown": 1 - float(known[:n_new].float().mean()),
        "new_classes_among_the_first": len(first),
        "new_classes_in_random_order": sum(random) / DRAWS,
    }
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
