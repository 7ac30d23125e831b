"""Evaluate a lesson on held-out photos, before and after; the guard decides whether it may be published."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass

import torch
from torch import Tensor

from triphase.app.hold_out import Lesson
from triphase.app.leave_out import leave_out_scores
from triphase.app.model import Model
from triphase.data.feature_cache import latents
from triphase.errors import InvalidValue

Z_95 = 1.6448536269514722  # one-sided 95 % point of the normal distribution


@dataclass(frozen=True)
class ClassChange:
    """Accuracy of one known class before and after a lesson."""

    label: int
    n: int  # exemplars
    before: float  # accuracy on them, among the classes known before
    after: float


@dataclass(frozen=True)
class Verdict:
    """Accuracy of the known classes before and after a lesson, and whether it may be published."""

    n: int  # exemplars; with none nothing was checked, and the three figures are None
    before: float | None
    after: float | None
    lower: float | None  # with 95 % confidence, accuracy dropped by more than this
    max_drop: float
    refused: bool
    per_class: tuple[ClassChange, ...]

    @property
    def drop(self) -> float | None:
        """By how much accuracy fell on the exemplars."""
        return None if self.before is None or self.after is None else self.before - self.after

    @property
    def degraded(self) -> tuple[int, ...]:
        """The classes with fewer exemplars right than before, the largest loss first."""
        lost = {c.label: round((c.before - c.after) * c.n) for c in self.per_class}
        return tuple(sorted((label for label in lost if lost[label] > 0), key=lambda label: (-lost[label], label)))


@dataclass(frozen=True)
class ClassResult:
    """One class after a lesson; accuracies are on held-out photos, None where there are none."""

    name: str
    new: bool
    images: int  # learned in this lesson, those held out included
    before: float | None
    after: float | None
    exemplars: int


@dataclass(frozen=True)
class ConfusionWithNew:
    """Exemplars of a known class that are now classified as one class of the lesson."""

    label: int
    taken_for: int
    count: int
    n: int  # exemplars of the known class


@dataclass(frozen=True)
class Baseline:
    """The exemplars before a lesson, and which of them were recognised."""

    ids: Tensor  # (n,)
    y: Tensor  # (n,)
    stored: Tensor  # (n, ...) what the memory stores of them
    correct: Tensor  # (n,) bool
    n_classes: int

    @classmethod
    def of(cls, model: Model) -> Baseline:
        """The baseline of a model that is about to learn."""
        return cls(*model.exemplars(), model.exemplar_correct, len(model.names))


@dataclass(frozen=True)
class Evaluation:
    """The result of a lesson for every class, and the reasons not to publish it."""

    classes: list[ClassResult]
    verdict: Verdict
    confusions: list[tuple[str, str, int, int]]  # class, new class it is taken for, how many, of how many
    labels_mixed_up: bool  # the lesson's own photos are recognised hardly more often than by guessing

    @property
    def refused(self) -> bool:
        """Whether the lesson is published only with --force."""
        return self.verdict.refused or self.labels_mixed_up


def evaluate(model: Model, lesson: Lesson, baseline: Baseline, max_drop: float) -> Evaluation:
    """Compare a model that has learned a lesson with the baseline taken before it."""
    known = range(baseline.n_classes)
    logits = model.logits_of(baseline.ids, lambda rows: model.latents_of(baseline.stored[rows]))
    n = len(baseline.y) if len(known) > 1 else 0  # one class alone cannot be confused with another
    after = correct_among(logits[:n], baseline.y[:n], known)
    verdict = guard(baseline.correct[:n], after, baseline.y[:n], max_drop)
    confusions = confused_with_new(logits, baseline.y, known)
    return Evaluation(
        classes=_class_results(model, lesson, baseline),
        verdict=verdict,
        confusions=[(model.names[c.label], model.names[c.taken_for], c.count, c.n) for c in confusions],
        labels_mixed_up=_labels_mixed_up(model, lesson, baseline),
    )


def _class_results(model: Model, lesson: Lesson, baseline: Baseline) -> list[ClassResult]:
    """Each class, what was learned of it, and its accuracy among all classes before and after."""
    _, y, _ = model.exemplars()
    counts = torch.bincount(lesson.experience.images.labels, minlength=len(model.names)).tolist()
    results = []
    for label, name in enumerate(model.names):
        before, after = baseline.correct[baseline.y == label], model.exemplar_correct[y == label]
        results.append(
            ClassResult(
                name=name,
                new=label >= baseline.n_classes,
                images=counts[label],
                before=float(before.float().mean()) if len(before) and label < baseline.n_classes else None,
                after=float(after.float().mean()) if len(after) else None,
                exemplars=len(after),
            )
        )
    return results


def _labels_mixed_up(model: Model, lesson: Lesson, baseline: Baseline) -> bool:
    """Whether the lesson's own photos are right hardly more often than by guessing.

    The held-out ones are few and decide if they can. If not, the training photos do, by the closed form without
    them: those are many, so classes that are hard to tell apart must not be taken for mixed-up labels.
    """
    experience = lesson.experience
    held_out, classes = experience.held_out, experience.images.labels.unique().tolist()
    if held_out is None or len(classes) < 2 or len(baseline.y) == 0:
        return False
    own = experience.images.select(held_out.nonzero().view(-1))
    logits = model.logits_of(own.ids, lambda rows: latents(model.network, own.select(rows), context=model.context))
    few = correct_among(logits, own.labels, classes)
    reference = float(baseline.correct.double().mean())
    if near_chance(few, len(classes), reference):
        return True
    if above_chance(few, len(classes)):
        return False
    many = correct_among(*leave_out_scores(model, experience.training), classes)
    return near_chance(many, len(classes), reference, fraction=0.25)


def correct_among(logits: Tensor, y: Tensor, classes: Collection[int]) -> Tensor:
    """(n,) bool: whether the arg max over those classes alone is the true one.

    >>> correct_among(torch.tensor([[1.0, 2.0, 9.0]]), torch.tensor([1]), {0, 1})
    tensor([True])
    """
    among, y = torch.tensor(sorted(classes), dtype=torch.long), y.cpu()
    others = y[~torch.isin(y, among)]
    if len(others):
        raise InvalidValue(f"Class {int(others[0])} is not among the classes to choose from; leave it out.")
    if not len(y):
        return torch.zeros(0, dtype=torch.bool)
    return among[logits.cpu()[:, among].argmax(1)] == y


def guard(before_correct: Tensor, after_correct: Tensor, y: Tensor, max_drop: float = 0.02) -> Verdict:
    """Refuse a lesson after which accuracy on the same exemplars fell by more than `max_drop`, at 95 % confidence.

    Of n exemplars, let `lost` be right before only and `gained` right after only; with one added to each,
    (lost - gained) / (n + 2) is approximately normal, and its one-sided lower bound must not exceed `max_drop`
    (the adjusted Wald interval for paired proportions of Bonett and Price, 2012). Of lessons that drop accuracy by
    exactly `max_drop`, it refuses at most one in twenty while no more than a fifth of the exemplars are gained, and
    fewer where exemplars are few: one exemplar never refuses a lesson, five only if four are lost. Use exemplars of
    earlier lessons: those of a mislabelled lesson have wrong labels.

    >>> before, after = torch.tensor([True] * 30), torch.tensor([True] * 24 + [False] * 6)
    >>> verdict = guard(before, after, torch.tensor([0, 1, 2] * 10))
    >>> verdict.refused, verdict.per_class[0]
    (True, ClassChange(label=0, n=10, before=1.0, after=0.8))
    """
    check_max_drop(max_drop)
    before, after = before_correct.cpu().bool(), after_correct.cpu().bool()
    n = len(before)
    if not n == len(after) == len(y):
        raise InvalidValue(f"{n} answers before, {len(after)} after and {len(y)} labels: give one per exemplar.")
    if n == 0:
        return Verdict(0, None, None, None, max_drop, False, ())
    lost, gained = int((before & ~after).sum()), int((after & ~before).sum())
    lower = _lower_bound(lost, gained, n)
    labels, inverse, counts = y.cpu().unique(return_inverse=True, return_counts=True)
    shares = [torch.bincount(inverse[side], minlength=len(labels)).double() / counts for side in (before, after)]
    columns = (labels.tolist(), counts.tolist(), *(share.tolist() for share in shares))
    per_class = tuple(ClassChange(*row) for row in zip(*columns, strict=True))
    accuracy_before, accuracy_after = (int(side.sum()) / n for side in (before, after))
    return Verdict(n, accuracy_before, accuracy_after, lower, max_drop, lower > max_drop, per_class)


def check_max_drop(max_drop: float) -> None:
    """Refuse a limit outside [0, 1)."""
    if not 0 <= max_drop < 1:
        raise InvalidValue(f"max_drop must be from 0 to below 1, got {max_drop:g}: 0.02 allows a loss of 2 points.")


def near_chance(correct: Tensor, n_classes: int, reference: float, fraction: float = 0.5) -> bool:
    """Whether a lesson's own photos are recognised so rarely that its labels are probably mixed up.

    Shuffled labels of new classes need not cause forgetting, so `guard` may not notice them. `correct` says
    which photos of the lesson are right among its `n_classes` classes, `reference` is the accuracy on the
    exemplars of earlier lessons. True if a lesson whose accuracy lies a `fraction` of the way from chance to
    `reference` would do as badly with a probability of at most 5 %. A lesson of one class cannot be judged.

    >>> near_chance(torch.tensor([True] * 3 + [False] * 27), n_classes=10, reference=0.75)
    True
    """
    guessing = 1 / n_classes
    least = guessing + fraction * (reference - guessing)
    return least > guessing and len(correct) > 0 and _binomial_cdf(int(correct.sum()), len(correct), least) <= 0.05


def above_chance(correct: Tensor, n_classes: int) -> bool:
    """Whether a lesson's own photos are right so often that guessing would do as well once in 10,000 lessons.

    >>> above_chance(torch.tensor([True] * 20 + [False] * 10), n_classes=4)
    True
    """
    n = len(correct)
    return n_classes > 1 and n > 0 and _binomial_cdf(n - int(correct.sum()), n, 1 - 1 / n_classes) <= 1e-4


def confused_with_new(logits: Tensor, y: Tensor, known: Collection[int]) -> tuple[ConfusionWithNew, ...]:
    """Which known classes are confused with new ones, the most frequent first; for information only.

    >>> confused_with_new(torch.tensor([[1.0, 2.0], [2.0, 1.0]]), torch.tensor([0, 0]), {0})
    (ConfusionWithNew(label=0, taken_for=1, count=1, n=2),)
    """
    if not len(y):
        return ()
    guess, y = logits.argmax(1).cpu(), y.cpu()
    labels = torch.tensor(sorted(known), dtype=torch.long)
    confused = torch.isin(y, labels) & ~torch.isin(guess, labels)
    pairs, counts = torch.stack([y[confused], guess[confused]], 1).unique(dim=0, return_counts=True)
    found = [
        ConfusionWithNew(label, taken_for, count, int((y == label).sum()))
        for (label, taken_for), count in zip(pairs.tolist(), counts.tolist(), strict=True)
    ]
    return tuple(sorted(found, key=lambda c: (-c.count, c.label, c.taken_for)))


def _binomial_cdf(k: int, n: int, p: float) -> float:
    """The probability of at most k successes in n trials."""
    i = torch.arange(k + 1, dtype=torch.float64)  # scipy would take a fifth of a second to import
    ways = math.lgamma(n + 1) - torch.lgamma(i + 1) - torch.lgamma(n - i + 1)
    return min(1.0, float((ways + i * math.log(p) + (n - i) * math.log1p(-p)).exp().sum()))


def _lower_bound(lost: int, gained: int, n: int) -> float:
    """One-sided 95 % lower bound of the drop (Bonett and Price, 2012)."""
    p_lost, p_gained = (lost + 1) / (n + 2), (gained + 1) / (n + 2)
    drop = p_lost - p_gained
    return drop - Z_95 * math.sqrt((p_lost + p_gained - drop**2) / (n + 2))
