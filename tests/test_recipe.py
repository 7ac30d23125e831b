"""The recipe: the same conditions for everybody, refused where they make no sense."""

import json
from dataclasses import FrozenInstanceError
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from triphase.app.learning import recipe_for
from triphase.data.recipe import Recipe
from triphase.errors import InvalidValue


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"epochs": -1}, "epochs must be at least 0, got -1"),
        ({"n_mbe": 0}, "n_mbe must be at least 1, got 0"),
        ({"n_mbr": -1}, "n_mbr must be at least 0, got -1"),
        ({"lr": 0.0}, "lr must be above 0 and finite, got 0.0"),
        ({"lr": float("nan")}, "lr must be above 0 and finite, got nan"),
        ({"csf_lr": -0.1}, "csf_lr must be above 0 and finite, got -0.1"),
        ({"momentum": 1.0}, r"momentum must be in \[0, 1\), got 1.0"),
        ({"momentum": -0.1}, "momentum must be in"),
        ({"momentum": float("nan")}, "momentum must be in"),
        ({"weight_decay": -1e-4}, "weight_decay must be finite and not negative, got -0.0001"),
        ({"augment": "rotate"}, "no augmentation 'rotate'"),
        ({"lr_schedule": "cosine"}, "'constant' or 'patience', got 'cosine'"),
        ({"trainable": "head"}, "'csf' or 'all', got 'head'"),
    ],
)
def test_value_outside_its_range_is_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidValue, match=words):
        Recipe(**settings)


def test_csf_learns_as_fast_as_the_head_unless_told_otherwise() -> None:
    assert Recipe(lr=0.3).csf_lr_or_lr == 0.3
    assert Recipe(lr=0.3, csf_lr=0.01).csf_lr_or_lr == 0.01


def test_recipe_survives_json() -> None:
    recipe = Recipe(epochs=7, lr=0.1 / 3, csf_lr=1e-3, n_mbr=5, augment="crop+flip", lr_schedule="patience")
    assert Recipe(**json.loads(json.dumps(recipe.to_json()))) == recipe


def test_recipe_cannot_be_changed_under_way() -> None:
    with pytest.raises(FrozenInstanceError):
        Recipe().lr = 1.0  # type: ignore[misc]


@given(st.integers(1, 20_000), st.integers(0, 50_000))
def test_a_lesson_has_enough_steps_and_replays_no_more_than_it_may(n: int, stored: int) -> None:
    recipe = recipe_for(n, stored)
    assert recipe.n_mbe + recipe.n_mbr == 32 and 3 <= recipe.epochs <= 20
    assert recipe.mixed is not None and recipe.balanced is not None
    assert recipe.epochs * -(-min(n, recipe.mixed) // recipe.n_mbe) >= 6
    assert recipe.n_mbr <= 4 * (recipe.n_mbe + 0.5)  # whole images
    assert (recipe.n_mbr == 0) == (stored == 0) or stored < n / 50


@given(st.integers(128, 5000), st.integers(4, 1000))
def test_what_a_lesson_costs_does_not_depend_on_how_much_is_stored(n: int, times: int) -> None:
    assert recipe_for(n, times * n) == recipe_for(n, 4 * n)
