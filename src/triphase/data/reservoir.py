"""Class-balanced reservoir sampling: which samples a memory keeps."""

from __future__ import annotations

import torch
from torch import Tensor


def quotas(supply: dict[int, int], capacity: int, stored: dict[int, int]) -> dict[int, int]:
    """Slots per class: equal as far as the supply allows, and all used.

    Slots that are left over go to classes which have more stored already, then to lower labels.

    >>> quotas({0: 10, 1: 2, 2: 10}, capacity=9, stored={2: 5})
    {0: 3, 1: 2, 2: 4}
    """
    level = water_level(sorted(supply.values()), capacity)
    quota = {label: min(n, level) for label, n in supply.items()}
    wanting = [label for label in supply if supply[label] > level]
    wanting.sort(key=lambda label: (stored.get(label, 0) <= level, label))
    for label in wanting[: capacity - sum(quota.values())]:
        quota[label] += 1
    return quota


def water_level(supply: list[int], capacity: int) -> int:
    """The highest level q with sum(min(n, q)) <= capacity, for supplies in ascending order.

    >>> water_level([2, 10, 10], 9)
    3
    """
    room, left = capacity, len(supply)
    for n in supply:
        if n * left > room:
            return room // left
        room, left = room - n, left - 1
    return max(supply, default=0)


def choose(y: Tensor, key: Tensor, held_out: Tensor, quota: dict[int, int]) -> Tensor:
    """(n,) bool: the samples that stay, in each class those with the highest keys up to its quota.

    A quarter of a quota, and one slot of 2 or 3, is reserved for held-out samples; those beyond come last.
    """
    classes, place = y.unique(return_inverse=True)
    slots = torch.tensor([quota[label] for label in classes.tolist()], dtype=torch.long)  # per class
    reserved = torch.where(slots > 1, (slots // 4).clamp(min=1), 0)
    tier = torch.ones(len(y), dtype=torch.long)
    held = held_out.nonzero().view(-1)
    held = held[by_class(y[held], key[held].argsort(descending=True))]
    tier[held] = torch.where(rank_in_class(y[held]) < reserved[place[held]], 0, 2)
    by_key = key.argsort(descending=True)
    order = by_class(y, by_key[tier[by_key].argsort(stable=True)])
    chosen = torch.zeros(len(y), dtype=torch.bool)
    chosen[order] = rank_in_class(y[order]) < slots[place[order]]
    return chosen


def by_class(y: Tensor, order: Tensor) -> Tensor:
    """An order of rows, grouped by class."""
    return order[y[order].argsort(stable=True)]


def rank_in_class(y: Tensor) -> Tensor:
    """The position of each row within its class, for rows that are grouped by class.

    >>> rank_in_class(torch.tensor([3, 3, 7, 7, 7])).tolist()
    [0, 1, 0, 1, 2]
    """
    _, counts = y.unique(return_counts=True)
    starts: Tensor = (counts.cumsum(0) - counts).repeat_interleave(counts)
    return torch.arange(len(y)) - starts


def first_occurrences(ids: Tensor) -> Tensor:
    """(n,) bool: whether a position is the first with its id.

    >>> first_occurrences(torch.tensor([5, 7, 5])).tolist()
    [True, True, False]
    """
    unique, inverse = ids.unique(return_inverse=True)
    first = torch.full((len(unique),), len(ids)).scatter_reduce_(0, inverse, torch.arange(len(ids)), "amin")
    return torch.arange(len(ids)) == first[inverse]
