"""Streaming linear discriminant analysis on features of a frozen network: no gradient, one pass.

Hayes and Kanan, "Lifelong Machine Learning with Deep Streaming Linear Discriminant Analysis". Sums are kept in
place of running means, so the result does not depend on the order of the images, and images can be taken out.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor

from triphase.context import Context
from triphase.data.memory import Memory
from triphase.data.recipe import Recipe
from triphase.data.streams import Experience
from triphase.errors import CorruptState, InvalidValue
from triphase.learners.frozen import extract, scores, settle
from triphase.learners.protocol import Tick, ignore, learn_blocks, only
from triphase.learners.training import TrainingLoop, learner_state, load_learner_state
from triphase.models import SplitClassifier
from triphase.models.split import longer


class SLDA:
    """Gaussian classes with one covariance, shrunk towards a multiple of the identity.

    Sigma = (1 - shrinkage) S + shrinkage tr(S) / D I, where S is the covariance within classes.
    """

    def __init__(
        self,
        model: SplitClassifier,
        memory: Memory | None = None,
        *,
        seed: int = 0,
        pretrained: bool = True,  # False: the network is trained on the first experience
        shrinkage: float = 0.2,
        context: Context | None = None,
    ) -> None:
        if not 0 < shrinkage <= 1:
            raise InvalidValue(f"shrinkage must be above 0 and at most 1, got {shrinkage}.")
        self.context = Context() if context is None else context
        self.model, self.memory, self.seed, self.pretrained = model, None, seed, pretrained
        self.reader = model  # what makes the features
        self.shrinkage = shrinkage
        self.settings = {"learner": "slda", "seed": seed, "pretrained": pretrained, "shrinkage": shrinkage}
        self.known: set[int] = set()
        self.loop = TrainingLoop(context=self.context)
        self.products = torch.zeros(0, 0, dtype=torch.float64)  # sum of f f^T, (D, D) once there are features
        self.sums = torch.zeros(model.n_classes, 0, dtype=torch.float64)
        self.n = torch.zeros(model.n_classes, dtype=torch.float64)
        self._solution: tuple[Tensor, Tensor, Tensor] | None = None  # of the sums as they are
        self._half: Tensor | None = None  # of the products, as they are saved

    def learn(self, experience: Experience, recipe: Recipe, tick: Tick = ignore) -> None:
        """Add the features to the sums."""
        train = not self.known and not self.pretrained
        settle(self.model, self.loop, experience, recipe, tick, train=train, seed=self.seed)
        images = experience.training
        self.add(extract(self.reader, images, self.context), images.labels)
        self.model.grow(len(self.n))
        self.known |= set(experience.classes)
        self.loop.finish()

    def add(self, f: Tensor, y: Tensor, weight: float = 1.0) -> None:
        """Count features (n, D) of classes y; a weight of -1 takes them out again."""
        f, D = f.double(), f.shape[1]
        if len(self.products) == 0:
            self.products, self.sums = self.products.new_zeros(D, D), self.sums.new_zeros(len(self.n), D)
        n = max(len(self.n), self.model.n_classes, int(y.max()) + 1)
        self.products = torch.addmm(self.products, f.T, f, alpha=weight)
        self.sums = longer(self.sums, n).index_add(0, y, f, alpha=weight)
        self.n = longer(self.n, n).index_add(0, y, torch.ones(len(y), dtype=torch.float64), alpha=weight)
        self._changed()

    def without(self, f: Tensor, y: Tensor) -> SLDA:
        """Another one that has not seen these features."""
        other = copy.copy(self)  # sums are replaced, never changed in place
        other.add(f, y, weight=-1.0)
        return other

    def rebuild(self, f: Tensor, y: Tensor) -> None:
        """Replace the spread within classes by that of some samples; counts and means stay as they are."""
        f, spread = f.double(), torch.zeros_like(self.products)
        for label in y.unique().tolist():
            centred = f[y == label] - f[y == label].mean(0)
            spread = spread + centred.T @ centred
        weight = float(self.n.sum()) / max(len(f), 1)
        means = self.means
        self.products = weight * spread + (means * self.n.unsqueeze(1)).T @ means
        self._changed()

    def logits(self, z: Tensor, f: Tensor | None = None) -> Tensor:
        """Log-likelihood of each class, up to what all classes share; f are the features of z, where known."""
        f = scores(self.reader, z) if f is None else f
        if len(self.products) == 0:
            return f.new_full((len(f), self.model.n_classes), float("-inf"))
        _, W, b = self.solution
        return only(self.known, f @ W.T.to(f) + b.to(f))

    def state_dict(self) -> dict[str, Any]:
        """Everything from which `learn` continues."""
        state = learner_state(self.settings, self.model, None, self.known, self.loop)
        if self._half is None:
            rows, columns = torch.tril_indices(*self.products.shape)
            self._half = self.products[rows, columns]  # it is symmetric; the same tensor while nothing changes
        return state | {"statistics": {"products": self._half, "sums": self.sums, "n": self.n}}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a saved state."""
        self.known = load_learner_state(state, self.model, None, self.loop)
        if self.known:
            learn_blocks(self.model, llf=False, csf=False)
        statistics = state["statistics"]
        self.sums, self.n, half = statistics["sums"], statistics["n"], statistics["products"]
        D = self.sums.shape[1]
        if half.shape != (D * (D + 1) // 2,):
            raise CorruptState(f"Statistics of {D} features do not have {tuple(half.shape)} products.")
        rows, columns = torch.tril_indices(D, D)
        self.products = self.sums.new_zeros(D, D)
        self.products[rows, columns] = self.products[columns, rows] = half
        self._changed()
        self._half = half

    @property
    def means(self) -> Tensor:
        """(n_classes, D)"""
        return self.sums / self.n.clamp(min=1).unsqueeze(1)

    @property
    def solution(self) -> tuple[Tensor, Tensor, Tensor]:
        """The Cholesky factor of Sigma, W_c = Sigma^-1 mu_c and b_c = - mu_c W_c / 2; solved when asked for."""
        if self._solution is None:
            sigma, means = self.covariance(), self.means
            if not bool(sigma.sum().isfinite()):
                raise CorruptState("The statistics of discriminant analysis hold values that are no numbers.")
            factor, failed = torch.linalg.cholesky_ex(sigma)
            ridge = 1e-12 * sigma.diagonal().abs().mean()
            while failed:  # rounding left no spread in some direction
                ridge *= 10
                factor, failed = torch.linalg.cholesky_ex(sigma + ridge * torch.eye(len(sigma), dtype=sigma.dtype))
            W = torch.cholesky_solve(means.T, factor).T
            self._solution = factor, W.float(), -(means * W).sum(1).float() / 2
        return self._solution

    def whiten(self, f: Tensor) -> Tensor:
        """(n, D): coordinates in which Sigma is the identity, so that squared distances are Mahalanobis's."""
        white: Tensor = torch.linalg.solve_triangular(self.solution[0], f.double().T, upper=False)
        return white.T

    def covariance(self) -> Tensor:
        """Sigma, (D, D); made in one pass, since D can be thousands."""
        means, D, total = self.means, len(self.products), float(self.n.sum().clamp(min=1))
        weighted = self.n.unsqueeze(1) * means
        size = float(self.products.trace()) / (D * total)
        scale = size - float((weighted * means).sum()) / (D * total)  # tr(S) / D
        if scale <= 1e-12 * max(size, 1.0):  # one image of each class has no spread of its own
            scale = 1.0
        share = (1 - self.shrinkage) / total
        sigma = torch.addmm(self.products, weighted.T, means, beta=share, alpha=-share)
        sigma.diagonal().add_(self.shrinkage * scale)
        return sigma

    def _changed(self) -> None:
        self._solution = self._half = None
