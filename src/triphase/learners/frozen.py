"""Shared by learners without gradient: features of a frozen network.

They do not score by the network's head, so it may have a bias.
"""

from __future__ import annotations

import copy
from typing import TypeVar

import torch
from torch import Tensor
from torch.nn import functional as F

from triphase.context import Context
from triphase.data.batches import Batches
from triphase.data.feature_cache import csf_features, features, latents
from triphase.data.images import Images
from triphase.data.recipe import Recipe
from triphase.data.streams import Experience
from triphase.learners.protocol import ClosedForm, Tick
from triphase.learners.training import TrainingLoop, eval_mode, set_trainable, sgd_step
from triphase.models import SplitClassifier

Counting = TypeVar("Counting", bound=ClosedForm)


def freeze_backbone(
    model: SplitClassifier,
    loop: TrainingLoop,
    experience: Experience,
    recipe: Recipe,
    tick: Tick,
    *,
    train: bool,
    seed: int,
) -> None:
    """Freeze the network; if it comes without pre-training, first train it on this experience by cross-entropy."""
    if loop.begin("start"):
        model.grow(max(experience.classes) + 1)
    if loop.begin("train") and train:
        model.train()
        set_trainable(model, llf=True, csf=True)
        batches = Batches(model, experience, None, recipe, seed=seed, context=loop.context)
        optimizer = loop.optimizer(model, recipe)
        for mb in batches.mixed(loop.steps(recipe.epochs, batches.n_mixed)):
            loss = sgd_step(optimizer, F.cross_entropy(model.tail(mb.z), mb.y), mb.share)
            tick(loop.step_done(loss))
    set_trainable(model, llf=False, csf=False)


def extract_features(model: SplitClassifier, images: Images, context: Context) -> Tensor:
    """(n, D): csf(llf(x)) of images without augmentation."""
    with eval_mode(model):
        return features(model, latents(model, images, context=context).unsqueeze(1), context)[:, 0]


def without(closed_form: ClosedForm, f: Tensor, y: Tensor) -> ClosedForm:
    """A copy of a closed form that has not counted these features (n, D) of classes y."""
    other = copy.copy(closed_form)  # `remove` replaces its tensors
    other.remove(f, y)
    return other


def including(closed_form: Counting, f: Tensor, y: Tensor) -> Counting:
    """A copy of a closed form that has counted these features (n, D) of classes y as well."""
    other = copy.copy(closed_form)  # `add` replaces its tensors
    other.add(f, y)
    return other


def latent_features(model: SplitClassifier, z: Tensor, context: Context) -> Tensor:
    """(n, D): csf of latents, as `logits` gets them, on the host: that is where closed forms are solved."""
    with eval_mode(model), torch.no_grad():
        return csf_features(model, z.to(model.device).float(), context).cpu()
