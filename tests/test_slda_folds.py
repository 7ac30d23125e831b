"""Leaving parts out of a discriminant one by one, and all of them with one factorisation."""

import pytest
import torch
from torch import Tensor

from triphase import SLDA
from triphase.learners.frozen import without
from triphase.learners.slda_folds import scores_without
from triphase.testing import tiny_model

D, CLASSES = 16, 4


def counted(n: int, shrinkage: float = 0.2) -> tuple[SLDA, Tensor, Tensor]:
    """A discriminant of features that are stored, and of as many others that are not."""
    draw = torch.Generator().manual_seed(0)
    y = torch.arange(2 * n) % CLASSES
    f = torch.randn(2 * n, D, generator=draw) @ torch.randn(D, D, generator=draw) + 3 * y.unsqueeze(1)
    closed = SLDA(tiny_model(), shrinkage=shrinkage)
    closed.add(f, y)
    closed.known = set(range(CLASSES))
    return closed, f[:n], y[:n]


@pytest.mark.parametrize("shrinkage", [0.05, 0.2, 1.0])
@pytest.mark.parametrize("size", [1, 7, 20])
def test_one_part_is_scored_as_by_statistics_that_never_counted_it(size: int, shrinkage: float) -> None:
    closed, f, y = counted(40, shrinkage)
    part = torch.arange(size)
    [found] = scores_without(closed, f, y, [part])
    torch.testing.assert_close(found, without(closed, f[part], y[part]).scores(f[part]), rtol=1e-4, atol=1e-3)


def test_parts_of_unequal_size_are_scored_nearly_so() -> None:
    closed, f, y = counted(120)
    parts = torch.arange(120).split([30, 10, 40, 20, 20])
    for part, found in zip(parts, scores_without(closed, f, y, list(parts)), strict=True):
        expected = without(closed, f[part], y[part]).scores(f[part]).softmax(1)
        assert (found.softmax(1) - expected).abs().max() < 0.02


def test_a_class_of_which_nothing_is_left_does_not_disturb_the_others() -> None:
    closed, f, y = counted(40)
    only = torch.full((3,), CLASSES)
    f, y = torch.cat([f, f[:3] + 50]), torch.cat([y, only])
    closed.add(f[-3:], only)
    closed.known |= {CLASSES}
    part = torch.tensor([0, 1, 40, 41, 42])
    [found] = scores_without(closed, f, y, [part])
    expected = without(closed, f[part], y[part]).scores(f[part])
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-3)


def test_one_image_a_class_has_no_variance_within_it() -> None:
    closed = SLDA(tiny_model())
    f, y = torch.randn(3, D, generator=torch.Generator().manual_seed(1)), torch.arange(3)
    closed.add(f, y)
    closed.known = {0, 1, 2}
    part = torch.tensor([2])
    [found] = scores_without(closed, f, y, [part])
    torch.testing.assert_close(found, without(closed, f[part], y[part]).scores(f[part]), rtol=1e-4, atol=1e-3)
