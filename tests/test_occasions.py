"""Which photos belong together, and what that does to the photos that are held out."""

import torch
from torch.nn import functional as F

from triphase.app import occasions
from triphase.randomness import generator

SCENES = 6
COPIES = 5


def scenes(n_classes: int = 2, noise: float = 0.02) -> tuple[torch.Tensor, torch.Tensor]:
    """Looks of several photos of each scene, and their classes."""
    random = generator(0, "scenes")
    centres = torch.rand(n_classes * SCENES, 64, generator=random).repeat_interleave(COPIES, 0)
    look = F.normalize(centres + noise * torch.rand(centres.shape, generator=random))
    return look, torch.arange(n_classes).repeat_interleave(SCENES * COPIES)


def unknown(n: int) -> torch.Tensor:
    return torch.full((n,), torch.nan, dtype=torch.double)


def test_photos_of_one_scene_form_an_occasion() -> None:
    look, labels = scenes()
    found = occasions.groups(look, unknown(len(labels)), labels, torch.arange(len(labels)))
    expected = torch.arange(len(labels)) // COPIES * COPIES
    assert torch.equal(found, expected)


def test_no_occasion_has_two_classes() -> None:
    look = F.normalize(torch.ones(4, 64) + torch.eye(4, 64) / 100)
    found = occasions.groups(look, unknown(4), torch.tensor([0, 1, 0, 1]), torch.arange(4))
    assert set(found[[0, 2]].tolist()).isdisjoint(found[[1, 3]].tolist())


def test_photos_taken_soon_after_each_other_belong_together_whatever_they_show() -> None:
    look = F.normalize(torch.eye(4, 64))
    times = torch.tensor([0.0, 500.0, 1000.0, 5000.0], dtype=torch.double)
    found = occasions.groups(look, times, torch.zeros(4, dtype=torch.long), torch.arange(4))
    assert found.tolist() == [0, 0, 0, 3]


def test_near_duplicates_stay_together() -> None:
    look = F.normalize(torch.eye(3, 64))
    found = occasions.groups(look, unknown(3), torch.zeros(3, dtype=torch.long), torch.tensor([0, 1, 0]))
    assert found.tolist() == [0, 1, 0]


def test_a_mean_colour_tells_no_occasion() -> None:
    look = F.normalize(torch.rand(20, 3, generator=generator(0, "colours")))
    found = occasions.groups(look, unknown(20), torch.zeros(20, dtype=torch.long), torch.arange(20))
    assert torch.equal(found, torch.arange(20))


def test_what_resembles_another_photo_of_its_class_is_found() -> None:
    look, labels = scenes()
    first = torch.arange(len(labels)) % COPIES == 0
    others = first & (torch.arange(len(labels)) < SCENES * COPIES)  # one photo of each scene of class 0
    found = occasions.resembles(look[~first], labels[~first], look[others], labels[others])
    assert torch.equal(found, labels[~first] == 0)
