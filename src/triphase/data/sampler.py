"""Which samples a minibatch consists of: rows of the experience and slots of the memory."""

from __future__ import annotations

import torch
from torch import Tensor

from triphase.data.recipe import Recipe
from triphase.randomness import generator

MIN_BATCH = 8  # BatchNorm's statistics of fewer images can destroy csf


class Sampler:
    """Draws the minibatches of one experience.

    A draw is a pure function of the seed, the experience and the position (epoch in the experience, step in the
    epoch). So training continues at any position, and all learners see the same minibatches.
    """

    def __init__(self, rows: Tensor, slots: Tensor, recipe: Recipe, *, experience: int, seed: int) -> None:
        self._rows = rows  # of the experience, those that are trained on
        self._slots = slots  # of the memory as it was when the experience began
        self._recipe, self._experience, self._seed = recipe, experience, seed
        self._order: tuple[tuple[str, int, int], Tensor] | None = None  # of the epoch that is under way
        self._replay_orders: dict[int, Tensor] = {}

    @property
    def n_mixed(self) -> int:
        """Minibatches in an epoch over the experience: ceil(n_i / n_mbe)."""
        return _ceil(self._n_of_epoch, self._recipe.n_mbe)

    def n_balanced(self, n_slots: int) -> int:
        """Minibatches in an epoch over a memory of n_slots samples: ceil(n_replay / n_mbe)."""
        return _ceil(self._n_consolidated(n_slots), self._recipe.n_mb_balanced)

    def mixed(self, epoch: int, step: int) -> tuple[Tensor, Tensor]:
        """About n_mbe rows, each at most once per epoch, and n_mbr slots of an endless replay of the memory."""
        n_mbe, n_mbr = self._recipe.n_mbe, self._recipe.n_mbr if len(self._slots) else 0
        order = self._shuffled("shuffle", epoch, len(self._rows))[: self._n_of_epoch]
        rows = self._rows[step_of_epoch(order, step, n_mbe, n_mbr)]
        return rows, self._replayed((epoch * self.n_mixed + step) * n_mbr, n_mbr)

    def balanced(self, slots: Tensor, epoch: int, step: int) -> Tensor:
        """About n_mbe of the slots of the updated memory, each at most once per epoch (Phase III)."""
        order = self._shuffled("consolidate", epoch, len(slots))[: self._n_consolidated(len(slots))]
        return slots[step_of_epoch(order, step, self._recipe.n_mb_balanced)]

    @property
    def _n_of_epoch(self) -> int:
        n = len(self._rows)
        return n if self._recipe.mixed is None else min(n, self._recipe.mixed)

    def _n_consolidated(self, n_slots: int) -> int:
        return n_slots if self._recipe.balanced is None else min(n_slots, self._recipe.balanced)

    def _shuffled(self, purpose: str, epoch: int, n: int) -> Tensor:
        """The order of an epoch over n samples."""
        if self._order is None or self._order[0] != (purpose, epoch, n):
            random = generator(self._seed, purpose, self._experience, epoch)
            self._order = (purpose, epoch, n), torch.randperm(n, generator=random)
        return self._order[1]

    def _replayed(self, start: int, n: int) -> Tensor:
        """n slots from a position on in an endless sequence of permutations of the memory."""
        size = len(self._slots)
        if size == 0 or n == 0:
            return torch.empty(0, dtype=torch.long)
        first, last = start // size, (start + n - 1) // size
        sequence = torch.cat([self._replay_order(k) for k in range(first, last + 1)])
        return self._slots[sequence[start - first * size :][:n]]

    def _replay_order(self, k: int) -> Tensor:
        """The k-th permutation of the memory; the newest few are kept."""
        if k not in self._replay_orders:
            random = generator(self._seed, "replay", self._experience, k)
            self._replay_orders = {i: order for i, order in self._replay_orders.items() if i >= k - 2}
            self._replay_orders[k] = torch.randperm(len(self._slots), generator=random)
        return self._replay_orders[k]


def step_of_epoch(order: Tensor, step: int, size: int, n_replayed: int = 0) -> Tensor:
    """The samples of one step of an epoch: `size` each, or equal shares where the last step would have too few.

    >>> [step_of_epoch(torch.arange(33), step, 16).numel() for step in range(3)]
    [11, 11, 11]
    >>> [step_of_epoch(torch.arange(33), step, 16, n_replayed=16).numel() for step in range(3)]
    [16, 16, 1]
    """
    n, last = len(order), len(order) % size
    if 0 < last < MIN_BATCH - n_replayed <= size < n:
        return order.tensor_split(_ceil(n, size))[step]
    return order[step * size : (step + 1) * size]


def _ceil(n: int, size: int) -> int:
    return -(-n // size)
