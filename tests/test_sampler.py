"""Draws are pure functions of their position; every sample is drawn once per epoch."""

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from triphase.data.recipe import Recipe
from triphase.data.sampler import Sampler, step_of_epoch

ROWS, SLOTS = torch.arange(3, 16), torch.arange(20, 31)


def sampler(
    recipe: Recipe, *, rows: Tensor = ROWS, slots: Tensor = SLOTS, experience: int = 2, seed: int = 3
) -> Sampler:
    return Sampler(rows, slots, recipe, experience=experience, seed=seed)


def epoch_of(one: Sampler, epoch: int) -> tuple[list[int], list[int]]:
    """Rows and slots of an epoch."""
    drawn = [one.mixed(epoch, step) for step in range(one.n_mixed)]
    return torch.cat([rows for rows, _ in drawn]).tolist(), torch.cat([slots for _, slots in drawn]).tolist()


@given(st.integers(1, 300), st.integers(1, 60), st.integers(0, 12))
def test_no_minibatch_is_too_small_for_statistics_unless_all_must_be(n: int, size: int, n_replayed: int) -> None:
    n_steps = -(-n // size)
    steps = [step_of_epoch(torch.arange(n), step, size, n_replayed) for step in range(n_steps)]
    assert torch.cat(steps).tolist() == list(range(n)) and max(map(len, steps)) <= size
    smallest = min(map(len, steps)) + n_replayed
    if n > size and size + n_replayed >= 2 * 8:
        assert smallest >= 8
    if n % size + n_replayed >= 8 or n % size == 0:
        assert [len(p) for p in steps[:-1]] == [size] * (n_steps - 1)


def test_an_epoch_has_every_row_once_and_the_replay_goes_on_from_epoch_to_epoch() -> None:
    one = sampler(Recipe(n_mbe=5, n_mbr=4))
    assert one.n_mixed == 3
    epochs = [epoch_of(one, epoch) for epoch in range(11)]
    assert all(sorted(rows) == ROWS.tolist() for rows, _ in epochs)
    replayed = sum((slots for _, slots in epochs), [])
    assert len(replayed) == 11 * 3 * 4
    for k in range(len(replayed) // len(SLOTS)):
        assert sorted(replayed[k * len(SLOTS) : (k + 1) * len(SLOTS)]) == SLOTS.tolist()


def test_an_epoch_may_have_some_of_the_rows_and_others_in_the_next() -> None:
    one = sampler(Recipe(n_mbe=5, n_mbr=4, mixed=8))
    assert one.n_mixed == 2
    epochs = [epoch_of(one, epoch)[0] for epoch in range(6)]
    assert all(len(rows) == len(set(rows)) == 8 and set(rows) <= set(ROWS.tolist()) for rows in epochs)
    assert set(sum(epochs, [])) == set(ROWS.tolist()), "in time every row has its turn"
    assert epoch_of(sampler(Recipe(n_mbe=5, n_mbr=4, mixed=99)), 0) == epoch_of(
        sampler(Recipe(n_mbe=5, n_mbr=4)), 0
    )


def test_a_draw_depends_on_seed_experience_and_position_and_on_nothing_else() -> None:
    recipe = Recipe(n_mbe=5, n_mbr=4)
    expected = sampler(recipe).mixed(7, 1)
    used = sampler(recipe)
    for epoch, step in ((0, 0), (9, 2), (7, 0), (3, 1)):
        used.mixed(epoch, step)
        used.balanced(SLOTS, epoch, 0)
    others = (sampler(recipe, seed=4), sampler(recipe, experience=3))
    assert all(torch.equal(a, b) for a, b in zip(used.mixed(7, 1), expected, strict=True))
    for drawn in (used.mixed(7, 0), used.mixed(8, 1), *(other.mixed(7, 1) for other in others)):
        assert not torch.equal(drawn[0], expected[0]) and not torch.equal(drawn[1], expected[1])


def test_consolidation_has_every_slot_once_or_as_many_as_the_recipe_says() -> None:
    whole, bounded = sampler(Recipe(n_mbe=4)), sampler(Recipe(n_mbe=4, n_mbr=4, balanced=7))
    assert (whole.n_balanced(len(SLOTS)), bounded.n_balanced(len(SLOTS)), whole.n_balanced(0)) == (3, 1, 0)
    drawn = torch.cat([whole.balanced(SLOTS, 0, step) for step in range(3)])
    assert sorted(drawn.tolist()) == SLOTS.tolist()
    few = bounded.balanced(SLOTS, 0, 0)
    assert len(few.unique()) == len(few) == 7


def test_consolidation_follows_a_memory_that_changes_within_an_epoch() -> None:
    one = sampler(Recipe(n_mbe=40))
    one.balanced(SLOTS, 0, 0)
    larger = torch.arange(35)
    assert sorted(one.balanced(larger, 0, 0).tolist()) == larger.tolist()


def test_without_memory_or_replay_no_slot_is_drawn() -> None:
    for one in (sampler(Recipe(n_mbe=5, n_mbr=4), slots=SLOTS[:0]), sampler(Recipe(n_mbe=5, n_mbr=0))):
        assert len(one.mixed(0, 0)[1]) == 0 and sorted(epoch_of(one, 0)[0]) == ROWS.tolist()
