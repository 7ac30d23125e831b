"""A lesson: scan -> hold out -> learn -> evaluate -> publish. If it is killed, the same call continues it.

Progress is reported as events, {"event": ...}, which a terminal or a page can draw.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from triphase.app import removal
from triphase.app.evaluation import Baseline, evaluate
from triphase.app.hold_out import hold_out
from triphase.app.learning import learn, learn_quick, lesson_recipe, planned_steps
from triphase.app.lesson_checkpoint import LessonCheckpoint
from triphase.app.options import ModelOptions
from triphase.app.plan import LessonSettings, Plan, plan_lesson
from triphase.app.publishing import Outcome, nothing_to_learn, publish, publish_quick
from triphase.app.store.versions import Store
from triphase.app.unlabelled import learned_message, with_unlabelled
from triphase.context import Context
from triphase.events import OnEvent, ignore_event
from triphase.learners.protocol import UsesUnlabelled


def teach(
    path: Path,
    photos: Path,
    options: ModelOptions | Mapping[str, Any] | None = None,
    settings: LessonSettings | None = None,
    *,
    on_event: OnEvent = ignore_event,
    context: Context | None = None,
) -> Outcome:
    """Learn what is new in a folder of photos and publish it, unless too much is forgotten.

    `options` apply to a new model; those of an existing model must agree with them.
    """
    started, settings, context = (
        time.perf_counter(),
        settings or LessonSettings(),
        context or Context(engine="auto"),
    )
    store, new = Store(path), not path.exists()
    with store.lock(), _no_empty_folder(store, new), context.reuse_latents(), context.reporting(on_event):
        plan = plan_lesson(store, photos, options, settings, on_event, context)
        if not plan.counts:
            return nothing_to_learn(store, plan, settings, started)
        model, notes = plan.model, [*plan.photos.remarks, *_unlearn_corrected(plan, on_event)]
        baseline = Baseline.of(model)
        new_photos = plan.photos
        lesson = hold_out(model, new_photos.images, new_photos.names, new_photos.hashes, new_photos.times)
        if isinstance(model.learner, UsesUnlabelled):
            model.learner.unlabelled = settings.unlabelled
        lesson = with_unlabelled(model, lesson, plan.unlabelled)
        recipe = lesson_recipe(model, lesson)
        model.network.accelerate(precision=settings.precision)
        checkpoint = LessonCheckpoint(store, plan.content, model, quick_version=bool(plan.pending))
        resumed = checkpoint.resume(notes, on_event)
        seen_by_quick = resumed or plan.pending == set(plan.photos.ids.tolist())
        if settings.quick and not seen_by_quick and len(lesson.experience.training):
            learn_quick(model, lesson, recipe)
            evaluation = evaluate(model, lesson, baseline, settings.max_drop)
            publish_quick(store, model, lesson, evaluation, checkpoint, settings, on_event)
        begin = {"event": "begin", "images": len(lesson.experience.images), "classes": len(lesson.names)}
        on_event(begin | {"steps": planned_steps(model, lesson, recipe), "minibatch": recipe.n_mbe + recipe.n_mbr})
        with checkpoint.saving():
            learn(model, lesson, recipe, checkpoint.tick(on_event))
        notes += learned_message(model, lesson, len(plan.unlabelled.images))
        evaluation = evaluate(model, lesson, baseline, settings.max_drop)
        return publish(store, plan, lesson, evaluation, checkpoint, settings, notes, started)


def dry_run(
    path: Path,
    photos: Path,
    options: ModelOptions | Mapping[str, Any] | None = None,
    settings: LessonSettings | None = None,
    *,
    on_event: OnEvent = ignore_event,
    context: Context | None = None,
) -> Plan:
    """What `teach` would learn with these arguments; it refuses what `teach` would refuse, and writes nothing."""
    store = Store(path)
    store.directory.check_location()
    context = context or Context(engine="auto")
    plan = plan_lesson(store, photos, options, settings or LessonSettings(), on_event, context)
    if plan.model.memory is not None:
        corrected, held_out = set(plan.photos.ids[plan.photos.corrected].tolist()), plan.model.held_out
        left = {c for id_, c in plan.model.taught.items() if id_ not in held_out and id_ not in corrected}
        plan.model.memory.check_room(len(left) + len(plan.new_classes))
    return plan


def _unlearn_corrected(plan: Plan, on_event: OnEvent) -> list[str]:
    """Unlearn photos that have moved to another class; return a sentence for each class forgotten with them."""
    if plan.n_corrected == 0:
        return []
    model, names = plan.model, list(plan.model.names)
    on_event({"event": "corrected", "images": plan.n_corrected})
    removal.unteach(model, plan.photos.images.select(plan.photos.corrected.nonzero().view(-1)))
    return [removal.forgotten_message(name) for name in names if name not in model.names]


@contextmanager
def _no_empty_folder(store: Store, new: bool) -> Iterator[None]:
    """Remove the folder of a new model if its first lesson is refused."""
    try:
        yield
    finally:
        if new:
            store.remove_if_empty()
