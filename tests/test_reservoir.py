"""Class-balanced reservoir sampling: quotas share the room evenly, and keys decide who stays."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from triphase.data.reservoir import by_class, choose, first_occurrences, quotas, rank_in_class, water_level

supplies = st.dictionaries(st.integers(0, 9), st.integers(1, 30), min_size=1)


@given(supplies, st.integers(10, 120))
def test_quotas_use_all_room_and_differ_by_at_most_one_where_the_supply_allows(
    supply: dict[int, int], capacity: int
) -> None:
    quota = quotas(supply, capacity, stored={})
    assert quota.keys() == supply.keys() and all(quota[label] <= n for label, n in supply.items())
    assert sum(quota.values()) == min(capacity, sum(supply.values()))
    limited = [quota[label] for label, n in supply.items() if quota[label] < n]
    assert not limited or max(quota.values()) - min(limited) <= 1


def test_slots_that_are_left_over_stay_where_they_were() -> None:
    supply = dict.fromkeys(range(3), 10)
    assert quotas(supply, 10, stored={}) == {0: 4, 1: 3, 2: 3}
    assert quotas(supply, 10, stored={2: 4, 0: 3}) == {0: 3, 1: 3, 2: 4}


@given(st.lists(st.integers(1, 30), min_size=1), st.integers(1, 200))
def test_the_water_level_is_the_highest_that_fits(supply: list[int], capacity: int) -> None:
    level = water_level(sorted(supply), capacity)
    assert sum(min(n, level) for n in supply) <= capacity
    assert level == max(supply) or sum(min(n, level + 1) for n in supply) > capacity


def test_the_highest_keys_of_each_class_stay() -> None:
    y, key = torch.tensor([0, 1, 0, 1, 0]), torch.tensor([5, 1, 9, 2, 7])
    nothing = torch.zeros(5, dtype=torch.bool)
    assert choose(y, key, nothing, {0: 2, 1: 1}).tolist() == [False, False, True, True, True]


def test_one_slot_in_four_is_reserved_for_held_out_samples_and_the_others_of_them_come_last() -> None:
    y, key = torch.zeros(6, dtype=torch.long), torch.tensor([1, 2, 30, 40, 50, 60])
    held_out = torch.tensor([True, True, False, False, False, False])
    assert choose(y, key, held_out, {0: 4}).tolist() == [False, True, False, True, True, True]
    assert choose(y, key, held_out, {0: 6}).tolist() == [True] * 6
    assert choose(y, key, held_out, {0: 1}).tolist() == [False] * 5 + [True], "a single slot is for training"
    high = torch.tensor([100, 90, 30, 40, 50, 60])
    assert choose(y, high, held_out, {0: 5}).tolist() == [True, False, True, True, True, True]


@given(st.lists(st.integers(0, 3), max_size=20))
def test_rows_are_grouped_by_class_and_ranked_within_it(labels: list[int]) -> None:
    y = torch.tensor(labels, dtype=torch.long)
    order = by_class(y, torch.arange(len(y)))
    grouped = y[order].tolist()
    assert grouped == sorted(labels)
    assert rank_in_class(y[order]).tolist() == [grouped[:i].count(c) for i, c in enumerate(grouped)]


@given(st.lists(st.integers(0, 5), max_size=20))
def test_only_the_first_of_equal_ids_counts(ids: list[int]) -> None:
    found = first_occurrences(torch.tensor(ids, dtype=torch.long)).tolist()
    assert found == [id_ not in ids[:i] for i, id_ in enumerate(ids)]
