"""Report on the held-out photos of a model: accuracy with its interval, confusions, reliability."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from triphase.app.model import Model
from triphase.app.proportion import Proportion

BINS = 10


@dataclass(frozen=True)
class HeldOut:
    """The held-out photos of a version, with its answers."""

    names: tuple[str, ...]
    ids: Tensor  # (n,)
    labels: Tensor  # (n,)
    probabilities: Tensor  # (n, classes)
    known: Tensor  # (n,) bool: not answered "unknown"

    @classmethod
    def of(cls, model: Model) -> HeldOut:
        """The held-out photos and answers of a model, from its stored data."""
        ids, y, stored = model.exemplars()
        names = tuple(model.names)
        if len(ids) == 0:
            return cls(names, ids, y, torch.empty(0, len(names)), torch.empty(0, dtype=torch.bool))
        kept, f = model.exemplar_features
        all_kept = f.numel() > 0 and torch.equal(kept, ids)
        logits, ood_scores = model.scores(model.latents_of(stored), f.float() if all_kept else None)
        calibration = model.calibration
        return cls(names, ids, y, calibration.probabilities(logits), calibration.accepts(ood_scores))

    @property
    def answers(self) -> Tensor:
        """(n,): the class that fits best, whether or not the answer would be "unknown"."""
        return self.probabilities.argmax(1) if len(self.ids) else self.labels

    @property
    def correct(self) -> Tensor:
        """(n,) bool"""
        return self.answers == self.labels

    def accuracy(self, label: int | None = None) -> Proportion:
        """Of one class, or of all."""
        correct = self.correct if label is None else self.correct[self.labels == label]
        return Proportion.of(int(correct.sum()), len(correct))


@dataclass(frozen=True)
class Confusion:
    """Held-out photos of one class that are classified as another."""

    name: str
    taken_for: str
    ids: tuple[int, ...]
    n: int  # held-out photos of the class


def confusion_matrix(held_out: HeldOut) -> list[list[int]]:
    """Held-out photos by class (rows) and answer (columns), both in the order of `names`."""
    n = len(held_out.names)
    counts = torch.bincount(held_out.labels * n + held_out.answers, minlength=n * n)
    matrix: list[list[int]] = counts.view(n, n).tolist()
    return matrix


def confusions(held_out: HeldOut) -> list[Confusion]:
    """Pairs of confused classes, the most frequent first, with the photos."""
    y, answers, names = held_out.labels, held_out.answers, held_out.names
    pairs = torch.stack([y, answers], 1)[y != answers].unique(dim=0)
    found = [
        Confusion(
            names[label],
            names[answer],
            tuple(held_out.ids[(y == label) & (answers == answer)].tolist()),
            int((y == label).sum()),
        )
        for label, answer in pairs.tolist()
    ]
    return sorted(found, key=lambda c: (-len(c.ids), c.name, c.taken_for))


@dataclass(frozen=True)
class ReliabilityBin:
    """Held-out photos with a probability in one range: how sure the model is, and how often it is right."""

    low: float
    high: float
    probability: float | None  # mean; None where there is no photo
    accuracy: Proportion


def reliability(held_out: HeldOut) -> list[ReliabilityBin]:
    """A reliability diagram over bins of equal width, for the class that fits best."""
    best = held_out.probabilities.amax(1) if len(held_out.ids) else torch.empty(0)
    place = (best * BINS).long().clamp(max=BINS - 1)
    found = []
    for i in range(BINS):
        here = place == i
        accuracy = Proportion.of(int(held_out.correct[here].sum()), int(here.sum()))
        probability = float(best[here].mean()) if accuracy.n else None
        found.append(ReliabilityBin(i / BINS, (i + 1) / BINS, probability, accuracy))
    return found


def expected_calibration_error(bins: list[ReliabilityBin]) -> float | None:
    """The mean gap between probability and accuracy, weighted by photos; None without photos."""
    gaps = [
        b.accuracy.n * abs(b.accuracy.share - b.probability)
        for b in bins
        if b.accuracy.share is not None and b.probability is not None
    ]
    return sum(gaps) / sum(b.accuracy.n for b in bins) if gaps else None
