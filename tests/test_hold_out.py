"""Which photos are held out: whole groups of near-duplicates, within a limit."""

from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from triphase.app.hold_out import choose
from triphase.app.near_duplicates import whole_groups
from triphase.errors import InvalidValue
from triphase.randomness import generator, keys

classes_of_groups = st.lists(
    st.lists(st.integers(1, 6), min_size=1, max_size=8), min_size=1, max_size=3
)  # sizes of groups, per class


@given(classes_of_groups, st.integers(0, 20), st.integers(0, 1000))
@settings(deadline=None)
def test_whole_groups_are_kept_within_the_limit(classes: list[list[int]], limit: int, seed: int) -> None:
    sizes = [size for sizes in classes for size in sizes]
    groups = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))
    labels = torch.arange(len(classes)).repeat_interleave(torch.tensor([sum(part) for part in classes]))
    key = keys(seed, torch.arange(len(groups)))
    held = choose(groups, labels, key, limit)
    assert torch.equal(whole_groups(held, groups), held)
    for label, part in enumerate(classes):
        count, n = int(held[labels == label].sum()), sum(part)
        assert count <= min(limit, n // 2)
        if len(part) == 1:
            assert count == 0
        elif min(part) <= min(limit, n // 2):
            assert count > 0
    order = torch.randperm(len(groups), generator=generator(seed, "order"))
    assert torch.equal(choose(groups[order], labels[order], key[order], limit), held[order])


def test_the_limit_holds_among_thousands_of_pairs_and_a_class_of_one_is_spared() -> None:
    groups = torch.cat([torch.arange(2500).repeat(2), torch.tensor([5000])])
    labels = torch.cat([torch.zeros(5000), torch.ones(1)]).long()
    held = choose(groups, labels, keys(0, torch.arange(5001)), limit=300)
    assert int(held.sum()) == 300 and not held[5000]


@pytest.mark.parametrize(("n", "expected"), [(1, 0), (2, 1), (5, 1), (10, 2), (100, 20), (400, 50)])
def test_about_a_fifth_of_single_photos_is_kept(n: int, expected: int) -> None:
    held = choose(torch.arange(n), torch.zeros(n), keys(0, torch.arange(n)), limit=50)
    assert int(held.sum()) == expected


def test_what_was_kept_before_counts_in_the_limit() -> None:
    groups, labels = torch.arange(40), torch.arange(40) % 4
    split = partial(choose, groups, labels, keys(0, groups), limit=5)
    before = split()
    held = split(held_before=[1] * 4 + [2] * 5 + [3] * 9)
    assert labels[before].bincount().tolist() == [2, 2, 2, 2]
    assert labels[held].bincount(minlength=4).tolist() == [2, 1, 0, 0]
    assert torch.equal(held[labels == 0], before[labels == 0])


def test_a_large_group_is_drawn_as_often_as_a_small_one() -> None:
    groups = torch.tensor([0, 1, 2, 3, 4, 4, 4, 4])
    together = 0
    for seed in range(1000):
        held = choose(groups, torch.zeros(8), keys(seed, torch.arange(8)), limit=4, share=0.5)
        together += bool(held[4])  # it only fits if it is drawn first of five
    assert 150 < together < 250


def test_a_share_that_leaves_little_to_learn_is_refused() -> None:
    with pytest.raises(InvalidValue, match=r"at most 0\.5, got 0\.9"):
        choose(torch.arange(3), torch.zeros(3), torch.arange(3), limit=5, share=0.9)
