"""RanPAC, derived again in NumPy."""

from typing import Any

import numpy as np
import pytest
import torch

from derivation import (
    scores,
    taught,
)
from triphase import (
    RanPAC,
)
from triphase.errors import CorruptState, InvalidValue
from triphase.randomness import generator
from triphase.testing import tiny_model


def test_ranpac_is_ridge_regression_on_random_features() -> None:
    learner, f, y, everything = taught(RanPAC(tiny_model(), n_projected=50, ridge=3.0))
    P = learner.P.double().numpy()
    h, all_h = np.maximum(f @ P, 0), np.maximum(everything @ P, 0)
    W = np.linalg.solve(h.T @ h + 3.0 * np.eye(50), h.T @ np.eye(3)[y])
    np.testing.assert_allclose(scores(learner), all_h @ W, rtol=1e-2, atol=1e-3)


def test_ranpac_chooses_the_ridge_with_the_least_error_on_a_fifth() -> None:
    draw = torch.Generator().manual_seed(0)
    h, y = torch.rand(40, 30, generator=draw), torch.arange(40) % 3
    learner = RanPAC(tiny_model(), n_projected=30)
    chosen = learner._choose_ridge(h, y)
    order = torch.randperm(40, generator=generator(0, "ridge")).numpy()
    val, train = order[:8], order[8:]
    H, Y = h.double().numpy(), np.eye(3)[y.numpy()]
    errors = {}
    for k in range(-8, 9):
        W = np.linalg.lstsq(
            np.vstack([H[train], np.sqrt(10.0**k) * np.eye(30)]),
            np.vstack([Y[train], np.zeros((30, 3))]),
            rcond=None,
        )[0]
        errors[10.0**k] = ((H[val] @ W - Y[val]) ** 2).mean()
    assert errors[chosen] <= min(errors.values()) + 1e-9


def test_ranpac_goes_on_choosing_until_there_are_enough_images() -> None:
    draw = torch.Generator().manual_seed(0)
    f, y = torch.randn(600, 16, generator=draw), torch.arange(600) % 5
    learner = RanPAC(tiny_model(), n_projected=20)
    for part in range(6):
        learner.add(f[part * 100 :][:100], y[part * 100 :][:100])
        whole = RanPAC(tiny_model(), n_projected=20)
        whole.add(f[: min(5, part + 1) * 100], y[: min(5, part + 1) * 100])
        assert learner.ridge == whole.ridge
        assert (learner.ridge_images is None) == (part >= 4)


def test_ranpac_refuses_features_of_a_network_that_diverged() -> None:
    learner = RanPAC(tiny_model(), n_projected=16, ridge=1.0)
    with pytest.raises(CorruptState, match="no numbers"):
        learner.add(torch.full((6, 16), float("nan")), torch.arange(6) % 3)


def test_ranpac_solves_with_a_larger_ridge_where_the_chosen_one_is_too_small_for_the_precision() -> None:
    learner = RanPAC(tiny_model(), n_projected=60, ridge=1e-8)
    f, y = torch.ones(5, 16) * torch.arange(1, 6).view(-1, 1) * 100, torch.tensor([0, 0, 1, 1, 1])
    learner.add(f, y)
    assert torch.isfinite(learner.W).all()


@pytest.mark.parametrize("options", [{"ridge": 0}, {"n_projected": 0}])
def test_options_outside_their_range_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidValue, match="n_projected and ridge must be above 0"):
        RanPAC(tiny_model(), **options)
