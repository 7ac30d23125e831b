"""Joint training, the upper bound: everything seen so far, all at once, from the initial weights."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from triphase.context import Context
from triphase.data.batches import Batches
from triphase.data.images import Images, concatenate
from triphase.data.memory import Memory
from triphase.data.recipe import Recipe
from triphase.data.streams import Experience
from triphase.learners.protocol import Tick, ignore
from triphase.learners.training import (
    TrainingLoop,
    blocks_state,
    learner_state,
    load_learner_state,
    predict,
    set_trainable,
    sgd_step,
)
from triphase.models import SplitClassifier, placed


class Joint:
    """Retrains csf and head on all data with plain cross-entropy: no masks, no bias correction, no replay.

    Give it `joint(stream)` for the one number of the paper's dashed lines. To follow a stream, give it a memory
    without limit, `Memory(None)`: each experience is then joined with all before it.
    """

    def __init__(
        self,
        model: SplitClassifier,
        memory: Memory | None = None,
        *,
        seed: int = 0,
        pretrained: bool = True,  # False: llf learns too
        context: Context | None = None,
    ) -> None:
        self.context = Context() if context is None else context
        self.model, self.memory, self.seed, self.pretrained = placed(model, self.context), memory, seed, pretrained
        self.settings = {"learner": "joint", "seed": seed, "pretrained": pretrained}
        self.known: set[int] = set()
        self.loop = TrainingLoop(context=self.context)
        self._initial = copy.deepcopy(blocks_state(model))

    def learn(self, experience: Experience, recipe: Recipe, tick: Tick = ignore) -> None:
        """Start again from the initial weights and train on everything."""
        model, memory, loop = self.model, self.memory, self.loop
        seen = self.known | set(experience.classes)

        if loop.begin("start"):
            for block in ("llf", "csf"):
                getattr(model, block).load_state_dict(self._initial[block])
            model.grow(max(seen) + 1)
            for parameter in model.head.parameters():  # weights, and the bias if there is one
                torch.nn.init.zeros_(parameter)
        model.train()
        set_trainable(model, llf=recipe.trainable == "all" or not self.pretrained, csf=True)
        batches = Batches(model, self._everything(experience), None, recipe, seed=self.seed, context=self.context)

        if loop.begin("train"):
            optimizer = loop.optimizer(model, recipe)
            for mb in batches.mixed(loop.steps(recipe.epochs, batches.n_mixed)):
                loss = sgd_step(optimizer, F.cross_entropy(model.tail(mb.z), mb.y), mb.share)
                tick(loop.step_done(loss))

        set_trainable(model, llf=False, csf=True)
        if memory is not None:
            images = experience.training
            memory.add(images.labels, images.ids, lambda rows: {"x": images.read(rows)})
        self.known = seen
        loop.finish()

    def logits(self, z: Tensor) -> Tensor:
        """Scores over the classes seen so far."""
        return predict(self.model, z, self.known)

    def state_dict(self) -> dict[str, Any]:
        """Everything from which `learn` continues."""
        state = learner_state(self.settings, self.model, self.memory, self.known, self.loop)
        return state | {f"initial_{block}": self._initial[block] for block in ("llf", "csf")}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a saved state."""
        self.known = load_learner_state(state, self.model, self.memory, self.loop)
        self._initial = {block: state[f"initial_{block}"] for block in ("llf", "csf")}

    def _everything(self, experience: Experience) -> Experience:
        if self.memory is None or len(self.memory) == 0:
            return experience
        past = Images.from_array(self.memory["x"], self.memory["y"], self.memory["id"])
        return Experience(experience.index, concatenate([past, experience.training]))
