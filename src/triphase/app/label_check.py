"""Find taught photos whose label is probably wrong.

Each stored photo is scored by the closed form without it: a few of each class at a time are left out of the
statistics, near-duplicates together. Held-out photos were never in them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from triphase.app import near_duplicates
from triphase.app.calibration import fit_temperature
from triphase.app.taught_index import TaughtIndex
from triphase.learners.frozen import without
from triphase.learners.protocol import ClosedForm
from triphase.learners.slda import SLDA
from triphase.learners.slda_folds import scores_without

FOLDS = 10  # parts that are left out in turn
MIN_OTHERS = 2  # other photos of its class that a photo needs to be scored


@dataclass(frozen=True)
class LeftOut:
    """Stored photos with leave-out answers: those of the closed form without the photo."""

    rows: Tensor  # (n,) of the index
    labels: Tensor  # (n,)
    probabilities: Tensor  # (n, classes)

    @property
    def answers(self) -> Tensor:
        """(n,)"""
        return self.probabilities.argmax(1) if len(self.rows) else self.labels


@dataclass(frozen=True)
class Suspect:
    """A taught photo that looks like another class."""

    id: int
    name: str  # of the class that it was taught as
    looks_like: str
    sure: float  # probability of that class
    own: float  # probability of its own


def leave_out(index: TaughtIndex, closed: ClosedForm | None, folds: int = FOLDS) -> LeftOut:
    """Leave-out answers for stored photos whose class has enough others; none without a closed form.

    Probabilities have a temperature of their own, fitted on these answers.
    """
    scored, scores = torch.zeros(len(index), dtype=torch.bool), torch.empty(len(index), len(index.names))
    if closed is not None and len(index):
        out = index.held_out.nonzero().view(-1)  # never counted
        parts = _parts(index, folds)
        scored[out] = _has_enough_others(closed.counts, index.labels[out])
        scores[out] = closed.scores(index.features[out].float())[:, : len(index.names)]
        for part, found in zip(parts, _scores_without(index, closed, parts), strict=True):
            others = closed.counts - torch.bincount(index.labels[part], minlength=len(closed.counts))
            scored[part] = _has_enough_others(others, index.labels[part])
            scores[part] = found[:, : len(index.names)]
    rows = scored.nonzero().view(-1)
    labels = index.labels[rows]
    probabilities = (scores[rows] / fit_temperature(scores[rows], labels)).softmax(1)
    return LeftOut(rows, labels, probabilities)


def suspects(index: TaughtIndex, left_out: LeftOut, confirmed: Mapping[int, str] | None = None) -> list[Suspect]:
    """Photos that look like a class other than their own, the most probable mistakes first.

    Ranked by how many times more probable the other class is. `confirmed` are ids and the class that a person has
    called right: they are listed again only if they have another class now.
    """
    found = []
    answers = left_out.answers
    for i in (answers != left_out.labels).nonzero().view(-1).tolist():
        p, id_ = left_out.probabilities[i], int(index.ids[left_out.rows[i]])
        label, answer = int(left_out.labels[i]), int(answers[i])
        if confirmed is None or confirmed.get(id_) != index.names[label]:
            found.append(Suspect(id_, index.names[label], index.names[answer], float(p[answer]), float(p[label])))
    return sorted(found, key=lambda s: (s.own / s.sure, s.id))


def _has_enough_others(counts: Tensor, labels: Tensor) -> Tensor:
    """Which photos have enough others of their class among those that are counted."""
    return counts[labels] >= MIN_OTHERS


def _scores_without(index: TaughtIndex, closed: ClosedForm, parts: Sequence[Tensor]) -> Iterator[Tensor]:
    """For each part, the scores of its photos by the statistics without them."""
    if isinstance(closed, SLDA):
        yield from scores_without(closed, index.features, index.labels, parts)
        return
    for part in parts:
        f = index.features[part].float()
        yield without(closed, f, index.labels[part]).scores(f)


def _parts(index: TaughtIndex, n: int) -> list[Tensor]:
    """Rows of photos that are left out together: near-duplicates in one part, and classes in all of them."""
    groups = near_duplicates.groups(index.hashes, index.labels)
    fold = torch.zeros_like(groups)
    for label in index.labels.unique().tolist():
        trained = (index.labels == label) & ~index.held_out
        distinct, place = groups[trained].unique(return_inverse=True)
        fold[trained] = (torch.arange(len(distinct)) % n)[place]
    parts = [(~index.held_out & (fold == k)).nonzero().view(-1) for k in range(n)]
    return [part for part in parts if len(part)]
