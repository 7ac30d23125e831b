"""A lesson: photos in, a new version of a model out, or none. Killed at any instant, the same call goes on.

What is going on is told as plain events, {"event": ...}, which a terminal or a page can draw.
"""

from __future__ import annotations

import hashlib
import math
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from triphase.app import calibration, removal
from triphase.app.evaluation import ClassLine, Measured, table
from triphase.app.model import Model
from triphase.app.options import Options, parse_memory
from triphase.app.scan import Photos, scan
from triphase.app.store.schema import LessonMark
from triphase.app.store.versions import Store
from triphase.budget import Budget
from triphase.checkpoint import Checkpoint
from triphase.context import Context
from triphase.data.recipe import Recipe
from triphase.data.streams import Experience
from triphase.errors import CannotWrite, CorruptState, InvalidValue, Mismatch
from triphase.learners.protocol import Step
from triphase.state import State

Watch = Callable[[dict[str, Any]], object]
SAVE_EVERY, DRAW_EVERY = 1.0, 0.1
KEEP = 10  # versions


@dataclass(frozen=True)
class Outcome:
    """What became of a lesson."""

    published: bool
    version: int | None  # in use afterwards
    learned: int
    known_already: int
    corrected: int
    classes: list[ClassLine]
    verdict: calibration.Verdict
    confused: list[tuple[str, str, int, int]]  # class, new class it is taken for, how many, of how many
    seconds: float
    unlearned: bool  # the lesson's own held-out photos are right so rarely that its labels cannot be meant
    skipped: list[str] = field(default_factory=list)  # a sentence for each photo that cannot be read
    notes: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """For --json."""
        return asdict(self) | {"refused": self.verdict.refused, "drop": self.verdict.drop}


@dataclass(frozen=True)
class Plan:
    """What a lesson would do."""

    photos: Photos
    new_classes: list[str]
    counts: dict[str, int]  # to be learned, per class
    doubtful: list[str]  # a sentence for each class that corrections would take most photos from
    pending: frozenset[int]  # ids of photos that only the quick half of a lesson has seen

    def to_json(self) -> dict[str, Any]:
        """For --dry-run."""
        return {
            "learn": self.counts,
            "new_classes": self.new_classes,
            "known_already": sum(self.photos.known_already.values()),
            "corrected": int(self.photos.corrected.sum()),
            "repeats": self.photos.repeats,
            "skipped": self.photos.skipped,
            "notes": [*self.photos.remarks, *self.doubtful],
        }


def recipe_for(n: int, n_memory: int) -> Recipe:
    """How a lesson of n photos is trained on beside n_memory stored samples: by the amount of data alone.

    Replay is as large as the memory asks for, up to twice the lesson, and consolidation up to four times: what a
    lesson costs depends on the lesson. Few photos get more epochs, so that there are 6 to 12 steps. A model that
    has seen little altogether gets more of everything in small minibatches, which would harm one that has seen
    much. benchmarks/results/lesson_recipe.md has the measurements.
    """
    little = n + min(4 * n, n_memory) < 256 and n_memory < 512
    share = min(4.0 if little else 2.0, n_memory / n)
    n_mb, steps, most = (32, 40.0, 20) if little else (128, 12 / (1 + share / 2), 10)
    n_mbe = max(1, round(n_mb / (1 + share)))
    return Recipe(
        epochs=min(most, max(4, math.ceil(steps * n_mbe / n))),
        lr=0.1,
        csf_lr=0.03,
        n_mbe=n_mbe,
        n_mbr=n_mb - n_mbe,
        balanced=max(4 * n, 512),
    )


def plan(
    store: Store,
    base: tuple[State | None, frozenset[int]],
    photos: Path,
    size: int,
    budget: Budget | None,
    *,
    skip_bad: bool = False,
    watch: Watch = lambda event: None,
) -> Plan:
    """Look at the photos and at what was taught before; nothing is written. Pixels are kept within `budget`."""
    state, pending = base
    taught: dict[int, str] = {}
    known: list[str] = []
    if state is not None:
        known = list(state["app"]["names"])
        pairs = zip(state["taught"]["ids"].tolist(), state["taught"]["labels"].tolist(), strict=True)
        taught = {id_: known[label] for id_, label in pairs}
    found = scan(photos, size, budget, taught=taught, skip_bad=skip_bad, watch=watch)
    if pending - set(found.ids.tolist()):
        raise Mismatch(
            f"{store.path} has learned the last lesson in part (--quick), and not all its photos are in {photos}: "
            f"finish that lesson with the command that began it, or {store.undo_hint()}"
        )
    counts = torch.bincount(found.labels, minlength=len(found.names)).tolist()
    learned = {name: n for name, n in zip(found.names, counts, strict=True) if n}
    new = [name for name in learned if name not in known]
    return Plan(found, new, learned, _doubtful(found, taught, learned), pending)


def _doubtful(found: Photos, taught: dict[int, str], learned: dict[str, int]) -> list[str]:
    """Classes that go on, but lose most of what they were learned from; no exemplar can tell what that does."""
    before, moved = Counter(taught.values()), Counter(taught[id_] for id_ in found.ids[found.corrected].tolist())
    return [
        f"{n} of the {before[name]} photos that {name} was learned from lie in other classes now."
        for name, n in moved.items()
        if 2 * n > before[name] and (n < before[name] or name in learned)
    ]


def rehearse(
    path: Path,
    photos: Path,
    options: Mapping[str, Any] | None = None,
    *,
    max_drop: float = 0.02,
    force: bool = False,
    quick: bool = False,
    skip_bad: bool = False,
    keep: int = KEEP,
    watch: Watch = lambda event: None,
) -> Plan:
    """What `teach` would learn with these arguments; what it would refuse is refused, and nothing is written."""
    _check(max_drop, keep)
    store = Store(path)
    store.directory.check_location()
    base = _base(store)
    agreed = _agreed(store, base[0], dict(options or {}), quick=quick)
    model = Model(agreed) if base[0] is None else Model.from_state(base[0])
    found = plan(store, base, photos, model.size, None, skip_bad=skip_bad, watch=watch)
    _check_corrections(found, force)
    if model.memory is not None:
        moved = set(found.photos.ids[found.photos.corrected].tolist())
        stay = {label for id_, label in model.taught.items() if id_ not in model.apart and id_ not in moved}
        model.memory.check_room(len(stay) + len(found.new_classes))
    return found


def teach(
    path: Path,
    photos: Path,
    options: Options | Mapping[str, Any] | None = None,
    *,
    max_drop: float = 0.02,
    force: bool = False,
    quick: bool = False,
    skip_bad: bool = False,
    keep: int = KEEP,
    watch: Watch = lambda event: None,
) -> Outcome:
    """Learn what is new in a folder of photos and publish it, unless the classes known before suffer too much.

    `options` are those that were asked for; they make a new model, and must agree with one that is there.
    """
    _check(max_drop, keep)
    given = asdict(options) if isinstance(options, Options) else dict(options or {})
    store, new = Store(path), not path.exists()
    context = Context()
    with store.lock(), context.reuse_latents():
        try:
            return _Lesson(store, photos, given, max_drop, force, quick, skip_bad, keep, watch, context).go()
        finally:
            if new:
                store.remove_if_empty()


class _Lesson:
    def __init__(
        self,
        store: Store,
        folder: Path,
        options: dict[str, Any],
        max_drop: float,
        force: bool,
        quick: bool,
        skip_bad: bool,
        keep: int,
        watch: Watch,
        context: Context,
    ) -> None:
        self.context = context
        self.store, self.watch, self.max_drop, self.force, self.keep = store, watch, max_drop, force, keep
        self.quick, self.started = quick, time.perf_counter()
        base = _base(store)
        self.options = _agreed(store, base[0], options, quick=quick)
        if base[0] is None:
            self.model = Model(self.options, context=context)
        else:
            self.model = Model.from_state(base[0], context)
        self.plan = plan(store, base, folder, self.model.size, context.budget, skip_bad=skip_bad, watch=watch)
        _check_corrections(self.plan, force)
        self.half = bool(self.plan.pending)  # the version in use has seen this lesson in part
        self.saved_at = self.drawn_at = 0.0
        self.checkpoint = Checkpoint(store.work / "state", store.check_lock)

    def go(self) -> Outcome:
        """The whole lesson."""
        photos, notes = self.plan.photos, list(self.plan.photos.remarks)
        if len(photos) == 0:
            return self._nothing(notes)
        model, images = self.model, photos.images
        if bool(photos.corrected.any()):
            moved = images.select(photos.corrected.nonzero().view(-1))
            self.watch({"event": "corrected", "images": len(moved)})
            names = list(model.names)
            removal.unteach(model, moved)
            notes += [
                f"{name} has no photo left that it was learned from, so the class is forgotten."
                for name in names
                if name not in model.names
            ]
        before, old = Measured(model), len(model.names)
        experience, names = model.lesson(images, photos.names, photos.hashes)
        if model.memory is not None:
            model.memory.check_room(len(names))  # before anything is written
        memory = 0 if model.memory is None else len(model.memory)
        recipe = recipe_for(max(1, len(experience.training)), memory)
        resumed, started_again = self._continue(model, photos)
        notes += started_again
        glanced = resumed or self.plan.pending == set(photos.ids.tolist())
        if self.quick and not glanced and len(experience.training):
            self._glance(model, experience, names, recipe, before, old)
        self._learn(model, experience, names, recipe)
        return self._judge(model, experience, before, old, notes)

    def _continue(self, model: Model, photos: Photos) -> tuple[bool, list[str]]:
        """Take up what an interrupted lesson left, if it was this one; whether it was, and what to say about it."""
        digest = hashlib.sha256(photos.ids.numpy().tobytes() + photos.labels.numpy().tobytes())
        digest.update(str((photos.names, asdict(self.options))).encode())
        current = self.store.current()
        parent, notes = current.number if current else 0, []
        mark = LessonMark(lesson=digest.hexdigest(), parent=parent, threads=torch.get_num_threads())
        try:
            saved = self.store.read_lesson()
            state = self.checkpoint.load() if saved is not None else None
        except (CorruptState, Mismatch):
            saved, state = None, None
        if saved is not None and (saved.lesson, saved.parent) != (mark.lesson, mark.parent):
            if state is not None:
                notes = ["The photos or the model changed since a lesson was interrupted: it was started again."]
            state = None
        if saved and state is not None and saved.threads != torch.get_num_threads():
            notes = [
                f"The lesson was interrupted under {saved.threads} CPU thread(s), and this process has "
                f"{torch.get_num_threads()}, which rounds otherwise: it was started again."
            ]
            state = None
        if state is None:
            self.store.discard_work()
            self.checkpoint = Checkpoint(self.store.work / "state", self.store.check_lock)
            self.store.write_lesson(mark)
            return False, notes
        model.load_state_dict(state)
        self.watch({"event": "resumed"})
        return True, ["An interrupted lesson was continued."]

    def _learn(self, model: Model, experience: Experience, names: list[str], recipe: Recipe) -> None:
        self.watch({"event": "begin", "images": len(experience.images), "classes": len(names)})
        self.saved_at = time.perf_counter()

        def tick(step: Step) -> None:
            now = time.perf_counter()
            if step.step == step.steps or now - self.drawn_at >= DRAW_EVERY:
                event = {"event": "step", "phase": step.phase, "epoch": step.epoch, "epochs": step.epochs}
                self.watch(event | {"step": step.step, "steps": step.steps})
                self.drawn_at = now
            if now - self.saved_at >= SAVE_EVERY:
                self.checkpoint.save(model.state_dict(), wait=False)
                self.saved_at = time.perf_counter()

        try:
            model.learn(experience, names, recipe, tick)
        finally:
            self.checkpoint.wait()

    def _glance(
        self, model: Model, experience: Experience, names: list[str], recipe: Recipe, before: Measured, old: int
    ) -> None:
        """Publish what a closed form makes of the lesson at once; consolidation follows."""
        model.glance(experience, names, recipe)
        verdict = before.verdict(model, old, self.max_drop)
        if self.force or not (verdict.refused or before.unlearned(model, experience)):
            event = {"event": "glanced", "images": len(experience.images), "drop": verdict.drop}
            info = self._info(model, verdict)
            version = self.store.publish(model.state_dict(), info, event, replace_current=self.half)
            self.half = True
            if (saved := self.store.read_lesson()) is not None:
                self.store.write_lesson(saved.model_copy(update={"parent": version.number}))
            self.watch({"event": "glanced", "version": version.number})

    def _judge(self, model: Model, experience: Experience, before: Measured, old: int, notes: list[str]) -> Outcome:
        """Publish if the guard agrees or is overruled."""
        verdict = before.verdict(model, old, self.max_drop)
        unlearned = before.unlearned(model, experience)
        published = self.force or not (verdict.refused or unlearned)
        outcome = Outcome(
            published=published,
            version=None,
            learned=len(experience.images),
            known_already=sum(self.plan.photos.known_already.values()),
            corrected=int(self.plan.photos.corrected.sum()),
            classes=table(model, experience, before, old),
            verdict=verdict,
            confused=before.confused(model, old),
            seconds=0.0,
            unlearned=unlearned,
            skipped=self.plan.photos.skipped,
            notes=notes,
        )
        with suppress(CannotWrite):  # of a state that nobody needs any more
            self.checkpoint.close()
        if published:
            event = {"event": "taught", "images": outcome.learned, "classes": self.plan.counts}
            event |= {"before": verdict.before, "after": verdict.after, "forced": verdict.refused or unlearned}
            self.store.publish(model.state_dict(), self._info(model, verdict), event, replace_current=self.half)
        elif self.half:
            self.store.undo()  # the quick half of what is refused goes, too
        try:
            if published:
                self.store.prune(self.keep)
            self.store.discard_work()
        except CannotWrite as error:  # the lesson is over; the next writer clears up
            notes.append(f"The lesson is over, but what it left cannot be cleared away: {error}")
        current = self.store.current()
        seconds = time.perf_counter() - self.started
        return replace(outcome, version=current.number if current else None, seconds=seconds)

    def _info(self, model: Model, verdict: calibration.Verdict) -> dict[str, Any]:
        """What the version will say about itself; what a program said about its labels stays."""
        current = self.store.current()
        labels = {"labels": current.info["labels"]} if current and "labels" in current.info else {}
        return labels | model.describe() | {"accuracy": verdict.after}

    def _nothing(self, notes: list[str]) -> Outcome:
        current = self.store.current()
        nothing = torch.empty(0, dtype=torch.bool)
        verdict = calibration.guard(nothing, nothing, nothing.long(), self.max_drop)
        known = sum(self.plan.photos.known_already.values())
        lesson = self.store.read_lesson()
        if lesson is not None and current is not None and lesson.parent < current.number:
            self.store.discard_work()  # of a lesson that was published just before it was interrupted
            self.store.prune(self.keep)
        return Outcome(
            published=False,
            version=current.number if current else None,
            learned=0,
            known_already=known,
            corrected=0,
            classes=[],
            verdict=verdict,
            confused=[],
            seconds=time.perf_counter() - self.started,
            unlearned=False,
            skipped=self.plan.photos.skipped,
            notes=[*notes, f"All {known} photos have been taught before: there is nothing to learn."],
        )


def recorded_threads(path: Path) -> int | None:
    """The number of CPU threads that the interrupted lesson of a model was begun with; None if there is none."""
    try:
        lesson = Store(path).read_lesson()
    except (CorruptState, Mismatch):  # one that will start again
        return None
    return lesson.threads if lesson is not None else None


def _base(store: Store) -> tuple[State | None, frozenset[int]]:
    """What a lesson goes on from, and the photos that only the quick half of an unfinished one has seen."""
    if not store.exists:
        return None, frozenset()
    state, version = store.load()
    pending = frozenset(state["taught"]["pending_ids"].tolist())
    while len(state["taught"]["pending_ids"]):
        if version.parent is None:  # half of the first lesson: it goes on from nothing
            return None, pending
        state, version = store.load(version.parent)
    return state, pending


def _check_corrections(plan: Plan, force: bool) -> None:
    if plan.doubtful and not force:
        raise Mismatch(f"{' '.join(plan.doubtful)} If that is meant, teach with --force; else move them back.")


def _check(max_drop: float, keep: int) -> None:
    if not 0 <= max_drop < 1:
        raise InvalidValue(f"max_drop must be in [0, 1), got {max_drop}: 0.02 allows a loss of 2 points.")
    if keep < 1:
        raise InvalidValue(f"keep must be at least 1, got {keep}: the version in use is one of those kept.")


def _agreed(store: Store, state: State | None, given: dict[str, Any], *, quick: bool) -> Options:
    """The options of the model; what was said at its first lesson cannot be changed."""
    agreed = Options(**given)
    current = store.current()
    if current is not None:
        agreed = _kept(Options(**(state or store.load()[0])["app"]["options"]), current.info["image_size"], given)
    if quick and agreed.learner != "anchored":
        raise InvalidValue(f"The learner {agreed.learner} has one speed; --quick needs anchored.")
    return agreed


def _kept(saved: Options, image_size: int, given: dict[str, Any]) -> Options:
    """The saved options, if those given agree with them."""
    for name, value in given.items():
        was = image_size if name == "image_size" else getattr(saved, name)
        same = (
            parse_memory(value) == parse_memory(was) if name == "memory" else value in (was, getattr(saved, name))
        )
        if not same:
            raise Mismatch(
                f"This model was made with {name.replace('_', '-')} {was}, not {value}: "
                "leave the option out, or teach a new model."
            )
    return saved
