"""Distances to class means, against sums written out."""

import pytest
import torch

from triphase.maths.mahalanobis import mahalanobis, relative_mahalanobis
from triphase.randomness import generator
from triphase.scoring import whiten


def test_mahalanobis_is_the_distance_to_the_nearest_mean() -> None:
    random = generator(0, "features")
    f, means = (torch.randn(n, 4, generator=random, dtype=torch.float64) for n in (6, 3))
    expected = [[-float((x - m) @ (x - m)) for m in means] for x in f]
    found = mahalanobis(f + 1000, means + 1000)
    assert found.tolist() == pytest.approx([max(row) for row in expected], rel=1e-6)
    relative = relative_mahalanobis(f + 1000, means + 1000)
    to_all = mahalanobis(f, means.mean(0, keepdim=True))
    assert relative.tolist() == pytest.approx((found - to_all).tolist(), rel=1e-6)


def test_whitened_features_have_the_distances_of_the_inverse_covariance() -> None:
    random = generator(0, "features")
    f, mean, root = (torch.randn(n, 4, generator=random, dtype=torch.float64) for n in (6, 1, 4))
    sigma = root @ root.T + torch.eye(4, dtype=torch.float64)
    away = f - mean
    expected = -torch.einsum("nd,de,ne->n", away, sigma.inverse(), away)
    factor = torch.linalg.cholesky(sigma)
    torch.testing.assert_close(mahalanobis(whiten(f, factor), whiten(mean, factor)), expected)
