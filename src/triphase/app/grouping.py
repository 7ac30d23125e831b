"""Photos without labels: groups that look alike, and the order in which labels would teach most."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from triphase.app.taught_index import TaughtIndex
from triphase.errors import InvalidValue

MAX_PHOTOS = 5000  # compared with each other


def group_similar(index: TaughtIndex, features: Tensor) -> list[list[int]]:
    """Rows of features (n, D), in groups of photos that look alike, the largest first; each row is in one group.

    `features` come from `Predictor.features`. Agglomerative clustering with average linkage: groups are joined
    while their photos are on average nearer to each other than `TaughtIndex.same_class_distance`.
    """
    from scipy.cluster.hierarchy import fcluster, linkage  # slow to import
    from scipy.spatial.distance import squareform

    n = len(features)
    if n > MAX_PHOTOS:
        raise InvalidValue(f"At most {MAX_PHOTOS:,} photos can be grouped together, got {n:,}; give fewer.")
    if n < 2:
        return [[row] for row in range(n)]
    apart = index.distances(features).double()
    condensed = squareform(((apart + apart.T) / 2).fill_diagonal_(0).numpy(), checks=False)
    clusters = fcluster(linkage(condensed, "average"), index.same_class_distance(), "distance")
    groups: dict[int, list[int]] = {}
    for row, cluster in enumerate(clusters.tolist()):
        groups.setdefault(cluster, []).append(row)
    return sorted(groups.values(), key=lambda rows: (-len(rows), rows))


@dataclass(frozen=True)
class Ranked:
    """A photo that waits for a label."""

    row: int
    group: int  # of those given, from 0
    doubt: float  # from 0, sure, to 2, like nothing that was taught
    reason: str  # one sentence


def rank_by_informativeness(doubt: Tensor, known: Tensor, groups: Sequence[Sequence[int]]) -> list[Ranked]:
    """Photos in the order in which labels would teach most: the most doubtful photo of each group comes first.

    A label says something about all photos of its group, so the second of a group comes after the first of every
    other; among equals the larger group comes first. `groups` come from `group_similar`.
    """
    places: list[tuple[int, float, int, Ranked]] = []
    for number, rows in enumerate(groups):
        for turn, row in enumerate(sorted(rows, key=lambda row: (-float(doubt[row]), row))):
            reason = _reason(float(doubt[row]), bool(known[row]), len(rows) - 1)
            places.append((turn, -float(doubt[row]), -len(rows), Ranked(row, number, float(doubt[row]), reason)))
    return [place[3] for place in sorted(places, key=lambda place: (*place[:3], place[3].row))]


def _reason(doubt: float, known: bool, others: int) -> str:
    if not known:
        text = "It looks like nothing that was taught"
    elif doubt > 0.5:
        text = "Two classes fit it almost equally well"
    else:
        text = "The model is fairly sure of it"
    alike = f", and {others} other photo{'s look' if others > 1 else ' looks'} like it" if others else ""
    return f"{text}{alike}."
