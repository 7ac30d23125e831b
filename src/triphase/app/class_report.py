"""Whether enough was taught: for each class what is known about its accuracy, and what would help.

Two measurements: held-out photos, answered by the whole model, and stored photos, each answered by the closed form
without it (`label_check.leave_out`). The first is what a version is judged by; the second covers many more
photos, so advice is based on both together.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import Literal

from triphase.app.held_out_report import HeldOut
from triphase.app.label_check import LeftOut
from triphase.app.proportion import Proportion
from triphase.app.taught_index import TaughtIndex

GOOD = 0.75  # a class is good enough if its accuracy is at least this, with 97.5 % confidence
MIN_CONFUSED = 2  # photos classified as the same other class, for the two classes to count as confused
# Share of the taught photos that must be stored for `gain`: half of the stored photos must be about half of all.
ALL_STORED = 0.9
MIN_GAIN = 0.05  # in accuracy, from half of the photos to all, for more photos to be advised
Status = Literal["unmeasured", "unsure", "confused", "weak", "good"]


@dataclass(frozen=True)
class ClassReport:
    """What is known about one class."""

    name: str
    taught: int
    held_out: Proportion  # by the whole model
    left_out: Proportion  # by the closed form without the photo
    together: Proportion  # both measurements, which the advice is based on
    confused_with: tuple[tuple[str, int], ...]  # other classes and photos taken for them, the most frequent first
    gain: float | None  # accuracy gained from half of the photos to all; None where that cannot be told
    status: Status
    photos_needed: int | None  # more photos after which its accuracy would be known well enough, about
    advice: str  # one sentence


def class_reports(
    index: TaughtIndex, counts: list[int], held_out: HeldOut, left_out: LeftOut, half: LeftOut
) -> list[ClassReport]:
    """A report on each class; `counts` are photos taught, `half` is `leave_out` with two folds."""
    return [_report(index, label, counts[label], held_out, left_out, half) for label in range(len(index.names))]


def _report(
    index: TaughtIndex, label: int, taught: int, held_out: HeldOut, left_out: LeftOut, half: LeftOut
) -> ClassReport:
    name, trained = index.names[label], ~index.held_out[left_out.rows]
    of_class = trained & (left_out.labels == label)
    answers = left_out.answers[of_class]
    measured = held_out.accuracy(label)
    left = Proportion.of(int((answers == label).sum()), len(answers))
    others = Counter([*held_out.answers[held_out.labels == label].tolist(), *answers.tolist()])
    del others[label]
    confused = tuple((index.names[other], n) for other, n in others.most_common())
    both = Proportion.of(measured.right + left.right, measured.n + left.n)
    gain = _gain(index, label, taught, left_out, half)
    status, needed = _status(both, confused)
    advice = _advice(name, status, both, confused, gain, needed)
    return ClassReport(name, taught, measured, left, both, confused, gain, status, needed, advice)


def _gain(index: TaughtIndex, label: int, taught: int, left_out: LeftOut, half: LeftOut) -> float | None:
    """Accuracy on the same photos with (almost) all others of their class, minus that with half of them."""
    stored = (index.labels == label) & ~index.held_out
    if int((index.labels == label).sum()) < ALL_STORED * taught:
        return None
    shares = []
    for answered in (left_out, half):
        of_class = stored[answered.rows]
        if int(of_class.sum()) < int(stored.sum()):
            return None
        shares.append(float((answered.answers[of_class] == label).float().mean()))
    return shares[0] - shares[1] if bool(stored.any()) else None


def _status(both: Proportion, confused: tuple[tuple[str, int], ...]) -> tuple[Status, int | None]:
    if both.n == 0:
        return "unmeasured", _photos_for(1.0)
    if both.low >= GOOD:
        return "good", None
    if confused and confused[0][1] >= MIN_CONFUSED and 2 * confused[0][1] > both.n - both.right:
        return "confused", None
    if both.high < GOOD or (both.share is not None and both.share < GOOD):
        return "weak", None
    return "unsure", max(1, _photos_for(both.share or 0.0) - both.n)


def _photos_for(share: float) -> int:
    """Photos with which an accuracy of `share` could be told from less than GOOD, at most 50."""
    return next((n for n in range(1, 50) if Proportion.of(math.floor(share * n), n).low >= GOOD), 50)


def _advice(
    name: str,
    status: Status,
    both: Proportion,
    confused: tuple[tuple[str, int], ...],
    gain: float | None,
    needed: int | None,
) -> str:
    """What to do, in one sentence."""
    if status == "unmeasured":
        return f"Nothing is known about the accuracy of {name}: teach about {_more(needed)} of it."
    right = f"{both.right} of {both.n} photos of {name} are recognised"
    if status == "good":
        return f"{right}; more are not needed."
    if status == "unsure":
        return f"So far {right}: about {_more(needed)} would tell whether that is good enough."
    if status == "confused":
        other, n = confused[0]
        return f"{name} is taken for {other} ({n} of {both.n}): add photos of both that show the difference."
    if gain is not None and gain < MIN_GAIN:
        return f"Only {right}, and more of the same kind hardly help: add other views, and check the labels."
    return f"Only {right}: add photos of {name}."


def _more(n: int | None) -> str:
    return "1 more photo" if n == 1 else f"{n} more photos"
