"""The replay memory: bounded, balanced, uniform within a class, and the same after a restart."""

from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from triphase import state as files
from triphase.data.memory import HELD_OUT, Memory
from triphase.errors import InvalidValue, Mismatch
from triphase.randomness import keys

N_CLASSES = 4
# Ids of one experience; the class of a sample follows from its id, so it is the same whenever it is offered.
offers = st.lists(st.lists(st.integers(0, 79), max_size=40), min_size=1, max_size=6)


def label(ids: Tensor) -> Tensor:
    """Uneven classes: half of all ids belong to class 0, an eighth to class 3."""
    return torch.tensor([0, 0, 0, 0, 1, 1, 2, 3])[ids % 8]


def content(ids: Tensor) -> Tensor:
    """Pixels that can be told from the id."""
    return (ids % 251).to(torch.uint8).view(-1, 1, 1, 1).expand(-1, 1, 2, 2)


def give(memory: Memory, ids: list[int], y: Tensor | None = None, cached: bool = False) -> None:
    """Offer samples; the cache, if any, holds minus the id."""
    offered = torch.tensor(ids, dtype=torch.long)
    memory.add(
        label(offered) if y is None else y,
        offered,
        lambda rows: {"x": content(offered[rows])},
        (lambda rows: {"z": -offered[rows].float()}) if cached else None,
    )


def held(memory: Memory, y: int) -> set[int]:
    return set(memory["id"][memory["y"] == y].tolist())


def key(memory: Memory, sample: int) -> int:
    return int(keys(memory.seed, torch.tensor([sample])))


def filled(supply: dict[int, int], capacity: int) -> list[int]:
    """Water-filling, one slot at a time to a class that holds fewest: the sorted counts."""
    counts = dict.fromkeys(supply, 0)
    for _ in range(capacity):
        open_classes = [c for c in supply if counts[c] < supply[c]]
        if open_classes:
            counts[min(open_classes, key=lambda c: counts[c])] += 1
    return sorted(counts.values())


@given(st.integers(N_CLASSES, 50), offers, st.integers(0, 3))
def test_memory_never_exceeds_its_capacity(capacity: int, experiences: list[list[int]], seed: int) -> None:
    memory = Memory(capacity, seed=seed)
    for ids in experiences:
        give(memory, ids)
        assert len(memory) <= capacity
        assert {len(column) for column in memory.columns.values()} == {len(memory)}


@given(st.integers(N_CLASSES, 50), offers, st.integers(0, 3))
def test_memory_fills_like_water_and_keeps_the_highest_keys(
    capacity: int, experiences: list[list[int]], seed: int
) -> None:
    """Balanced where the supply allows, every slot used, remainders where they were: against a plain model."""
    memory = Memory(capacity, seed=seed)
    seen: dict[int, set[int]] = {}
    for ids in experiences:
        supply: dict[int, set[int]] = {c: held(memory, c) for c in seen}
        before = memory.counts()
        for i in ids:
            y = int(label(torch.tensor(i)))
            discarded = seen.get(y, set()) - held(memory, y)
            floor = max((key(memory, d) for d in discarded), default=-1)
            if key(memory, i) > floor:
                supply.setdefault(y, set()).add(i)
        give(memory, ids)
        for i in ids:
            seen.setdefault(int(label(torch.tensor(i))), set()).add(i)
        now = {c: len(held(memory, c)) for c in supply}
        assert sorted(now.values()) == filled({c: len(s) for c, s in supply.items()}, capacity)
        for c in supply:
            assert held(memory, c) == set(sorted(seen[c], key=lambda i: -key(memory, i))[: now[c]])
        # a class loses its extra slot only if no other class gets one instead
        level = min((n for c, n in now.items() if n < len(supply[c])), default=0)
        lost = [c for c in supply if before.get(c, 0) > level and now[c] == level < len(supply[c])]
        gained = [c for c in supply if before.get(c, 0) <= level < now[c] and now[c] < len(supply[c])]
        assert not (lost and gained)


@given(offers, st.integers(0, 3))
def test_columns_belong_to_their_ids(experiences: list[list[int]], seed: int) -> None:
    memory = Memory(12, seed=seed)
    for ids in experiences:
        give(memory, ids + ids)  # each one twice, and often again later
        assert len(memory["id"].unique()) == len(memory)
        assert torch.equal(memory["x"], content(memory["id"]))
        assert torch.equal(memory["y"], label(memory["id"]))
        assert torch.equal(memory["key"], keys(seed, memory["id"]))


@given(st.permutations(range(60)), st.integers(1, 59), st.integers(0, 3))
def test_kept_samples_do_not_depend_on_the_order_of_arrival(order: list[int], cut: int, seed: int) -> None:
    one, other = Memory(13, seed=seed), Memory(13, seed=seed)
    give(one, list(range(60)))
    give(other, order[:cut])
    give(other, order[cut:])
    counts = {c: min(one.counts()[c], other.counts()[c]) for c in range(N_CLASSES)}
    for c in range(N_CLASSES):
        ranked = [sorted(held(m, c), key=lambda i: -key(one, i))[: counts[c]] for m in (one, other)]
        assert ranked[0] == ranked[1]
        if one.counts()[c] == other.counts()[c]:
            assert held(one, c) == held(other, c)


def test_every_sample_of_a_class_is_kept_with_the_same_probability_under_repetition() -> None:
    """Three lessons of class 0 while its quota shrinks from 150 to 75 to 30."""
    n, seeds = 200, 300
    times_kept = torch.zeros(3 * n)
    for seed in range(seeds):
        memory = Memory(150, seed=seed)
        for lesson, others in enumerate([0, 1, 4]):
            ids = torch.arange(lesson * n, (lesson + 1) * n)
            rest = torch.arange(others * 150) + 10_000
            y = torch.cat([torch.zeros(n, dtype=torch.long), 1 + torch.arange(others).repeat_interleave(150)])
            give(memory, torch.cat([ids, rest]).tolist(), y)
            assert memory.counts()[0] == (150, 75, 30)[lesson]
        times_kept[memory["id"][memory["y"] == 0]] += 1
    lessons = times_kept.view(3, n).sum(1)
    assert float(((lessons / lessons.sum() - 1 / 3) ** 2).sum() * lessons.sum() * 3) < 13.8  # 2 degrees, p = .001
    expected = seeds * 30 / (3 * n)
    chi_square = float(((times_kept - expected) ** 2 / expected).sum())
    assert abs(chi_square - (3 * n - 1)) < 4 * (2 * (3 * n - 1)) ** 0.5  # of single samples: neither more nor less


def test_room_that_comes_back_does_not_favour_late_arrivals() -> None:
    memory = Memory(5, seed=0)
    zero = torch.zeros(20, dtype=torch.long)
    give(memory, list(range(20)), zero)
    kept = held(memory, 0)
    highest_discarded = max(key(memory, i) for i in set(range(20)) - kept)
    memory.capacity = 50
    give(memory, list(range(20)), zero)  # those discarded are offered again
    assert held(memory, 0) == kept
    give(memory, list(range(100, 140)), torch.zeros(40, dtype=torch.long))
    assert held(memory, 0) == kept | {i for i in range(100, 140) if key(memory, i) > highest_discarded}


def test_remainder_slot_stays_with_its_class() -> None:
    memory = Memory(9, seed=0)
    give(memory, list(range(20)), torch.full((20,), 3))
    give(memory, list(range(20, 40)), torch.full((20,), 1))
    assert memory.counts() == {1: 4, 3: 5}  # class 3 was there first
    for start in (40, 60):
        give(memory, list(range(start, start + 20)), torch.full((20,), 1))
        assert memory.counts() == {1: 4, 3: 5}


def test_room_of_a_small_class_goes_to_the_others_until_it_needs_it() -> None:
    memory = Memory(10, seed=0)
    give(memory, list(range(22)), torch.tensor([0] * 20 + [1, 1]))
    assert memory.counts() == {0: 8, 1: 2}
    give(memory, list(range(30, 50)), torch.ones(20, dtype=torch.long))
    assert memory.counts() == {0: 5, 1: 5}


def test_memory_smaller_than_its_classes_is_refused_and_stays_as_it_was() -> None:
    memory = Memory(2, seed=0)
    give(memory, [0, 1, 2], torch.tensor([0, 0, 1]))
    before = memory.state_dict()
    with pytest.raises(InvalidValue, match="A memory of 2 cannot hold 3 classes: give it at least 3 samples"):
        give(memory, [3], torch.tensor([2]))
    after = memory.state_dict()
    assert all(torch.equal(after["columns"][name], column) for name, column in before["columns"].items())
    assert before["floor"] == after["floor"]
    with pytest.raises(InvalidValue, match="cannot hold 3 classes"):
        memory.check_room(3)
    memory.check_room(2)


def test_samples_that_cannot_be_read_leave_the_memory_as_it_was() -> None:
    memory = Memory(4, seed=0)
    give(memory, list(range(8)), torch.zeros(8, dtype=torch.long), cached=True)
    before, cache = memory.state_dict(), memory.cache["z"]

    def broken(rows: Tensor) -> dict[str, Tensor]:
        raise OSError("photo 17 is damaged")

    with pytest.raises(OSError, match="photo 17"):
        memory.add(torch.ones(9, dtype=torch.long), torch.arange(20, 29), broken)
    after = memory.state_dict()
    assert after["floor"] == before["floor"] and torch.equal(after["columns"]["id"], before["columns"]["id"])
    assert memory.cache["z"] is cache


@pytest.mark.parametrize("capacity", [0, -3])
def test_capacity_below_one_is_refused(capacity: int) -> None:
    with pytest.raises(InvalidValue, match=f"at least 1 sample, got {capacity}"):
        Memory(capacity)


def test_unknown_store_is_refused() -> None:
    with pytest.raises(InvalidValue, match="'raw' or 'latent', got 'jpeg'"):
        Memory(5, store="jpeg")  # type: ignore[arg-type]


@given(offers)
def test_memory_without_capacity_keeps_everything(experiences: list[list[int]]) -> None:
    memory = Memory(None)
    for ids in experiences:
        give(memory, ids)
    assert sorted(memory["id"].tolist()) == sorted({i for ids in experiences for i in ids})
    memory.check_room(10**6)


@given(st.integers(4, 30), offers, st.integers(0, 5))
def test_memory_continues_identically_from_disk(
    tmp_path_factory: pytest.TempPathFactory, capacity: int, experiences: list[list[int]], cut: int
) -> None:
    path = tmp_path_factory.mktemp("memory") / "m.safetensors"
    memory = Memory(capacity, seed=1)
    for ids in experiences[:cut]:
        give(memory, ids)
    files.save(path, memory.state_dict())
    again = Memory(capacity, seed=1)
    again.load_state_dict(files.load(path))
    for ids in experiences[cut:]:
        give(memory, ids)
        give(again, ids)
    assert memory.columns.keys() == again.columns.keys()
    assert all(torch.equal(again[name], column) for name, column in memory.columns.items())
    assert {n: c.dtype for n, c in memory.columns.items()} == {n: c.dtype for n, c in again.columns.items()}
    assert memory.state_dict()["floor"] == again.state_dict()["floor"]


@given(offers)
def test_cache_stays_aligned_with_the_samples(experiences: list[list[int]]) -> None:
    memory = Memory(9, seed=0)
    for ids in experiences:
        give(memory, ids, cached=True)
        assert torch.equal(memory.cache["z"], -memory["id"].float())


def test_cache_that_would_be_incomplete_is_dropped() -> None:
    memory = Memory(20, seed=0)
    give(memory, [0, 1, 2], cached=True)
    assert "z" in memory.cache
    give(memory, [3, 4], cached=False)
    assert memory.cache == {}
    give(memory, [5, 6], cached=True)  # knows nothing of the first five
    assert memory.cache == {}


@pytest.mark.parametrize(("other", "what"), [(Memory(9, seed=1), "capacity 8"), (Memory(8, seed=2), "seed 1")])
def test_a_memory_of_another_kind_is_not_taken_over(other: Memory, what: str) -> None:
    memory = Memory(8, seed=1)
    give(memory, [1, 2, 3])
    with pytest.raises(Mismatch, match=f"saved with {what}"):
        other.load_state_dict(memory.state_dict())
    assert len(other) == 0


def test_cache_is_neither_saved_nor_loaded(tmp_path: Path) -> None:
    memory = Memory(20, seed=0)
    give(memory, [0, 1, 2], cached=True)
    files.save(tmp_path / "m.safetensors", memory.state_dict())
    assert "z" not in files.load(tmp_path / "m.safetensors")["columns"]
    memory.load_state_dict(files.load(tmp_path / "m.safetensors"))
    assert memory.cache == {} and len(memory) == 3


def test_column_that_only_some_samples_have_is_a_mistake_of_the_caller() -> None:
    memory = Memory(20, seed=0)
    give(memory, [0, 1, 2])
    ids = torch.tensor([3, 4])
    with pytest.raises(AssertionError, match="the same columns"):
        memory.add(label(ids), ids, lambda rows: {"x": content(ids[rows]), "logits": torch.zeros(len(rows), 3)})
    assert set(memory.columns) == {"y", "id", "key", "split", "x"} and len(memory) == 3


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_latents_are_stored_in_the_type_of_the_memory(dtype: torch.dtype) -> None:
    memory = Memory(6, store="latent", dtype=dtype)
    for ids in (torch.arange(5), torch.arange(5, 12)):
        memory.add(label(ids), ids, lambda rows: {"z": torch.ones(len(rows), 3)})
    assert memory["z"].dtype == dtype and memory["z"].shape == (6, 3)
    assert memory["split"].dtype == torch.int8


def test_size_in_bytes_counts_every_column_and_no_cache() -> None:
    memory = Memory(3, seed=0)
    give(memory, list(range(16)), torch.zeros(16, dtype=torch.long), cached=True)
    assert memory.nbytes == 3 * (4 + 3 * 8 + 1)  # 2 x 2 pixels, three int64 columns, one int8


def test_split_column_separates_training_from_other_samples() -> None:
    memory = Memory(10, seed=0)
    ids = torch.arange(6)
    split = torch.tensor([0, 1, 0, 0, 1, 2], dtype=torch.int8)
    memory.add(label(ids), ids, lambda rows: {"x": content(ids[rows]), "split": split[rows]})
    give(memory, [6, 7])  # no split named: for training
    assert memory.slots().tolist() == [0, 2, 3, 6, 7]
    assert memory.slots(1).tolist() == [1, 4] and memory.slots(2).tolist() == [5]
    assert Memory(4).slots().tolist() == []


def test_nothing_offered_changes_nothing() -> None:
    memory = Memory(5, seed=0)
    give(memory, [])
    assert len(memory) == 0 and memory.counts() == {}
    give(memory, [1, 2], cached=True)
    give(memory, [], cached=True)
    give(memory, [2, 1], cached=True)
    assert memory["id"].tolist() == [1, 2] and torch.equal(memory.cache["z"], torch.tensor([-1.0, -2.0]))


def test_released_samples_are_those_with_the_lowest_keys_and_training_ones_never_come_back() -> None:
    memory = Memory(20, seed=0)
    y, ids = torch.arange(20) % 2, torch.arange(20)
    held = torch.zeros(20, dtype=torch.int8)
    held[:10] = HELD_OUT
    memory.add(y, ids, lambda rows: {"x": torch.zeros(len(rows), 1, 2, 2, dtype=torch.uint8), "split": held[rows]})
    memory.release_held_out(3)
    for label in (0, 1):
        mine = memory["y"] == label
        kept = memory["key"][mine & (memory["split"] == HELD_OUT)]
        was_held = torch.isin(memory["id"], torch.arange(10)) & mine
        assert sorted(kept.tolist()) == sorted(memory["key"][was_held].tolist())[-3:]
    memory.release_held_out(9)
    assert len(memory.slots(HELD_OUT)) == 6


def test_a_dropped_class_leaves_nothing_and_later_labels_move_down() -> None:
    memory = Memory(6, seed=0)
    y, ids = torch.arange(30) % 3, torch.arange(30)
    pixels = (y * 10).to(torch.uint8).view(-1, 1, 1, 1).expand(-1, 1, 2, 2)
    memory.add(y, ids, lambda rows: {"x": pixels[rows]})
    memory.drop_class(1)
    assert memory.counts() == {0: 2, 1: 2}
    assert set(memory["x"].flatten().tolist()) == {0, 20}
    assert not (memory["id"] % 3 == 1).any()
    assert set(memory.state_dict()["floor"]) == {"0", "1"}


def test_discarded_samples_are_gone_and_make_room() -> None:
    memory = Memory(4, seed=0)
    read = lambda rows: {"x": torch.zeros(len(rows), 1, 1, 1, dtype=torch.uint8)}  # noqa: E731
    memory.add(torch.zeros(4, dtype=torch.long), torch.arange(4), read)
    memory.discard(torch.tensor([1, 2, 99]))
    assert sorted(memory["id"].tolist()) == [0, 3]
    memory.add(torch.zeros(2, dtype=torch.long), torch.tensor([7, 8]), read)
    assert sorted(memory["id"].tolist()) == [0, 3, 7, 8]


def give_with_held_out(memory: Memory, ids: list[int]) -> None:
    """Offer samples of which every fifth id is held out."""
    offered = torch.tensor(ids, dtype=torch.long)
    held_out = offered % 5 == 0

    def read(rows: Tensor) -> dict[str, Tensor]:
        return {"x": content(offered[rows]), "split": held_out[rows].to(torch.int8)}

    memory.add(label(offered), offered, read, held_out=held_out)


@given(st.integers(N_CLASSES, 50), st.sets(st.integers(0, 79)), st.integers(0, 3))
def test_a_quarter_of_the_room_is_reserved_for_held_out_samples(capacity: int, ids: set[int], seed: int) -> None:
    memory = Memory(capacity, seed=seed)
    give_with_held_out(memory, sorted(ids))
    for c, n in memory.counts().items():
        mine = sorted((i for i in ids if int(label(torch.tensor(i))) == c), key=lambda i: -key(memory, i))
        held_out, others = [i for i in mine if i % 5 == 0], [i for i in mine if i % 5]
        reserved = held_out[: max(1, n // 4)] if n > 1 else []
        assert held(memory, c) == set([*reserved, *others, *held_out[len(reserved) :]][:n])


@given(st.integers(N_CLASSES, 50), offers, st.integers(0, 3))
def test_no_class_with_anything_held_out_is_left_without_it(
    capacity: int, experiences: list[list[int]], seed: int
) -> None:
    memory, offered = Memory(capacity, seed=seed), set[int]()
    for ids in experiences:
        give_with_held_out(memory, ids)
        offered |= set(ids)
        assert len(memory) == min(capacity, len(memory)) and len(memory) <= len(offered)
        for c in memory.counts():
            mine = {i for i in offered if int(label(torch.tensor(i))) == c and i % 5 == 0}
            room = len(held(memory, c)) > 1
            assert not mine or not room or any(i % 5 == 0 for i in held(memory, c))


def test_the_key_of_a_rejected_sample_goes_when_it_is_discarded() -> None:
    memory = Memory(3, seed=0)
    ids = torch.arange(20)
    memory.add(torch.zeros(20, dtype=torch.long), ids, lambda rows: {"x": torch.zeros(len(rows), 1, 2, 2)})
    (floor,) = memory.state_dict()["floor"].values()
    rejected = ids[keys(0, ids) == floor]
    assert len(rejected) == 1 and not torch.isin(rejected, memory["id"]).any()
    memory.discard(rejected)
    (now,) = memory.state_dict()["floor"].values()
    assert now == floor + 1, "it still keeps out what was kept out before"


def test_relabelled_samples_keep_everything_but_their_class() -> None:
    memory = Memory(6, seed=0)
    pixels = torch.arange(6, dtype=torch.uint8).view(6, 1, 1, 1)
    memory.add(torch.tensor([0, 0, 0, 1, 1, 1]), torch.arange(6), lambda rows: {"x": pixels[rows]})
    before = dict(memory.columns)
    memory.relabel(torch.tensor([0, 2, 99]), 1)
    assert dict(zip(memory["id"].tolist(), memory["y"].tolist(), strict=True)) == {
        0: 1,
        1: 0,
        2: 1,
        3: 1,
        4: 1,
        5: 1,
    }
    assert all(torch.equal(memory[name], before[name]) for name in before if name != "y")
