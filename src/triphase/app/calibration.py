"""What lets people rely on a model: honest probabilities, and a guard against forgetting.

Pure functions on tensors. Exemplars are samples that no learner trained on, whoever keeps them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass

import torch
from torch import Tensor

from triphase.app.ood import exact
from triphase.errors import InvalidValue

PRIOR = 5.0  # exemplars that the prior of the temperature is worth
EXTREME = 1e3  # the temperature stays within this factor of the spread of the logits, either way
Z_95 = 1.6448536269514722  # one-sided 95 % point of the normal distribution


def fit_temperature(logits: Tensor, y: Tensor) -> float:
    """T for which softmax(logits / T) is most likely on held-out exemplars; it changes no arg max.

    The log-likelihood is concave in 1/T, and so is that of its Gamma prior, which is worth PRIOR exemplars and has
    its mode where the mean confidence equals the accuracy, one right and one wrong exemplar added. Without it, a
    few exemplars that happen to be all right would make T vanish. -inf marks classes never seen. T is 1 where
    exemplars say nothing about it: there are none, or all logits are equal.

    >>> logits = torch.tensor([[60.0, 0.0], [50.0, 0.0], [0.0, 70.0], [0.0, 40.0]])
    >>> fit_temperature(logits, torch.tensor([0, 0, 1, 0])) > 30
    True
    """
    z, true = _below_the_best(logits, y)
    seen = torch.isfinite(z)
    spread = float(-z[seen].sum() / seen.sum().clamp(min=1))
    if spread == 0.0:
        return 1.0
    z, true = z / spread, true / spread
    accuracy = (int((true == 0).sum()) + 1) / (len(true) + 2)
    finite = z.masked_fill(~seen, 0.0)

    def overconfidence(inverse: float) -> float:
        return float((1 / (inverse * z).exp().sum(1)).mean()) - accuracy

    def slope(inverse: float) -> float:  # of the negative log-posterior
        expected = ((inverse * z).softmax(1) * finite).sum(1)
        return float((expected - true).sum()) + PRIOR * (1 / mode - 1 / inverse)

    mode = _root(overconfidence, 1 / EXTREME, EXTREME)
    return spread / _root(slope, 1 / EXTREME, EXTREME)


def expected_calibration_error(probabilities: Tensor, y: Tensor, bins: int = 15) -> float:
    """|accuracy - confidence|, averaged over images in bins of equal confidence; NaN without images.

    >>> round(expected_calibration_error(torch.tensor([[0.9, 0.1], [0.9, 0.1]]), torch.tensor([0, 1])), 6)
    0.4
    """
    if bins < 1:
        raise InvalidValue(f"bins must be at least 1, got {bins}.")
    confidence, guess = exact(probabilities).max(1)
    number = (confidence * bins).ceil().long().clamp(1, bins) - 1
    gaps = (guess == y.cpu()).double() - confidence
    total = torch.zeros(bins, dtype=torch.float64).index_add(0, number, gaps)
    return float(total.abs().sum() / len(gaps)) if len(gaps) else math.nan


@dataclass(frozen=True)
class ClassChange:
    """What a lesson did to one class that was known before it."""

    label: int
    n: int  # exemplars
    before: float  # accuracy on them, among the classes known before
    after: float


@dataclass(frozen=True)
class Verdict:
    """What a lesson did to the classes known before it, and whether it may be published."""

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
    def suffered(self) -> tuple[int, ...]:
        """The classes that lost exemplars, those that lost most of them first."""
        lost = {c.label: round((c.before - c.after) * c.n) for c in self.per_class}
        return tuple(sorted((label for label in lost if lost[label] > 0), key=lambda label: (-lost[label], label)))


def right_among(logits: Tensor, y: Tensor, classes: Collection[int]) -> Tensor:
    """(n,) bool: whether the arg max over those classes alone is the true one.

    >>> right_among(torch.tensor([[1.0, 2.0, 9.0]]), torch.tensor([1]), {0, 1})
    tensor([True])
    """
    among, y = torch.tensor(sorted(classes), dtype=torch.long), y.cpu()
    strangers = y[~torch.isin(y, among)]
    if len(strangers):
        raise InvalidValue(f"Class {int(strangers[0])} is not among the classes to choose from; leave it out.")
    if not len(y):
        return torch.zeros(0, dtype=torch.bool)
    return among[logits.cpu()[:, among].argmax(1)] == y


def guard(before_right: Tensor, after_right: Tensor, y: Tensor, max_drop: float = 0.02) -> Verdict:
    """Refuse a lesson after which accuracy on the same exemplars fell by more than `max_drop`, at 95 % confidence.

    Only exemplars that changed sides tell anything. Of n, let `lost` be right before only and `gained` right after
    only; with one added to each, (lost - gained) / (n + 2) is approximately normal, and its one-sided lower bound
    must not exceed `max_drop` (the adjusted Wald interval for paired proportions of Bonett and Price, 2012). Of
    lessons that drop accuracy by exactly `max_drop`, it refuses at most one in twenty while no more than a fifth of
    the exemplars are gained, and fewer where exemplars are few: one never refuses anything, five only if four are
    lost. Take exemplars held before the lesson: those of a mislabelled lesson would vouch for it.

    >>> before, after = torch.tensor([True] * 30), torch.tensor([True] * 24 + [False] * 6)
    >>> verdict = guard(before, after, torch.tensor([0, 1, 2] * 10))
    >>> verdict.refused, verdict.per_class[0]
    (True, ClassChange(label=0, n=10, before=1.0, after=0.8))
    """
    if not 0 <= max_drop < 1:
        raise InvalidValue(f"max_drop must be in [0, 1), got {max_drop}: 0.02 allows a loss of 2 points.")
    before, after = before_right.cpu().bool(), after_right.cpu().bool()
    n = len(before)
    if not n == len(after) == len(y):
        raise InvalidValue(f"{n} answers before, {len(after)} after and {len(y)} labels: give one per exemplar.")
    if n == 0:
        return Verdict(0, None, None, None, max_drop, False, ())
    lost, gained = int((before & ~after).sum()), int((after & ~before).sum())
    lower = _lower_bound(lost, gained, n)
    labels, inverse, counts = y.cpu().unique(return_inverse=True, return_counts=True)
    shares = [torch.bincount(inverse[right], minlength=len(labels)).double() / counts for right in (before, after)]
    columns = (labels.tolist(), counts.tolist(), *(share.tolist() for share in shares))
    per_class = tuple(ClassChange(*row) for row in zip(*columns, strict=True))
    was, now = (int(right.sum()) / n for right in (before, after))
    return Verdict(n, was, now, lower, max_drop, lower > max_drop, per_class)


def unlearned(right: Tensor, n_classes: int, reference: float, way: float = 0.5) -> bool:
    """Whether a lesson's own photos are right so rarely that its labels cannot be meant.

    Shuffled labels of new classes need not make anything be forgotten, and `guard` is silent then. `right` tells
    which photos of the lesson are right among its `n_classes` classes, `reference` is the accuracy on exemplars of
    before. True if a lesson that gets as far as `way` from guessing to `reference` would do as badly in at most one
    of twenty cases. A lesson of one class cannot be judged.

    >>> unlearned(torch.tensor([True] * 3 + [False] * 27), n_classes=10, reference=0.75)
    True
    """
    guessing = 1 / n_classes
    least = guessing + way * (reference - guessing)
    return least > guessing and len(right) > 0 and _at_most(int(right.sum()), len(right), least) <= 0.05


def surely_learned(right: Tensor, n_classes: int) -> bool:
    """Whether a lesson's own photos are right so often that guessing would do as well once in 10,000 lessons.

    >>> surely_learned(torch.tensor([True] * 20 + [False] * 10), n_classes=4)
    True
    """
    n = len(right)
    return n_classes > 1 and n > 0 and _at_most(n - int(right.sum()), n, 1 - 1 / n_classes) <= 1e-4


def _at_most(count: int, n: int, p: float) -> float:
    """The probability of at most `count` successes in n trials with probability p, 0 < p < 1."""
    successes = torch.arange(count + 1, dtype=torch.float64)
    ways = math.lgamma(n + 1) - torch.lgamma(successes + 1) - torch.lgamma(n - successes + 1)
    return float((ways + successes * math.log(p) + (n - successes) * math.log1p(-p)).exp().sum())


@dataclass(frozen=True)
class Confusion:
    """Exemplars of a known class that are now taken for one class of the lesson."""

    label: int
    taken_for: int
    count: int
    n: int  # exemplars of the known class


def confused_with_new(after_logits_all: Tensor, y: Tensor, old: Collection[int]) -> tuple[Confusion, ...]:
    """Which old classes are taken for new ones, the most frequent confusions first; for information only.

    >>> confused_with_new(torch.tensor([[1.0, 2.0], [2.0, 1.0]]), torch.tensor([0, 0]), {0})
    (Confusion(label=0, taken_for=1, count=1, n=2),)
    """
    if not len(y):
        return ()
    guess, y = after_logits_all.argmax(1).cpu(), y.cpu()
    known = torch.tensor(sorted(old), dtype=torch.long)
    strayed = torch.isin(y, known) & ~torch.isin(guess, known)
    pairs, counts = torch.stack([y[strayed], guess[strayed]], 1).unique(dim=0, return_counts=True)
    found = [
        Confusion(label, taken_for, count, int((y == label).sum()))
        for (label, taken_for), count in zip(pairs.tolist(), counts.tolist(), strict=True)
    ]
    return tuple(sorted(found, key=lambda c: (-c.count, c.label, c.taken_for)))


def _below_the_best(logits: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Logits relative to the highest of their row, and that of the true class."""
    logits, y = exact(logits), y.cpu()
    if len(logits) != len(y):
        raise InvalidValue(f"{len(logits)} rows of logits but {len(y)} labels: give one label for each row.")
    if not len(y):
        return logits, logits.new_zeros(0)
    true = logits.gather(1, y.view(-1, 1)).view(-1)
    wrong = (~torch.isfinite(true) | logits.isnan().any(1) | (logits == math.inf).any(1)).nonzero().view(-1)
    if len(wrong):
        row = int(wrong[0])
        raise InvalidValue(
            f"The logits of exemplar {row} (class {int(y[row])}) are infinite or NaN where they should be finite: "
            "only classes never seen may be -inf. Leave out exemplars of classes that the model does not know."
        )
    best = logits.amax(1)
    return logits - best.view(-1, 1), true - best


def _root(increasing: Callable[[float], float], low: float, high: float) -> float:
    """Where an increasing function passes 0, by bisection; the nearer end if it does not in between."""
    geometric = low > 0  # scales are halved by factors
    for _ in range(100):
        middle = math.sqrt(low * high) if geometric else (low + high) / 2
        if middle in (low, high):
            break
        low, high = (low, middle) if increasing(middle) >= 0 else (middle, high)
    return high


def _lower_bound(lost: int, gained: int, n: int) -> float:
    """One-sided 95 % lower bound of the drop (Bonett and Price, 2012)."""
    p_lost, p_gained = (lost + 1) / (n + 2), (gained + 1) / (n + 2)
    drop = p_lost - p_gained
    return drop - Z_95 * math.sqrt((p_lost + p_gained - drop**2) / (n + 2))
