"""Nearest class mean on features of a frozen network: no gradient, one pass, nothing stored but the means."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from triphase.context import Context
from triphase.data.memory import Memory
from triphase.data.recipe import Recipe
from triphase.data.streams import Experience
from triphase.learners.frozen import extract, scores, settle
from triphase.learners.protocol import Tick, ignore, learn_blocks, only
from triphase.learners.training import TrainingLoop, learner_state, load_learner_state
from triphase.models import SplitClassifier
from triphase.models.split import longer


class NCM:
    """Takes an image for the class whose mean feature is nearest; features have length 1, as in iCaRL."""

    def __init__(
        self,
        model: SplitClassifier,
        memory: Memory | None = None,
        *,
        seed: int = 0,
        pretrained: bool = True,  # False: the network is trained on the first experience
        context: Context | None = None,
    ) -> None:
        self.context = Context() if context is None else context
        self.model, self.memory, self.seed, self.pretrained = model, None, seed, pretrained
        self.settings = {"learner": "ncm", "seed": seed, "pretrained": pretrained}
        self.known: set[int] = set()
        self.loop = TrainingLoop(context=self.context)
        self.sums = torch.zeros(model.n_classes, model.n_features)
        self.n = torch.zeros(model.n_classes)

    def learn(self, experience: Experience, recipe: Recipe, tick: Tick = ignore) -> None:
        """Add the features to the sums of their classes."""
        model, images = self.model, experience.training
        train = not self.known and not self.pretrained
        settle(model, self.loop, experience, recipe, tick, train=train, seed=self.seed)
        self.add(extract(model, images, self.context), images.labels)
        model.grow(len(self.n))
        self.known |= set(experience.classes)
        self.loop.finish()

    def add(self, f: Tensor, y: Tensor, weight: float = 1.0) -> None:
        """Count features (n, D) of classes y; a weight of -1 takes them out again."""
        n = max(len(self.n), self.model.n_classes, int(y.max()) + 1)
        self.sums = longer(self.sums, n).index_add(0, y, F.normalize(f), alpha=weight)
        self.n = longer(self.n, n).index_add(0, y, torch.ones(len(y)), alpha=weight)

    def logits(self, z: Tensor) -> Tensor:
        """Minus the squared distance to each class mean, up to what all classes share."""
        f = F.normalize(scores(self.model, z))
        means = F.normalize(self.sums).to(f)
        return only(self.known, f @ means.T)

    def state_dict(self) -> dict[str, Any]:
        """Everything from which `learn` continues."""
        state = learner_state(self.settings, self.model, None, self.known, self.loop)
        return state | {"statistics": {"sums": self.sums, "n": self.n}}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a saved state."""
        self.known = load_learner_state(state, self.model, None, self.loop)
        if self.known:
            learn_blocks(self.model, llf=False, csf=False)
        self.sums, self.n = state["statistics"]["sums"], state["statistics"]["n"]
