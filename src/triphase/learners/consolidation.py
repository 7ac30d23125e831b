"""Train csf on the whole replay memory, as joint training would on all images."""

from __future__ import annotations

import math

import torch
from torch import nn
from torch.nn import functional as F

from triphase.data.batches import Batches
from triphase.data.images import Images
from triphase.data.recipe import Recipe
from triphase.data.streams import Experience
from triphase.errors import InvalidValue
from triphase.learners.protocol import Tick, ignore
from triphase.learners.tpc import TPC
from triphase.learners.training import set_trainable, sgd_step, zero_unknown_rows_
from triphase.maths import normalize_

LABEL_SMOOTHING = 0.1


def train_on_memory(tpc: TPC, start: nn.Module, recipe: Recipe, tick: Tick = ignore) -> None:
    """Train TPC's csf from the weights of `start`, and its head from zero, on minibatches of the memory.

    A csf that went through many small lessons has fitted each of them in turn; one that starts over sees all
    classes at once. The learning rate falls along a cosine. At the end the head rows are normalised (Eq. 9).
    """
    model, memory, loop = tpc.model, tpc.memory, tpc.loop
    if memory is None or len(memory.slots()) == 0:
        raise InvalidValue("Nothing is stored that csf could be trained on: the memory is empty.")
    if loop.begin("restart"):
        model.csf.load_state_dict(start.state_dict())
        zero_unknown_rows_(model, ())
    batches = Batches(model, _blank(), memory, recipe, seed=tpc.seed, context=tpc.context)
    if loop.begin("consolidate"):
        _train(tpc, batches, recipe, tick)
    normalize_(model.head.weight, tpc.known, tpc.s)
    loop.finish()


def _train(tpc: TPC, batches: Batches, recipe: Recipe, tick: Tick) -> None:
    model, loop = tpc.model, tpc.loop
    model.train()
    set_trainable(model, llf=False, csf=True)
    optimizer = loop.optimizer(model, recipe)
    positions = loop.steps(recipe.epochs, batches.n_balanced)
    for (epoch, step), mb in zip(positions, batches.balanced(positions), strict=True):
        progress = (epoch + step / batches.n_balanced) / recipe.epochs
        for group in optimizer.param_groups:
            group["lr"] = group["initial_lr"] * (1 + math.cos(math.pi * progress)) / 2
        loss = F.cross_entropy(model.tail(mb.z), mb.y, label_smoothing=LABEL_SMOOTHING)
        tick(loop.step_done(sgd_step(optimizer, loss, mb.share)))


def _blank() -> Experience:
    """An experience of one blank image, which no minibatch draws: all of them come from the memory."""
    return Experience(1, Images.from_array(torch.zeros(1, 3, 1, 1, dtype=torch.uint8), torch.zeros(1)))
