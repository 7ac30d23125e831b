"""Nearest class mean, derived again in NumPy."""

import numpy as np

from derivation import (
    scores,
    taught,
)
from triphase import (
    NCM,
)
from triphase.testing import tiny_model


def test_ncm_is_the_nearest_mean_of_unit_features() -> None:
    learner, f, y, everything = taught(NCM(tiny_model()))
    unit, all_unit = (a / np.linalg.norm(a, axis=1, keepdims=True) for a in (f, everything))
    means = np.stack([unit[y == c].mean(0) for c in range(3)])
    means /= np.linalg.norm(means, axis=1, keepdims=True)
    distances = ((all_unit[:, None] - means) ** 2).sum(2)
    np.testing.assert_allclose(scores(learner), 1 - distances / 2, rtol=1e-4, atol=1e-5)
