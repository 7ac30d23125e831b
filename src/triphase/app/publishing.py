"""Publish a model as a version: its training state, and the inference parts that answers come from."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import Any

import torch

from triphase.app.evaluation import ClassResult, Evaluation, Verdict, guard
from triphase.app.hold_out import Lesson
from triphase.app.inference_parts import inference_parts
from triphase.app.lesson_checkpoint import LessonCheckpoint
from triphase.app.model import Model
from triphase.app.ood import MIN_SCORES
from triphase.app.plan import LessonSettings, Plan
from triphase.app.store.schema import Version
from triphase.app.store.versions import Store
from triphase.errors import CannotWrite, few
from triphase.events import OnEvent
from triphase.printable import count, percent
from triphase.state import on_host

FEW_HELD_OUT = 10  # photos of a class: with fewer, its accuracy is only a first impression


@dataclass(frozen=True)
class Outcome:
    """The result of a lesson."""

    published: bool
    version: int | None  # in use afterwards
    learned: int
    known_already: int
    corrected: int
    classes: list[ClassResult]
    verdict: Verdict
    confused: list[tuple[str, str, int, int]]  # class, new class it is taken for, how many, of how many
    seconds: float
    labels_mixed_up: bool  # the lesson's own photos are recognised hardly better than by guessing
    skipped: list[str] = field(default_factory=list)  # a sentence for each photo that cannot be read
    notes: list[str] = field(default_factory=list)

    @property
    def refused(self) -> bool:
        """Whether the guard refuses the lesson, or its labels look mixed up."""
        return self.verdict.refused or self.labels_mixed_up

    @property
    def refusal(self) -> str | None:
        """Why the lesson was refused and what to do; None if it was published, or had nothing to learn."""
        if self.published or not self.refused:
            return None
        verdict = self.verdict
        advice = (
            f"Version {self.version} stays in use. Check that the new photos are in the right folders; if they "
            "are, --force publishes the lesson anyway."
        )
        if not verdict.refused:
            return (
                "Not published: photos of this lesson that were left out are recognised hardly better than by "
                f"guessing, as if labels were mixed up. {advice}"
            )
        changes = {change.label: change for change in verdict.per_class}
        degraded = [
            f"{self.classes[label].name} {percent(changes[label].before)} -> {percent(changes[label].after)}"
            for label in verdict.degraded
        ]
        return (
            f"Not published: the classes known before fell from {percent(verdict.before)} to "
            f"{percent(verdict.after)}, and --max-drop allows {100 * verdict.max_drop:g} points. "
            f"Classes that lost accuracy: {few(degraded)}. {advice}"
        )

    def to_json(self) -> dict[str, Any]:
        """For --json."""
        return asdict(self) | {"refused": self.refused, "drop": self.verdict.drop}


def version_state(model: Model) -> dict[str, Any]:
    """The state of a version: training state and inference parts, in host memory."""
    state: dict[str, Any] = on_host({**model.state_dict(), **inference_parts(model)})
    return state


def publish(
    store: Store,
    plan: Plan,
    lesson: Lesson,
    evaluation: Evaluation,
    checkpoint: LessonCheckpoint,
    settings: LessonSettings,
    notes: list[str],
    started: float,
) -> Outcome:
    """Publish a lesson unless the guard refuses it, or with --force; then remove its checkpoint."""
    published, learned = settings.force or not evaluation.refused, len(lesson.experience.images)
    with suppress(CannotWrite):  # a last checkpoint is no longer needed
        checkpoint.close()
    if published:
        verdict = evaluation.verdict
        event = {"event": "taught", "images": learned, "classes": plan.counts, "before": verdict.before}
        event |= {"after": verdict.after, "forced": evaluation.refused}
        _publish(store, plan.model, evaluation, event, replace=checkpoint.quick_version)
    elif checkpoint.quick_version:
        store.undo()  # removes the quick version of the refused lesson
    notes += clean_up(store, settings.keep if published else None)
    if published:
        notes += _first_accuracy(evaluation.classes)
    if published and not plan.model.calibration.rejects:
        notes.append(_never_unknown(plan.model))
    return _outcome(store, plan, evaluation, learned, published, notes, started)


def clean_up(store: Store, keep: int | None) -> list[str]:
    """Remove the checkpoint of what is done, and all but `keep` versions if a new one was published.

    Returns a sentence if files cannot be removed: that is no failure, because the next writer removes them.
    """
    try:
        if keep is not None:
            store.prune(keep)
        store.discard_work()
    except CannotWrite as error:
        return [f"The result is complete, but temporary files cannot be removed: {error}"]
    return []


def _first_accuracy(classes: Sequence[ClassResult]) -> list[str]:
    """After a first lesson: how many held-out photos are right, and whether that says much of a single class."""
    measured = [(one.after, one.exemplars) for one in classes if one.after is not None]
    if len(measured) < 2 or not all(one.new for one in classes):
        return []
    n, right = sum(n for _, n in measured), sum(round(share * n) for share, n in measured)
    note, least = f"{right:,} of {n:,} held-out photos are recognised.", min(n for _, n in measured)
    if least < FEW_HELD_OUT:
        note += f" The accuracy of a class says little yet if it rests on only {count(least, 'photo')}."
    return [note]


def _never_unknown(model: Model) -> str:
    """Why no answer can be "unknown" after a lesson, and what to do."""
    needed = f"{MIN_SCORES} photos" if model.memory is None else f"{MIN_SCORES} held-out photos in all"
    return f'No answer is "unknown" yet, whatever a photo shows: that takes {needed}. Teach more photos.'


def publish_quick(
    store: Store,
    model: Model,
    lesson: Lesson,
    evaluation: Evaluation,
    checkpoint: LessonCheckpoint,
    settings: LessonSettings,
    on_event: OnEvent,
) -> None:
    """Publish what the closed form has learned, unless the guard refuses it; the whole lesson replaces it later."""
    if evaluation.refused and not settings.force:
        return
    event = {"event": "taught_quick", "images": len(lesson.experience.images), "drop": evaluation.verdict.drop}
    version = _publish(store, model, evaluation, event, replace=checkpoint.quick_version)
    checkpoint.continue_from(version.number)
    on_event({"event": "taught_quick", "version": version.number})


def nothing_to_learn(store: Store, plan: Plan, settings: LessonSettings, started: float) -> Outcome:
    """The result if all photos were taught before.

    If a lesson was killed just after it was published, its checkpoint is removed here.
    """
    if LessonCheckpoint.is_published(store):
        store.discard_work()
        store.prune(settings.keep)
    none = torch.empty(0, dtype=torch.bool)
    nothing = Evaluation([], guard(none, none, none.long(), settings.max_drop), [], labels_mixed_up=False)
    known = plan.n_known_already
    photos = "The photo has" if known == 1 else f"All {known:,} photos have"
    message = f"{photos} been taught before: there is nothing to learn."
    return _outcome(store, plan, nothing, 0, False, [*plan.photos.remarks, message], started)


def _publish(
    store: Store, model: Model, evaluation: Evaluation, event: Mapping[str, Any], *, replace: bool
) -> Version:
    """`replace`: the quick version is replaced. The type of the labels, which a program has set, is kept."""
    current = store.current()
    labels = {"labels": current.info["labels"]} if current and "labels" in current.info else {}
    info = labels | model.describe() | {"accuracy": evaluation.verdict.after}
    return store.publish(version_state(model), info, event, replace_current=replace)


def _outcome(
    store: Store,
    plan: Plan,
    evaluation: Evaluation,
    learned: int,
    published: bool,
    notes: list[str],
    started: float,
) -> Outcome:
    current = store.current()
    return Outcome(
        published=published,
        version=current.number if current else None,
        learned=learned,
        known_already=plan.n_known_already,
        corrected=plan.n_corrected,
        classes=evaluation.classes,
        verdict=evaluation.verdict,
        confused=evaluation.confusions,
        seconds=time.perf_counter() - started,
        labels_mixed_up=evaluation.labels_mixed_up,
        skipped=plan.photos.skipped,
        notes=notes,
    )
