"""RanPAC: ridge regression on random projections of features of a frozen network: no gradient, one pass.

McDonnell et al., "RanPAC: Random Projections and Pre-trained Models for Continual Learning", without its optional
first-session training. The ridge is chosen on the first images, a first experience or as many as make 500, where
theirs is chosen on each task: classes that come one by one give nothing to choose by, nor do a few images.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from triphase.context import Context
from triphase.data.memory import Memory
from triphase.data.recipe import Recipe
from triphase.data.streams import Experience
from triphase.errors import CorruptState, InvalidValue
from triphase.learners.frozen import extract_features, freeze_backbone, latent_features
from triphase.learners.protocol import Tick, ignore
from triphase.learners.training import TrainingLoop, learner_state, load_learner_state, mask_unseen, set_trainable
from triphase.models import SplitClassifier, placed
from triphase.models.split import pad_rows
from triphase.randomness import generator

RIDGES = [10.0**k for k in range(-8, 9)]
MAX_RIDGE_IMAGES = 2000  # that the ridge is chosen on, at most
MIN_RIDGE_IMAGES = 500  # the ridge is chosen again with each experience until that many have arrived


class RanPAC:
    """Scores are h W with h = relu(f P), P random and fixed, and W = (sum h^T h + ridge I)^-1 sum h^T onehot(y).

    It is no `ClosedForm`: the Gram matrix sum h^T h mixes all classes, so no class can be dropped from it.
    """

    def __init__(
        self,
        model: SplitClassifier,
        memory: Memory | None = None,
        *,
        seed: int = 0,
        pretrained: bool = True,  # False: the network is trained on the first experience
        n_projected: int = 4000,
        ridge: float | None = None,  # None: chosen on the first images
        context: Context | None = None,
    ) -> None:
        if n_projected < 1 or (ridge is not None and ridge <= 0):
            raise InvalidValue(f"n_projected and ridge must be above 0, got {n_projected} and {ridge}.")
        self.context = Context() if context is None else context
        self.model, self.memory, self.seed, self.pretrained = placed(model, self.context), None, seed, pretrained
        self.settings = {"learner": "ranpac", "seed": seed, "pretrained": pretrained}
        self.settings |= {"n_projected": n_projected, "ridge": ridge}
        self.known: set[int] = set()
        self.loop = TrainingLoop(context=self.context)
        self.ridge = ridge
        self.ridge_images: tuple[Tensor, Tensor] | None = None  # features and classes that the ridge is chosen on
        if ridge is None:
            self.ridge_images = torch.empty(0, model.n_features), torch.empty(0, dtype=torch.long)
        self.P = torch.randn(model.n_features, n_projected, generator=generator(seed, "ranpac"))
        self.G = torch.zeros(n_projected, n_projected)
        self.C = torch.zeros(model.n_classes, n_projected)
        self.W = torch.zeros_like(self.C)

    def learn(self, experience: Experience, recipe: Recipe, tick: Tick = ignore) -> None:
        """Add the projected features to the statistics, and solve."""
        train = not self.known and not self.pretrained
        freeze_backbone(self.model, self.loop, experience, recipe, tick, train=train, seed=self.seed)
        images = experience.training
        self.add(extract_features(self.model, images, self.context), images.labels)
        self.model.grow(len(self.C))
        self.known |= set(experience.classes)
        self.loop.finish()

    def add(self, f: Tensor, y: Tensor) -> None:
        """Count features (n, D) of classes y."""
        h = F.relu(f @ self.P)
        if self.ridge_images is not None:
            f, labels = (torch.cat(pair) for pair in zip(self.ridge_images, (f, y), strict=True))
            self.ridge = self._choose_ridge(F.relu(f @ self.P), labels)
            self.ridge_images = (f, labels) if len(labels) < MIN_RIDGE_IMAGES else None
        n = max(len(self.C), self.model.n_classes, int(y.max()) + 1)
        self.G = torch.addmm(self.G, h.T, h)
        self.C = pad_rows(self.C, n).index_add(0, y, h)
        self.W = self._solve()

    def logits(self, z: Tensor) -> Tensor:
        """Regressed one-hot labels."""
        f = latent_features(self.model, z, self.context)
        return mask_unseen(F.relu(f @ self.P.to(f)) @ self.W.T.to(f), self.known)

    def state_dict(self) -> dict[str, Any]:
        """Everything from which `learn` continues."""
        state = learner_state(self.settings, self.model, None, self.known, self.loop)
        state |= {"projection": {"P": self.P}}
        if self.ridge_images is not None:
            state |= {"ridge_images": dict(zip(("f", "y"), self.ridge_images, strict=True))}
        return state | {"statistics": {"G": self.G, "C": self.C, "ridge": self.ridge}}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a saved state."""
        self.known = load_learner_state(state, self.model, None, self.loop)
        if self.known:
            set_trainable(self.model, llf=False, csf=False)
        self.P, statistics = state["projection"]["P"], state["statistics"]
        self.G, self.C, self.ridge = statistics["G"], statistics["C"], statistics["ridge"]
        self.ridge_images = None
        if "ridge_images" in state:
            self.ridge_images = state["ridge_images"]["f"], state["ridge_images"]["y"]
        self.W = self._solve()

    def _solve(self) -> Tensor:
        if self.ridge is None:
            return torch.zeros_like(self.C)
        if not bool(self.G.sum().isfinite()):
            raise CorruptState("The statistics of RanPAC hold values that are no numbers: the network diverged.")
        ridge, eye = self.ridge, torch.eye(len(self.G))
        factor, failed = torch.linalg.cholesky_ex(self.G + ridge * eye)
        while failed:  # too small for single precision: take the smallest that is not
            ridge *= 10
            factor, failed = torch.linalg.cholesky_ex(self.G + ridge * eye)
        return torch.cholesky_solve(self.C.T, factor).T.contiguous()

    def _choose_ridge(self, h: Tensor, y: Tensor) -> float:
        """The ridge with the least squared error on a fifth of the images, in the dual (images x images) form."""
        order = torch.randperm(len(h), generator=generator(self.seed, "ridge"))[:MAX_RIDGE_IMAGES]
        n_val = len(order) // 5
        if n_val == 0:
            return 1.0
        h, target = h[order].double(), F.one_hot(y[order]).double()
        values, vectors = torch.linalg.eigh(h[n_val:] @ h[n_val:].T)
        left, right = h[:n_val] @ h[n_val:].T @ vectors, vectors.T @ target[n_val:]
        values = values.clamp(min=0).unsqueeze(1)
        errors = [float((left @ (right / (values + ridge)) - target[:n_val]).square().mean()) for ridge in RIDGES]
        return RIDGES[errors.index(min(errors))]
