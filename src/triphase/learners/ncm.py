"""Nearest class mean on features of a frozen network: no gradient, one pass, nothing stored but the means."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from triphase.context import Context
from triphase.data.memory import Memory
from triphase.data.recipe import Recipe
from triphase.data.streams import Experience
from triphase.learners.frozen import extract_features, freeze_backbone, including, latent_features
from triphase.learners.protocol import Tick, ignore
from triphase.learners.training import (
    TrainingLoop,
    drop_label,
    learner_state,
    load_learner_state,
    mask_unseen,
    set_trainable,
)
from triphase.models import SplitClassifier, placed
from triphase.models.inference import Ensemble, Member
from triphase.models.split import drop_row, pad_rows


class NCM:
    """Predicts the class with the nearest mean feature; features have unit length, as in iCaRL."""

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
        self.model, self.memory, self.seed, self.pretrained = placed(model, self.context), None, seed, pretrained
        self.settings = {"learner": "ncm", "seed": seed, "pretrained": pretrained}
        self.known: set[int] = set()
        self.loop = TrainingLoop(context=self.context)
        self.sums = torch.zeros(model.n_classes, model.n_features)
        self.counts = torch.zeros(model.n_classes)

    @property
    def has_covariance(self) -> bool:
        """The classes share nothing."""
        return False

    @property
    def closed_form(self) -> NCM:
        """Itself: every answer is in closed form."""
        return self

    @property
    def feature_model(self) -> SplitClassifier:
        """The model whose csf computes the features."""
        return self.model

    @property
    def n_features(self) -> int:
        """D."""
        return self.model.n_features

    def learn(self, experience: Experience, recipe: Recipe, tick: Tick = ignore) -> None:
        """Add the features to the sums of their classes."""
        model, images = self.model, experience.training
        train = not self.known and not self.pretrained
        freeze_backbone(model, self.loop, experience, recipe, tick, train=train, seed=self.seed)
        self.add(extract_features(model, images, self.context), images.labels)
        model.grow(len(self.counts))
        self.known |= set(experience.classes)
        self.loop.finish()

    def add(self, f: Tensor, y: Tensor) -> None:
        """Count features (n, D) of classes y."""
        self._count(f, y, 1.0)

    def remove(self, f: Tensor, y: Tensor) -> None:
        """Take features (n, D) of classes y out of the sums again."""
        self._count(f, y, -1.0)

    def count_crops(self, z: Tensor, f: Tensor, weight: float = 1.0) -> None:
        """Nothing to do: there is no covariance that could count them."""

    def drop_class(self, label: int) -> None:
        """Forget a class; later labels move down by one."""
        self.model.drop_class(label)
        self.sums, self.counts = drop_row(self.sums, label), drop_row(self.counts, label)
        self.known = drop_label(self.known, label)

    def reestimate(self, f: Tensor, y: Tensor) -> None:
        """Nothing to do: the classes share nothing."""

    def rescale(self, z: Tensor) -> None:
        """Nothing to do: the scores have no scale that was fitted."""

    def logits(self, z: Tensor) -> Tensor:
        """Scores of latents."""
        return self.scores(self.features(z))

    def features(self, z: Tensor) -> Tensor:
        """(n, D): csf of latents."""
        return latent_features(self.model, z, self.context)

    def scores(self, f: Tensor) -> Tensor:
        """(n, n_classes): cosines between features and class means; -inf for classes never seen.

        Among vectors of length 1 the largest cosine belongs to the nearest mean.
        """
        means = F.normalize(self.sums).to(f)
        return mask_unseen(F.normalize(f) @ means.T, self.known)

    def distances(self, f: Tensor) -> Tensor:
        """(n, 0): class means alone give no out-of-distribution score."""
        return torch.empty(len(f), 0, dtype=torch.float64)

    def inference(self, extra: tuple[Tensor, Tensor] | None = None) -> Ensemble:
        """The class means in inference form; `extra` is counted in the result only."""
        if extra is not None:
            return including(self, *extra).inference()
        means = F.normalize(self.sums)[: max(self.known) + 1]
        return Ensemble([Member(copy.deepcopy(self.model.csf), means, unit_length=True)])

    def state_dict(self) -> dict[str, Any]:
        """Everything from which `learn` continues."""
        state = learner_state(self.settings, self.model, None, self.known, self.loop)
        return state | {"statistics": {"sums": self.sums, "counts": self.counts}}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a saved state."""
        self.known = load_learner_state(state, self.model, None, self.loop)
        if self.known:
            set_trainable(self.model, llf=False, csf=False)
        self.sums, self.counts = state["statistics"]["sums"], state["statistics"]["counts"]

    def _count(self, f: Tensor, y: Tensor, weight: float) -> None:
        n = max(len(self.counts), self.model.n_classes, int(y.max()) + 1)
        self.sums = pad_rows(self.sums, n).index_add(0, y, F.normalize(f), alpha=weight)
        self.counts = pad_rows(self.counts, n).index_add(0, y, torch.ones(len(y)), alpha=weight)
