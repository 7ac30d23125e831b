"""Streaming linear discriminant analysis on features of a frozen network: no gradient, one pass.

Hayes and Kanan, "Lifelong Machine Learning with Deep Streaming Linear Discriminant Analysis". Sums are kept in
place of running means, so the result does not depend on the order of the images, and images can be removed.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor

from triphase.context import Context
from triphase.data.feature_cache import features, latents, pack, unpack
from triphase.data.latent_crops import crop_latents, middle_crops
from triphase.data.memory import Memory
from triphase.data.recipe import Recipe
from triphase.data.streams import Experience
from triphase.errors import BadData, CorruptState, InvalidValue
from triphase.learners.frozen import extract_features, freeze_backbone, including, latent_features
from triphase.learners.protocol import Tick, ignore
from triphase.learners.training import (
    TrainingLoop,
    drop_label,
    eval_mode,
    learner_state,
    load_learner_state,
    mask_unseen,
    set_trainable,
)
from triphase.maths.mahalanobis import mahalanobis, relative_mahalanobis
from triphase.models import SplitClassifier, placed
from triphase.models.inference import Ensemble, Member, Whitening
from triphase.models.split import drop_row, pad_rows
from triphase.scoring import whiten

CROP_WEIGHT = 0.5  # of what a crop changes, beside the difference between photos
CROPPED_AT_ONCE = 256  # latents


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
        crops: bool = False,  # the covariance counts what a crop of the feature map changes
        context: Context | None = None,
    ) -> None:
        if not 0 < shrinkage <= 1:
            raise InvalidValue(f"shrinkage must be above 0 and at most 1, got {shrinkage}.")
        self.context = Context() if context is None else context
        self.model, self.memory, self.seed, self.pretrained = placed(model, self.context), None, seed, pretrained
        self.feature_model = model  # its csf computes the features
        self.shrinkage, self.crops = shrinkage, crops
        self.settings = {"learner": "slda", "seed": seed, "pretrained": pretrained, "shrinkage": shrinkage}
        self.settings |= {"crops": True} if crops else {}
        self.known: set[int] = set()
        self.loop = TrainingLoop(context=self.context)
        self.products = torch.zeros(0, 0, dtype=torch.float64)  # sum of f f^T, (D, D) once there are features
        self.sums = torch.zeros(model.n_classes, 0, dtype=torch.float64)
        self.counts = torch.zeros(model.n_classes, dtype=torch.float64)
        self._solution: tuple[Tensor, Tensor, Tensor] | None = None  # of the sums as they are
        self._white_means: Tensor | None = None  # of the classes that have images, whitened
        self._whitening: Whitening | None = None  # the same for inference
        self._half: Tensor | None = None  # of the products, as they are saved

    @property
    def closed_form(self) -> SLDA:
        """Itself: every answer is in closed form."""
        return self

    @property
    def n_features(self) -> int:
        """D; before the first features, the most that it can be."""
        return len(self.products) or self.feature_model.n_features

    @property
    def has_covariance(self) -> bool:
        """The classes share Sigma."""
        return True

    @property
    def means(self) -> Tensor:
        """(n_classes, D)"""
        return self.sums / self.counts.clamp(min=1).unsqueeze(1)

    def learn(self, experience: Experience, recipe: Recipe, tick: Tick = ignore) -> None:
        """Add the features to the sums."""
        train = not self.known and not self.pretrained
        freeze_backbone(self.model, self.loop, experience, recipe, tick, train=train, seed=self.seed)
        images = experience.training
        f = extract_features(self.feature_model, images, self.context)
        self.add(f, images.labels)
        if self.crops:
            self.count_crops(latents(self.model, images, context=self.context), f)
        self.model.grow(len(self.counts))
        self.known |= set(experience.classes)
        self.loop.finish()

    def add(self, f: Tensor, y: Tensor) -> None:
        """Count features (n, D) of classes y."""
        self._count(f, y, 1.0)

    def remove(self, f: Tensor, y: Tensor) -> None:
        """Take features (n, D) of classes y out of the sums again."""
        self._count(f, y, -1.0)

    def count_crops(self, z: Tensor, f: Tensor, weight: float = 1.0) -> None:
        """Count what a crop changes in the features f of packed latents z, as variance within classes.

        Photos of a class are few, and another crop of an object does not change its class. A negative weight takes
        it out again; without `crops` nothing is counted.
        """
        for rows in torch.arange(len(z)).split(CROPPED_AT_ONCE) if self.crops and len(z) else ():
            whole = unpack(z[rows].float())
            cropped = crop_latents(self.feature_model.csf, whole, middle_crops)
            if cropped is not whole:
                with eval_mode(self.feature_model):
                    found = features(self.feature_model, pack(cropped).unsqueeze(1), self.context)[:, 0]
                change = found.double() - f[rows].double()
                self.products = torch.addmm(self.products, change.T, change, alpha=weight * CROP_WEIGHT)
        self._changed()

    def drop_class(self, label: int) -> None:
        """Forget a class; later labels move down by one. Its images stay in the covariance until `reestimate`."""
        self.model.drop_class(label)
        self.sums, self.counts = drop_row(self.sums, label), drop_row(self.counts, label)
        self.known = drop_label(self.known, label)
        self._changed()

    def reestimate(self, f: Tensor, y: Tensor) -> None:
        """Estimate the covariance within classes again from samples; counts and means stay as they are."""
        f, within = f.double(), torch.zeros_like(self.products)
        for label in y.unique().tolist():
            centred = f[y == label] - f[y == label].mean(0)
            within = within + centred.T @ centred
        weight = float(self.counts.sum()) / max(len(f), 1)
        means = self.means
        self.products = weight * within + (means * self.counts.unsqueeze(1)).T @ means
        self._changed()

    def rescale(self, z: Tensor) -> None:
        """Nothing to do: the scores have no scale that was fitted."""

    def logits(self, z: Tensor) -> Tensor:
        """Scores of latents."""
        return self.scores(self.features(z))

    def features(self, z: Tensor) -> Tensor:
        """(n, D): csf of latents."""
        return latent_features(self.feature_model, z, self.context)

    def scores(self, f: Tensor) -> Tensor:
        """(n, n_classes): log-likelihoods up to what all classes share; -inf for classes never seen."""
        if len(self.products) == 0:
            return f.new_full((len(f), self.model.n_classes), float("-inf"))
        _, W, b = self.solution
        return mask_unseen(f @ W.T.to(f) + b.to(f), self.known)

    def distances(self, f: Tensor) -> Tensor:
        """(n, 2) float64: relative and absolute Mahalanobis scores (minus squared distances)."""
        counted = self.counts > 0
        if not bool(counted.any()):
            return torch.full((len(f), 2), -float("inf"), dtype=torch.float64)
        factor, _, _ = self.solution
        if self._white_means is None:
            self._white_means = whiten(self.means[counted], factor)
        white, means = whiten(f, factor), self._white_means
        return torch.stack([relative_mahalanobis(white, means), mahalanobis(white, means)], 1)

    def inference(self, extra: tuple[Tensor, Tensor] | None = None) -> Ensemble:
        """The solved discriminant as it answers, in single precision; `extra` is counted in the result only."""
        if extra is not None:
            return including(self, *extra).inference()
        factor, W, b = self.solution
        n, counted = max(self.known) + 1, self.counts > 0
        if self._whitening is None:
            self._whitening = Whitening.of(factor, self.means[counted])
        csf = copy.deepcopy(self.feature_model.csf)
        return Ensemble([Member(csf, W[:n].contiguous(), b[:n].contiguous(), whitening=self._whitening)])

    def state_dict(self) -> dict[str, Any]:
        """Everything from which `learn` continues."""
        state = learner_state(self.settings, self.model, None, self.known, self.loop)
        if self._half is None:
            rows, columns = torch.tril_indices(*self.products.shape)
            self._half = self.products[rows, columns]  # it is symmetric; the same tensor while nothing changes
        return state | {"statistics": {"products": self._half, "sums": self.sums, "counts": self.counts}}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a saved state."""
        self.known = load_learner_state(state, self.model, None, self.loop)
        if self.known:
            set_trainable(self.model, llf=False, csf=False)
        statistics = state["statistics"]
        self.sums, self.counts, half = statistics["sums"], statistics["counts"], statistics["products"]
        D = self.sums.shape[1]
        if half.shape != (D * (D + 1) // 2,):
            raise CorruptState(f"Statistics of {D} features do not have {tuple(half.shape)} products.")
        rows, columns = torch.tril_indices(D, D)
        self.products = self.sums.new_zeros(D, D)
        self.products[rows, columns] = self.products[columns, rows] = half
        self._changed()
        self._half = half

    @property
    def solution(self) -> tuple[Tensor, Tensor, Tensor]:
        """The Cholesky factor of Sigma, W_c = Sigma^-1 mu_c and b_c = - mu_c W_c / 2; solved at the first use."""
        if self._solution is None:
            sigma, means = self.covariance(), self.means
            if not bool(sigma.sum().isfinite()):
                raise CorruptState("The statistics of discriminant analysis hold values that are no numbers.")
            factor = cholesky(sigma)
            W = torch.cholesky_solve(means.T, factor).T
            self._solution = factor, W.float(), -(means * W).sum(1).float() / 2
        return self._solution

    def covariance(self) -> Tensor:
        """Sigma, (D, D); computed in one pass, since D can be thousands."""
        means, D, total = self.means, len(self.products), float(self.counts.sum().clamp(min=1))
        weighted = self.counts.unsqueeze(1) * means
        size = float(self.products.trace()) / (D * total)
        scale = size - float((weighted * means).sum()) / (D * total)  # tr(S) / D
        if scale <= 1e-12 * max(size, 1.0):  # one image of each class has no variance within it
            scale = 1.0
        share = (1 - self.shrinkage) / total
        sigma = torch.addmm(self.products, weighted.T, means, beta=share, alpha=-share)
        sigma.diagonal().add_(self.shrinkage * scale)
        return sigma

    def _count(self, f: Tensor, y: Tensor, weight: float) -> None:
        f, D = f.double(), f.shape[1]
        if len(self.products) == 0:
            self.products, self.sums = self.products.new_zeros(D, D), self.sums.new_zeros(len(self.counts), D)
        n = max(len(self.counts), self.model.n_classes, int(y.max()) + 1)
        ones = torch.ones(len(y), dtype=torch.float64)
        self.products = torch.addmm(self.products, f.T, f, alpha=weight)
        self.sums = pad_rows(self.sums, n).index_add(0, y, f, alpha=weight)
        self.counts = pad_rows(self.counts, n).index_add(0, y, ones, alpha=weight)
        self._changed()

    def _changed(self) -> None:
        self._solution = self._white_means = self._whitening = self._half = None


def cholesky(sigma: Tensor) -> Tensor:
    """The lower factor of a covariance, with a little more variance where rounding left a direction without any."""
    if not bool(sigma.isfinite().all()):  # no ridge would ever help
        raise BadData("The features of the network are not finite: check its weights.")
    factor: Tensor
    factor, failed = torch.linalg.cholesky_ex(sigma)
    ridge = 1e-12 * sigma.diagonal().abs().mean()
    while failed:
        ridge *= 10
        factor, failed = torch.linalg.cholesky_ex(sigma + ridge * torch.eye(len(sigma), dtype=sigma.dtype))
    return factor
