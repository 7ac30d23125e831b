"""What learners without gradient share: features of a network that no longer moves."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from triphase.data.feeder import Feeder
from triphase.data.images import Images
from triphase.data.latents import features, latents
from triphase.data.recipe import Recipe
from triphase.data.streams import Experience
from triphase.learners.course import Course
from triphase.learners.protocol import Tick, evaluating, learn_blocks, sgd_step
from triphase.models import SplitClassifier


def settle(
    model: SplitClassifier,
    course: Course,
    experience: Experience,
    recipe: Recipe,
    tick: Tick,
    *,
    train: bool,
    seed: int,
) -> None:
    """Freeze the network; if it comes without pre-training, first train it on this experience by cross-entropy."""
    if course.begin("start"):
        model.grow(max(experience.classes) + 1)
    if course.begin("train") and train:
        model.train()
        learn_blocks(model, llf=True, csf=True)
        feeder = Feeder(model, experience, None, recipe, seed=seed)
        optimizer = course.optimizer(model, recipe)
        for mb in feeder.mixed(course.steps(recipe.epochs, feeder.n_mixed)):
            loss = F.cross_entropy(model.tail(mb.z), mb.y)
            sgd_step(optimizer, loss)
            tick(course.took(loss))
    learn_blocks(model, llf=False, csf=False)


def extract(model: SplitClassifier, images: Images) -> Tensor:
    """(n, D): csf(llf(x)) of images without augmentation."""
    with evaluating(model):
        return features(model, latents(model, images).unsqueeze(1))[:, 0]


def scores(model: SplitClassifier, z: Tensor) -> Tensor:
    """(n, D): csf of latents, as `logits` gets them."""
    with evaluating(model), torch.no_grad():
        return model.features(z.to(model.device).float())
