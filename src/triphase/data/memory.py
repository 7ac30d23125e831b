"""The replay memory R: a class-balanced reservoir with named columns (SPEC 1.8)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor

from triphase.budget import Budget
from triphase.errors import InvalidValue, Mismatch
from triphase.randomness import keys

Columns = dict[str, Tensor]
Read = Callable[[Tensor], Columns]  # row numbers of the samples that get in -> their columns
TRAIN = 0  # the split that replay draws from
HELD_OUT = 1  # samples that were never trained on: exemplars to measure with, validation


class Memory:
    """At most `capacity` samples, balanced over the classes seen, uniform over all that was seen of a class.

    Every sample has a fixed random key, hash(seed, id); a class keeps its samples with the highest keys. That is
    reservoir sampling: whatever the order of arrival, each sample of a class is kept with the same probability.
    Samples are rows; `x` holds pixels (store="raw") or `z` latents (store="latent"), and `y`, `id`, `key`,
    `split` say what they are. `cache` holds further columns that can be computed again and are never saved.
    A capacity of None keeps everything.

    >>> memory = Memory(4, seed=0)
    >>> pixels = torch.zeros(9, 1, 8, 8, dtype=torch.uint8)
    >>> memory.add(torch.tensor([0, 0, 0, 0, 0, 0, 1, 1, 1]), torch.arange(9), lambda rows: {"x": pixels[rows]})
    >>> len(memory), memory.counts()
    (4, {0: 2, 1: 2})
    """

    def __init__(
        self,
        capacity: int | None,
        *,
        seed: int = 0,
        store: Literal["raw", "latent"] = "raw",
        dtype: torch.dtype = torch.float32,
    ) -> None:
        if capacity is not None and capacity < 1:
            raise InvalidValue(
                f"A memory must hold at least 1 sample, got {capacity}; give the learner None for no memory."
            )
        if store not in ("raw", "latent"):
            raise InvalidValue(f"store must be 'raw' or 'latent', got {store!r}.")
        self.capacity, self.seed, self.store, self.dtype = capacity, seed, store, dtype
        self.columns: Columns = {name: torch.empty(0, dtype=torch.long) for name in ("y", "id", "key")}
        self.columns["split"] = torch.empty(0, dtype=torch.int8)
        self.cache: Columns = {}
        self._floor: dict[int, int] = {}  # the highest key ever discarded, per class

    def __len__(self) -> int:
        return len(self.columns["y"])

    def __getitem__(self, name: str) -> Tensor:
        return self.columns[name]

    @property
    def nbytes(self) -> int:
        """What the stored samples take, without caches."""
        return sum(column.numel() * column.element_size() for column in self.columns.values())

    def counts(self) -> dict[int, int]:
        """Samples held, per class."""
        classes, counts = self.columns["y"].unique(return_counts=True)
        return dict(zip(classes.tolist(), counts.tolist(), strict=True))

    def slots(self, split: int = TRAIN) -> Tensor:
        """The rows that belong to a split."""
        return (self.columns["split"] == split).nonzero().view(-1)

    def check_room(self, n_classes: int) -> None:
        """Refuse, before anything is learned, to hold more classes than samples."""
        if self.capacity is not None and self.capacity < n_classes:
            raise InvalidValue(
                f"A memory of {self.capacity} cannot hold {n_classes} classes: "
                f"give it at least {n_classes} samples, better {20 * n_classes}."
            )

    def add(
        self,
        y: Tensor,
        ids: Tensor,
        read: Read,
        read_cache: Read | None = None,
        held_out: Tensor | None = None,
        budget: Budget | None = None,
    ) -> None:
        """Offer the samples of one experience; `read` supplies the columns of those that get in.

        A sample that is already held is not offered again, and one below a key that its class once discarded
        is refused: room that comes back later must not favour late arrivals (SPEC 9.7). Those that are `held_out`
        (n,) bool come first, up to a quarter of their class's room, and one where there is room for two: they
        measure, so that a memory which grows tight must not lose them to chance. Caches obey the `budget`.
        """
        apart = torch.zeros(len(y), dtype=torch.bool) if held_out is None else held_out
        new = self._candidates(y, ids, apart)
        key = keys(self.seed, ids)
        first = torch.cat([(self["split"] == HELD_OUT) & (held_out is not None), apart[new]])
        kept, floor = self._keep(torch.cat([self["y"], y[new]]), torch.cat([self["key"], key[new]]), first)
        stays, entering = kept[: len(self)], new[kept[len(self) :]]
        arrived = {"y": y[entering], "id": ids[entering], "key": key[entering]} | read(entering)
        if "z" in arrived:
            arrived["z"] = arrived["z"].to(self.dtype)
        arrived.setdefault("split", torch.full((len(entering),), TRAIN, dtype=torch.int8))
        assert len(self) == 0 or arrived.keys() == self.columns.keys(), "all samples need the same columns"
        derived = read_cache(entering) if read_cache is not None else {}
        complete = {name for name in derived if name in self.cache or len(self) == 0}
        cache = {name: _append(self.cache.get(name), stays, derived[name], budget) for name in complete}
        columns = {name: _append(self.columns.get(name), stays, arrived[name]) for name in arrived}
        self.columns, self.cache, self._floor = columns, cache, floor  # whatever failed before changed nothing

    def release(self, per_class: int) -> None:
        """Keep the held-out samples with the highest keys, so many of each class; replay may draw from the others.

        Never the other way round: what was trained on cannot be held out again.
        """
        held = self.slots(HELD_OUT)
        y, key = self["y"][held], self["key"][held]
        order = _by_class(y, key.argsort(descending=True))
        split = self["split"].clone()
        split[held[order[_rank(y[order]) >= per_class]]] = TRAIN
        self.columns = self.columns | {"split": split}

    def discard(self, ids: Tensor) -> None:
        """Take samples out, by id; not even the key of one that was pushed out long ago stays."""
        self._select(~torch.isin(self["id"], ids))
        gone = set(keys(self.seed, ids).tolist())
        self._floor = {label: key + 1 if key in gone else key for label, key in self._floor.items()}

    def forget(self, label: int) -> None:
        """Take a class out without a trace; the classes after it move up by one."""
        self._select(self["y"] != label)
        y = self["y"]
        self.columns = self.columns | {"y": y - (y > label).long()}
        self._floor = {c - (c > label): key for c, key in self._floor.items() if c != label}

    def _select(self, stays: Tensor) -> None:
        rows = stays.nonzero().view(-1)
        self.columns = {name: column[rows] for name, column in self.columns.items()}
        self.cache = {name: column[rows] for name, column in self.cache.items()}

    def state_dict(self) -> dict[str, Any]:
        """Everything that must survive."""
        floor = {str(label): key for label, key in self._floor.items()}
        return {"columns": dict(self.columns), "floor": floor, "capacity": self.capacity, "seed": self.seed}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over a saved memory of the same capacity and seed; caches start empty."""
        for name, here in (("capacity", self.capacity), ("seed", self.seed)):
            if state[name] != here:
                raise Mismatch(
                    f"The memory was saved with {name} {state[name]}, this one has {here}: make it alike."
                )
        if len(state["columns"]["y"]) and {"raw": "z", "latent": "x"}[self.store] in state["columns"]:
            raise Mismatch(f"The memory was saved with other samples than {self.store} ones: make it alike.")
        self.columns, self.cache = dict(state["columns"]), {}
        self._floor = {int(label): int(key) for label, key in state["floor"].items()}

    def _candidates(self, y: Tensor, ids: Tensor, held_out: Tensor) -> Tensor:
        floor = torch.tensor([self._floor.get(label, -1) for label in y.tolist()], dtype=torch.long)
        fresh = ~torch.isin(ids, self["id"]) & ((keys(self.seed, ids) > floor) | held_out)
        return (fresh & _first_occurrence(ids)).nonzero().view(-1)

    def _keep(self, y: Tensor, key: Tensor, held_out: Tensor) -> tuple[Tensor, dict[int, int]]:
        """Which candidates stay, in each class those with the highest keys up to its quota; and the new floors."""
        floor = dict(self._floor)
        classes, place, counts = y.unique(return_inverse=True, return_counts=True)
        quotas = self._quotas(dict(zip(classes.tolist(), counts.tolist(), strict=True)))
        quota = torch.tensor([quotas[label] for label in classes.tolist()], dtype=torch.long)
        by_key = key.argsort(descending=True)
        tier = torch.ones(len(y), dtype=torch.long)  # 0: held out and sure to stay, 2: held out and one too many
        among = held_out.nonzero().view(-1)
        among = among[_by_class(y[among], key[among].argsort(descending=True))]
        sure = torch.where(quota > 1, (quota // 4).clamp(min=1), 0)
        tier[among] = 2 * (_rank(y[among]) >= sure[place[among]]).long()
        order = _by_class(y, by_key[tier[by_key].argsort(stable=True)])
        kept = torch.zeros(len(y), dtype=torch.bool)
        kept[order] = _rank(y[order]) < quota[place[order]]
        lost = ~kept & ~held_out
        for label in y[lost].unique().tolist():
            floor[label] = max(floor.get(label, -1), int(key[(y == label) & lost].max()))
        return kept, floor

    def _quotas(self, supply: dict[int, int]) -> dict[int, int]:
        """Slots per class: equal as far as the supply allows, every slot used, remainders where they were."""
        if self.capacity is None:
            return supply
        self.check_room(len(supply))
        level = _level(sorted(supply.values()), self.capacity)
        quota = {label: min(n, level) for label, n in supply.items()}
        held = self.counts()
        longing = sorted((n for n in supply if supply[n] > level), key=lambda n: (held.get(n, 0) <= level, n))
        for label in longing[: self.capacity - sum(quota.values())]:
            quota[label] += 1
        return quota


def _by_class(y: Tensor, order: Tensor) -> Tensor:
    """An order of rows, grouped by class."""
    return order[y[order].argsort(stable=True)]


def _rank(y: Tensor) -> Tensor:
    """The position of each row within its class, for rows that are grouped by class.

    >>> _rank(torch.tensor([3, 3, 7, 7, 7])).tolist()
    [0, 1, 0, 1, 2]
    """
    _, counts = y.unique(return_counts=True)
    starts: Tensor = (counts.cumsum(0) - counts).repeat_interleave(counts)
    return torch.arange(len(y)) - starts


def _level(supply: list[int], capacity: int) -> int:
    """The highest level q with sum(min(n, q)) <= capacity, for supplies in ascending order."""
    room, left = capacity, len(supply)
    for n in supply:
        if n * left > room:
            return room // left
        room, left = room - n, left - 1
    return max(supply, default=0)


def _append(old: Tensor | None, stays: Tensor, new: Tensor, budget: Budget | None = None) -> Tensor:
    """The old rows that stay, then the new ones; with a budget, where it says."""
    if old is None and budget is None:
        return new
    old = new[:0] if old is None else old
    rows = stays.nonzero().view(-1)
    shape = (len(rows) + len(new), *old.shape[1:])
    out = old.new_empty(shape) if budget is None else budget.allocate(shape, old.dtype)
    torch.index_select(old, 0, rows, out=out[: len(rows)])
    out[len(rows) :] = new
    return out


def _first_occurrence(ids: Tensor) -> Tensor:
    """For each position, whether it is the first with its id."""
    unique, inverse = ids.unique(return_inverse=True)
    first = torch.full((len(unique),), len(ids)).scatter_reduce_(0, inverse, torch.arange(len(ids)), "amin")
    return torch.arange(len(ids)) == first[inverse]
