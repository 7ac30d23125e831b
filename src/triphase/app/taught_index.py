"""The taught photos of one version, searchable by similarity.

Photos are compared by the cosine between features of the closed form, each feature standardised over the stored
photos; that also compares photos of classes that were never taught.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from triphase.app.model import BATCH, Model, rows_of
from triphase.app.store.checksums import sha256
from triphase.data.feature_cache import unpack
from triphase.data.memory import HELD_OUT

ROWS = 4096  # features that are compared together
LIKENESS_PHOTOS = 2000  # of which the distances within and between classes are measured, at most
UNLIKE = 1.0  # the cosine distance between photos that have nothing in common


@dataclass(frozen=True)
class Neighbour:
    """A taught photo that looks like another one."""

    id: int
    name: str  # of its class
    similarity: float  # cosine: 1 for the same photo, about 0 for photos that have nothing in common
    held_out: bool


class TaughtIndex:
    """What is stored of the taught photos of a version; it never changes, and any number of threads may use it.

    Rows of `ids`, `labels`, `held_out`, `hashes` (n, 2) and `features` (n, D) belong together.
    """

    def __init__(self, model: Model, before: TaughtIndex | None = None) -> None:
        """`before` is the index of another version of this model: features that it has are not computed again."""
        memory = model.memory
        self.names = tuple(model.names)
        # the network that computes the features: those of two indices can be compared if it is the same
        self.reader = sha256(model.learner.inference().reader_state())
        self.ids = self.labels = torch.empty(0, dtype=torch.long)
        self.held_out, self.hashes = torch.empty(0, dtype=torch.bool), torch.empty(0, 2, dtype=torch.long)
        self.features = torch.empty(0, 0, dtype=torch.float16)
        if memory is not None and len(memory):
            self.ids, self.labels = memory["id"], memory["y"]
            self.held_out = memory["split"] == HELD_OUT
            self.hashes = memory.columns.get("hash", torch.stack([self.ids, self.ids], 1))
            known = before if before is not None and before.reader == self.reader else None
            self.features = _features(model, known)
        self._mean, self._std = _moments(self.features)
        self._norms = torch.cat([self._standardised(f).norm(dim=1) for f in self.features.split(ROWS)])

    def __len__(self) -> int:
        return len(self.ids)

    def nearest(self, features: Tensor, k: int = 5, *, without: Sequence[int] = ()) -> list[list[Neighbour]]:
        """For each photo, by its features (n, D), the k most similar taught photos, the most similar first.

        `features` come from `Predictor.features`; ids in `without` are left out, such as the photo's own.
        """
        if len(self) == 0:
            return [[] for _ in features]
        similarities = self._similarities(features)
        similarities[:, torch.isin(self.ids, torch.tensor(list(without), dtype=torch.long))] = -torch.inf
        best = similarities.topk(min(k, len(self)), dim=1)
        return [
            [self._neighbour(row, value) for row, value in zip(rows, values, strict=True) if value > -torch.inf]
            for rows, values in zip(best.indices.tolist(), best.values.tolist(), strict=True)
        ]

    def distances(self, features: Tensor) -> Tensor:
        """(n, n) cosine distances between photos, by their features (n, D): 0 for the same photo."""
        unit = F.normalize(self._standardised(features) if len(self) else features.float())
        return (1 - unit @ unit.T).clamp(min=0)

    def same_class_distance(self) -> float:
        """Halfway from the distance between photos of one class to that from the nearest other, mean over classes.

        With a single class nothing can be compared, and photos count as similar at three quarters of UNLIKE.
        """
        rows = torch.arange(len(self))[:: max(1, -(-len(self) // LIKENESS_PHOTOS))]
        member = F.one_hot(self.labels[rows], len(self.names)).float()  # (photos, classes)
        counts, distances = member.sum(0), self.distances(self.features[rows]).fill_diagonal_(0)
        pairs = counts.unsqueeze(1) * counts - counts.diag()
        means = (member.T @ distances @ member) / pairs  # (classes, classes); NaN where there is no pair
        nearest = means.nan_to_num(torch.inf).fill_diagonal_(torch.inf).amin(1)
        halfway = (means.diagonal() + nearest) / 2
        measured = halfway.isfinite()
        return float(halfway[measured].mean()) if bool(measured.any()) else 0.75 * UNLIKE

    def _similarities(self, features: Tensor) -> Tensor:
        """(n, photos): cosines."""
        unit = F.normalize(self._standardised(features))
        parts = [unit @ self._standardised(f).T for f in self.features.split(ROWS)]
        return torch.cat(parts, 1) / self._norms.clamp(min=1e-12)

    def _standardised(self, features: Tensor) -> Tensor:
        return (features.float() - self._mean) / self._std

    def _neighbour(self, row: int, similarity: float) -> Neighbour:
        name = self.names[int(self.labels[row])]
        return Neighbour(int(self.ids[row]), name, min(1.0, similarity), bool(self.held_out[row]))


def _features(model: Model, known: TaughtIndex | None) -> Tensor:
    """(n, D) in half precision: those of a known index and of the exemplars, and the others from what is stored."""
    memory, ensemble = model.memory, model.inference()
    assert memory is not None
    found = [model.exemplar_features] if model.exemplar_features[1].numel() else []
    found += [(known.ids, known.features)] if known is not None and len(known) else []
    features: Tensor | None = None
    missing = torch.arange(len(memory))
    for ids, f in found:
        features = f.new_empty(len(memory), f.shape[1]) if features is None else features
        rows = rows_of(ids, memory["id"][missing])
        features[missing[rows >= 0]] = f[rows[rows >= 0]]
        missing = missing[rows < 0]
    for slots in missing.split(BATCH) if len(missing) else ():  # ONNX Runtime takes no empty batch
        f = ensemble.features(unpack(model.latents_of(model.stored(slots)).float())).half()
        features = f.new_empty(len(memory), f.shape[1]) if features is None else features
        features[slots] = f
    assert features is not None
    return features


def _moments(features: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of each feature, (D,)."""
    n = max(1, len(features))
    mean = sum((f.double().sum(0) for f in features.split(ROWS)), torch.zeros(features.shape[1]).double()) / n
    squares = sum(
        ((f.double() - mean).square().sum(0) for f in features.split(ROWS)), torch.zeros(features.shape[1]).double()
    )
    return mean.float(), (squares / n).sqrt().clamp(min=1e-6).float()
