"""Plain fine-tuning with cross-entropy, the lower bound; with a memory, experience replay.

The shortest learner that trains by gradient: copy this file to write a new one (docs/add-a-learner.md).
"""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.nn import functional as F

from triphase.context import Context
from triphase.data.batches import Batches
from triphase.data.memory import Memory
from triphase.data.recipe import Recipe
from triphase.data.streams import Experience
from triphase.learners.checks import check_memory
from triphase.learners.protocol import Tick, ignore
from triphase.learners.training import (
    TrainingLoop,
    learner_state,
    load_learner_state,
    predict,
    set_trainable,
    sgd_step,
)
from triphase.models import SplitClassifier, placed


class FineTune:
    """Minimises the cross-entropy of what it is given (Eq. 4; with a memory Eq. 5); the head may have a bias."""

    def __init__(
        self,
        model: SplitClassifier,
        memory: Memory | None = None,
        *,
        seed: int = 0,
        pretrained: bool = True,  # False: llf learns in the first experience
        context: Context | None = None,
    ) -> None:
        self.context = Context() if context is None else context
        self.model, self.memory, self.seed, self.pretrained = placed(model, self.context), memory, seed, pretrained
        name = "finetune" if memory is None else "replay"
        self.settings = {"learner": name, "seed": seed, "pretrained": pretrained}
        self.known: set[int] = set()
        self.loop = TrainingLoop(context=self.context)

    def learn(self, experience: Experience, recipe: Recipe, tick: Tick = ignore) -> None:
        """Train csf and head on the experience, beside replayed samples if there is a memory."""
        model, memory, loop = self.model, self.memory, self.loop
        first = not self.known
        seen = self.known | set(experience.classes)

        if loop.begin("start"):
            check_memory(memory, recipe, len(seen))
            model.grow(max(seen) + 1)
        model.train()
        set_trainable(model, llf=recipe.trainable == "all" or (first and not self.pretrained), csf=True)
        batches = Batches(model, experience, memory, recipe, seed=self.seed, context=self.context)

        if loop.begin("train"):
            optimizer = loop.optimizer(model, recipe)
            for mb in batches.mixed(loop.steps(recipe.epochs, batches.n_mixed)):
                loss = sgd_step(optimizer, F.cross_entropy(model.tail(mb.z), mb.y), mb.share)
                tick(loop.step_done(loss))

        set_trainable(model, llf=False, csf=True)
        if memory is not None:
            batches.update_memory()
        self.known = seen
        loop.finish()

    def logits(self, z: Tensor) -> Tensor:
        """Scores over the classes seen so far."""
        return predict(self.model, z, self.known)

    def state_dict(self) -> dict[str, Any]:
        """Everything from which `learn` continues."""
        return learner_state(self.settings, self.model, self.memory, self.known, self.loop)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a saved state."""
        self.known = load_learner_state(state, self.model, self.memory, self.loop)
