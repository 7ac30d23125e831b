"""Taught photos whose label is probably wrong: those that the others of their class do not vouch for.

Each stored photo is scored by the closed form without it: a few of each class at a time are left out of the
statistics, near-duplicates together. Held-out photos were never in them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from triphase.app import near_duplicates
from triphase.app.calibration import fit_temperature
from triphase.app.taught_index import TaughtIndex
from triphase.learners.frozen import without
from triphase.learners.protocol import ClosedForm

FOLDS = 10  # parts that are left out in turn
MIN_OTHERS = 2  # photos of a class that can vouch for another


@dataclass(frozen=True)
class LeftOut:
    """Stored photos, each as it is answered by the closed form without it."""

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
    """Answers about stored photos whose class has enough others; none without closed form.

    Probabilities have a temperature of their own, fitted on these answers.
    """
    scored, scores = torch.zeros(len(index), dtype=torch.bool), torch.empty(len(index), len(index.names))
    for rows, others in _folds(index, closed, folds) if closed is not None else ():
        rows = rows[others.counts[index.labels[rows]] >= MIN_OTHERS]
        if len(rows) == 0:
            continue
        scores[rows] = others.scores(index.features[rows].float())[:, : len(index.names)]
        scored[rows] = True
    rows = scored.nonzero().view(-1)
    labels = index.labels[rows]
    probabilities = (scores[rows] / fit_temperature(scores[rows], labels)).softmax(1)
    return LeftOut(rows, labels, probabilities)


def suspects(index: TaughtIndex, left_out: LeftOut, confirmed: Mapping[int, str] | None = None) -> list[Suspect]:
    """Photos that look like another class than their own, the most probable mistakes first.

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


def _folds(index: TaughtIndex, closed: ClosedForm, n: int) -> Iterator[tuple[Tensor, ClosedForm]]:
    """Photos to be scored together, and the statistics without those among them that are counted there."""
    yield index.held_out.nonzero().view(-1), closed
    fold = _fold_of(index, n)
    for k in range(n):
        rows = (~index.held_out & (fold == k)).nonzero().view(-1)
        if len(rows):
            yield rows, without(closed, index.features[rows].float(), index.labels[rows])


def _fold_of(index: TaughtIndex, n: int) -> Tensor:
    """(photos,): the part of each photo; near-duplicates are in the same one, and classes in all of them."""
    groups = near_duplicates.groups(index.hashes, index.labels)
    fold = torch.zeros_like(groups)
    for label in index.labels.unique().tolist():
        trained = (index.labels == label) & ~index.held_out
        distinct, place = groups[trained].unique(return_inverse=True)
        fold[trained] = (torch.arange(len(distinct)) % n)[place]
    return fold
