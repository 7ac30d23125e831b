"""Latents of the experience and of the memory: which views are kept, and what the memory is given."""

import copy
from dataclasses import replace

import pytest
import torch

from triphase import TPC, Memory
from triphase.context import Context
from triphase.data.batches import Batches
from triphase.data.feature_cache import latents, unpack
from triphase.data.images import Images
from triphase.data.recipe import Recipe
from triphase.data.streams import Experience
from triphase.data.training_latents import TrainingLatents
from triphase.testing import FIRST, REST, tiny_images, tiny_model, tiny_stream


def test_kept_crops_are_drawn_once_and_stay_with_the_memory() -> None:
    recipe = replace(REST, augment="crop+flip", views=3)
    learner = TPC(tiny_model(), Memory(12))
    learner.learn(tiny_stream().experiences[0], recipe)
    assert learner.memory is not None
    before = dict(zip(learner.memory["id"].tolist(), learner.memory["views"], strict=True))
    learner.learn(tiny_stream().experiences[1], recipe)
    after = dict(zip(learner.memory["id"].tolist(), learner.memory["views"], strict=True))
    kept = before.keys() & after.keys()
    assert len(kept) > 3 and all(torch.equal(before[i], after[i]) for i in kept)
    assert all(views.shape[0] == 3 and len(views.flatten(1).unique(dim=0)) > 1 for views in after.values())


def test_kept_crops_resume_bit_for_bit_and_may_begin_later() -> None:
    recipe = replace(REST, augment="crop+flip", views=2)
    one, two = tiny_stream().experiences
    learner = TPC(tiny_model(), Memory(12))
    learner.learn(one, recipe)
    saved: list[dict[str, object]] = []
    learner.learn(two, recipe, lambda step: saved.append(copy.deepcopy(learner.state_dict())))
    for state in saved[::3]:
        again = TPC(tiny_model(), Memory(12))
        again.load_state_dict(state)
        again.learn(two, recipe)
        for name, tensor in learner.model.state_dict().items():
            assert torch.equal(again.model.state_dict()[name], tensor)
    mixed = TPC(tiny_model(), Memory(12))
    mixed.learn(one, FIRST)
    mixed.learn(two, recipe)  # what the memory held before gets its crops now
    assert mixed.memory is not None and mixed.memory["views"].shape[:2] == (len(mixed.memory), 2)


@pytest.mark.parametrize(
    ("recipe", "n_views", "keeps_crops"),
    [
        (Recipe(), 1, False),
        (Recipe(augment="flip"), 2, False),
        (Recipe(augment="crop"), 0, False),
        (Recipe(augment="crop", views=3), 3, True),
        (Recipe(augment="flip", views=3), 2, False),
        (Recipe(augment="crop", views=3, latents="off"), 0, False),
    ],
)
def test_a_view_is_kept_if_there_are_finitely_many_or_as_the_recipe_says(
    recipe: Recipe, n_views: int, keeps_crops: bool
) -> None:
    model = tiny_model()
    model.freeze("llf")
    experience = Experience(1, tiny_images())
    kept = TrainingLatents(model, experience.images, None, recipe, experience=1, seed=0, context=Context())
    assert (kept.n_views, kept.keeps_crops) == (n_views, keeps_crops)
    if n_views:
        assert kept.image_views().shape[:2] == (len(experience.images), n_views)
        drawn = kept.draw_views(200, torch.Generator().manual_seed(0))
        assert set(drawn.tolist()) == set(range(n_views))
    model.unfreeze("llf")
    learning = TrainingLatents(model, experience.images, None, recipe, experience=1, seed=0, context=Context())
    assert (learning.n_views, learning.keeps_crops) == (0, False), "no latent stays valid while llf learns"


def test_latents_of_experience_and_memory_without_augmentation_are_those_of_evaluation() -> None:
    model = tiny_model()
    model.freeze("llf")
    for augmentation in ("flip", "crop+flip"):
        memory = Memory(100)
        recipe = Recipe(n_mbe=8, augment=augmentation)
        batches = Batches(model, Experience(1, tiny_images()), memory, recipe, seed=0)
        expected = unpack(latents(model, tiny_images()))
        assert torch.equal(batches.image_latents(torch.tensor([3, 1])), expected[[3, 1]])
        batches.update_memory()
        rows = [int((tiny_images().ids == i).nonzero()) for i in memory["id"]]
        assert torch.equal(batches.memory_latents(torch.arange(len(memory))), expected[rows])


@pytest.mark.parametrize("augmentation", ["rrc+flip", "crop", "flip"])
@pytest.mark.parametrize("views", [0, 2])
def test_without_augmentation_a_larger_image_is_its_centre_whatever_the_augmentation(
    augmentation: str, views: int
) -> None:
    model = tiny_model()
    model.freeze("llf")
    pixels = torch.randint(256, (12, 3, 10, 10), generator=torch.Generator().manual_seed(0)).to(torch.uint8)
    images, memory = Images.from_array(pixels, torch.arange(12) % 4), Memory(8, store="latent")
    recipe = Recipe(n_mbe=4, n_mbr=4, augment=augmentation, views=views)
    batches = Batches(model, Experience(1, images), memory, recipe, seed=0)
    assert torch.equal(batches.image_latents(torch.arange(12)), unpack(latents(model, images)))
    batches.update_memory()
    later = Batches(model, Experience(2, images), memory, recipe, seed=0)
    assert all(mb.z.shape == (8, 6, 6, 6) for mb in later.mixed([(0, 0), (0, 1)])), "stored latents fit new ones"
