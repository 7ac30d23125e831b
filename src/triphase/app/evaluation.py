"""What a lesson did to the classes known before, measured on photos that were held out."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from triphase.app import calibration
from triphase.app.model import Model
from triphase.data.feature_cache import latents
from triphase.data.streams import Experience


@dataclass(frozen=True)
class ClassLine:
    """One class in the table that ends a lesson; accuracies are on held-out photos, None where there are none."""

    name: str
    new: bool
    images: int  # learned in this lesson, those held out included
    before: float | None
    after: float | None
    exemplars: int


class Measured:
    """The exemplars that were held before the lesson, and which of them were right then."""

    def __init__(self, model: Model) -> None:
        self.ids, self.y, self.stored = model.exemplars()
        self.right = model.exemplar_right
        self._after: tuple[int, Tensor] | None = None

    def after(self, model: Model) -> Tensor:
        """What the model says of them now, asked once after each lesson."""
        if self._after is None or self._after[0] != model.lessons:
            logits = model.answered(self.ids, lambda rows: model.latents_of(self.stored[rows]))
            self._after = model.lessons, logits
        return self._after[1]

    def verdict(self, model: Model, old: int, max_drop: float) -> calibration.Verdict:
        """Whether the classes known before suffered; the arg max is restricted to them."""
        if old < 2 or len(self.y) == 0:
            nothing = torch.empty(0, dtype=torch.bool)
            return calibration.guard(nothing, nothing, nothing.long(), max_drop)
        after = calibration.right_among(self.after(model), self.y, range(old))
        return calibration.guard(self.right, after, self.y, max_drop)

    def unlearned(self, model: Model, experience: Experience) -> bool:
        """Whether the lesson's own photos are right hardly more often than by guessing.

        Those that were held out, which are few, or those that were learned, by the closed form without them: these
        are many, so that classes which are hard to tell apart must not be taken for mixed-up labels. Where the few
        say enough, the many are not asked.
        """
        held, classes = experience.held_out, experience.images.labels.unique().tolist()
        if held is None or len(classes) < 2 or len(self.y) == 0:
            return False
        own = experience.images.select(held.nonzero().view(-1))
        logits = model.answered(
            own.ids, lambda rows: latents(model.network, own.select(rows), context=model.context)
        )
        few = calibration.right_among(logits, own.labels, classes)
        reference = float(self.right.double().mean())
        if calibration.unlearned(few, len(classes), reference):
            return True
        if calibration.surely_learned(few, len(classes)):
            return False
        many = calibration.right_among(*model.foretold(experience.training), classes)
        return calibration.unlearned(many, len(classes), reference, way=0.25)

    def confused(self, model: Model, old: int) -> list[tuple[str, str, int, int]]:
        """Old classes that are taken for new ones now."""
        if len(self.y) == 0:
            return []
        found = calibration.confused_with_new(self.after(model), self.y, range(old))
        return [(model.names[c.label], model.names[c.taken_for], c.count, c.n) for c in found]


def table(model: Model, experience: Experience, before: Measured, old: int) -> list[ClassLine]:
    """Each class, what was learned of it, and its accuracy among all classes before and after."""
    _, y, _ = model.exemplars()
    right = model.exemplar_right
    counts = torch.bincount(experience.images.labels, minlength=len(model.names)).tolist()
    lines = []
    for label, name in enumerate(model.names):
        then, now = before.right[before.y == label], right[y == label]
        lines.append(
            ClassLine(
                name=name,
                new=label >= old,
                images=counts[label],
                before=float(then.float().mean()) if len(then) and label < old else None,
                after=float(now.float().mean()) if len(now) else None,
                exemplars=len(now),
            )
        )
    return lines
