"""Which photos are held out: they measure a model and are never trained on."""

from collections.abc import Sequence

import torch
from torch import Tensor

from triphase.errors import InvalidValue


def choose(
    groups: Tensor,
    labels: Tensor,
    keys: Tensor,
    limit: int,
    share: float = 0.2,
    held_before: Sequence[int] = (),  # the classes of photos that are held out already; the limit counts them
) -> Tensor:
    """Which photos to hold out, bool (n,): of each class about `share`, at most `limit`, in whole groups.

    Groups are drawn by their members' random keys, so the same photos are always split the same way. A class of
    one group has nothing to spare; of any other at least one group is held out, if it is within the limit and half
    the class.
    """
    if not 0 < share <= 0.5:
        raise InvalidValue(f"The share that is held out must be above 0 and at most 0.5, got {share}.")
    held = torch.zeros(len(groups), dtype=torch.bool)
    for label in labels.unique().tolist():
        rows = (labels == label).nonzero().view(-1)
        _, member, sizes = groups[rows].unique(return_inverse=True, return_counts=True)
        # The largest of k uniform keys, to the power of k, is uniform again: large groups are drawn no more often.
        uniform = keys[rows].double() / 2**63
        top = torch.zeros(len(sizes), dtype=torch.double).scatter_reduce(0, member, uniform, "amax") ** sizes
        order = top.argsort(descending=True)
        room = limit - held_before.count(label)
        target = min(room, max(1, round(share * len(rows))))
        chosen = _fill(sizes[order].tolist(), target, most=min(room, len(rows) // 2))
        held[rows] = torch.isin(member, order[chosen])
    return held


def _fill(sizes: list[int], target: int, most: int) -> list[int]:
    """The first groups that fit into the target together; if none does, the smallest, if it has at most `most`."""
    chosen: list[int] = []
    if len(sizes) < 2:
        return chosen
    for i, size in enumerate(sizes):
        if size <= target:
            chosen.append(i)
            target -= size
    smallest = min(range(len(sizes)), key=sizes.__getitem__)
    return chosen or ([smallest] if sizes[smallest] <= most else [])
