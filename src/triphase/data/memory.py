"""The replay memory R: a class-balanced reservoir with named columns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor

from triphase.budget import Budget
from triphase.data import reservoir
from triphase.errors import InvalidValue, Mismatch
from triphase.randomness import keys

Columns = dict[str, Tensor]
ReadColumns = Callable[[Tensor], Columns]  # rows of the samples that get in -> their columns
TRAIN = 0  # the split that replay draws from
HELD_OUT = 1  # samples that were never trained on: accuracy is measured on them


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
        self._floor: dict[int, int] = {}  # the highest key ever rejected, per class

    def __len__(self) -> int:
        return len(self.columns["y"])

    def __getitem__(self, name: str) -> Tensor:
        return self.columns[name]

    @property
    def nbytes(self) -> int:
        """The size of the stored samples, without the cache."""
        return sum(column.numel() * column.element_size() for column in self.columns.values())

    def counts(self) -> dict[int, int]:
        """Samples stored, per class."""
        return _counts(self["y"])

    def slots(self, split: int = TRAIN) -> Tensor:
        """The rows that belong to a split."""
        return (self["split"] == split).nonzero().view(-1)

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
        read: ReadColumns,
        read_cache: ReadColumns | None = None,
        held_out: Tensor | None = None,  # (n,) bool
        budget: Budget | None = None,  # of the cache; None: as much as it takes
    ) -> None:
        """Offer the samples of one experience; `read` gives the columns of those that get in.

        A sample that is stored already is not offered again, and one below a key that its class once rejected is
        rejected, too: room that comes back later must not favour late arrivals. Some room is reserved
        for held-out samples, so that a memory which becomes full does not lose what accuracy is measured on.
        """
        offered_held_out = torch.zeros(len(y), dtype=torch.bool) if held_out is None else held_out
        key, offered = keys(self.seed, ids), self._offered(y, ids, offered_held_out)
        all_y, all_key = torch.cat([self["y"], y[offered]]), torch.cat([self["key"], key[offered]])
        stored_held_out = (self["split"] == HELD_OUT) & (held_out is not None)
        all_held_out = torch.cat([stored_held_out, offered_held_out[offered]])
        chosen = reservoir.choose(all_y, all_key, all_held_out, self._quotas(_counts(all_y)))
        stays, entering = chosen[: len(self)], offered[chosen[len(self) :]]
        new = {"y": y[entering], "id": ids[entering], "key": key[entering]} | read(entering)
        if "z" in new:
            new["z"] = new["z"].to(self.dtype)
        new.setdefault("split", torch.full((len(entering),), TRAIN, dtype=torch.int8))
        assert len(self) == 0 or new.keys() == self.columns.keys(), "all samples need the same columns"
        cache = self._updated_cache(stays, read_cache(entering) if read_cache is not None else {}, budget)
        columns = {name: _append(self.columns.get(name), stays, new[name]) for name in new}
        floor = self._raised_floor(all_y, all_key, ~chosen & ~all_held_out)
        self.columns, self.cache, self._floor = columns, cache, floor  # whatever failed before changed nothing

    def release_held_out(self, per_class: int) -> None:
        """Hold out only the `per_class` samples of each class with the highest keys; the others may be replayed.

        Never the other way round: what was trained on cannot be held out again.
        """
        held_out = self.slots(HELD_OUT)
        y, key = self["y"][held_out], self["key"][held_out]
        order = reservoir.by_class(y, key.argsort(descending=True))
        split = self["split"].clone()
        split[held_out[order[reservoir.rank_in_class(y[order]) >= per_class]]] = TRAIN
        self.columns = self.columns | {"split": split}

    def discard(self, ids: Tensor) -> None:
        """Delete samples, by id; the key of one that was rejected long ago is deleted as well."""
        self._select(~torch.isin(self["id"], ids))
        deleted = set(keys(self.seed, ids).tolist())
        self._floor = {label: key + 1 if key in deleted else key for label, key in self._floor.items()}

    def relabel(self, ids: Tensor, label: int) -> None:
        """Give samples, by id, another class; until the next `add` the classes may be out of balance."""
        self.columns = self.columns | {"y": torch.where(torch.isin(self["id"], ids), label, self["y"])}

    def drop_class(self, label: int) -> None:
        """Delete all of a class; later labels move down by one."""
        self._select(self["y"] != label)
        y = self["y"]
        self.columns = self.columns | {"y": y - (y > label).long()}
        self._floor = {c - (c > label): key for c, key in self._floor.items() if c != label}

    def state_dict(self) -> dict[str, Any]:
        """Columns and what the reservoir needs; not the cache."""
        floor = {str(label): key for label, key in self._floor.items()}
        return {"columns": dict(self.columns), "floor": floor, "capacity": self.capacity, "seed": self.seed}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Load a saved memory of the same capacity and seed; the cache starts empty."""
        for name, here in (("capacity", self.capacity), ("seed", self.seed)):
            if state[name] != here:
                raise Mismatch(
                    f"The memory was saved with {name} {state[name]}, this one has {here}: "
                    f"make it with {name} {state[name]}."
                )
        if len(state["columns"]["y"]) and {"raw": "z", "latent": "x"}[self.store] in state["columns"]:
            stored = "latent" if self.store == "raw" else "raw"
            raise Mismatch(
                f"The memory was saved with {stored} samples, this one is for {self.store} ones: "
                f"make it with store={stored!r}."
            )
        self.columns, self.cache = dict(state["columns"]), {}
        self._floor = {int(label): int(key) for label, key in state["floor"].items()}

    def _offered(self, y: Tensor, ids: Tensor, held_out: Tensor) -> Tensor:
        """The rows of an experience that are neither stored nor rejected already."""
        floor = torch.tensor([self._floor.get(label, -1) for label in y.tolist()], dtype=torch.long)
        new = ~torch.isin(ids, self["id"]) & ((keys(self.seed, ids) > floor) | held_out)
        return (new & reservoir.first_occurrences(ids)).nonzero().view(-1)

    def _quotas(self, supply: dict[int, int]) -> dict[int, int]:
        """Slots per class."""
        if self.capacity is None:
            return supply
        self.check_room(len(supply))
        return reservoir.quotas(supply, self.capacity, self.counts())

    def _raised_floor(self, y: Tensor, key: Tensor, rejected: Tensor) -> dict[int, int]:
        floor = dict(self._floor)
        for label in y[rejected].unique().tolist():
            floor[label] = max(floor.get(label, -1), int(key[(y == label) & rejected].max()))
        return floor

    def _updated_cache(self, stays: Tensor, new: Columns, budget: Budget | None) -> Columns:
        """The cached columns that all samples have."""
        complete = {name for name in new if name in self.cache or len(self) == 0}
        return {name: _append(self.cache.get(name), stays, new[name], budget) for name in complete}

    def _select(self, stays: Tensor) -> None:
        rows = stays.nonzero().view(-1)
        self.columns = {name: column[rows] for name, column in self.columns.items()}
        self.cache = {name: column[rows] for name, column in self.cache.items()}


def _counts(y: Tensor) -> dict[int, int]:
    classes, counts = y.unique(return_counts=True)
    return dict(zip(classes.tolist(), counts.tolist(), strict=True))


def _append(old: Tensor | None, stays: Tensor, new: Tensor, budget: Budget | None = None) -> Tensor:
    """The old rows that stay, then the new ones; allocated by the budget, if there is one."""
    if old is None and budget is None:
        return new
    old = new[:0] if old is None else old
    rows = stays.nonzero().view(-1)
    shape = (len(rows) + len(new), *old.shape[1:])
    out = old.new_empty(shape) if budget is None else budget.allocate(shape, old.dtype)
    torch.index_select(old, 0, rows, out=out[: len(rows)])
    out[len(rows) :] = new
    return out
