"""What a lesson would learn: the model that it starts from, and the photos that are new to it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch

from triphase.app.evaluation import check_max_drop
from triphase.app.model import Model
from triphase.app.network import complete_options
from triphase.app.options import ModelOptions
from triphase.app.photo_size import size_for_folder
from triphase.app.scan import Photos, UnlabelledPhotos, scan, scan_unlabelled
from triphase.app.store.versions import WHERE_IT_BEGAN, Store
from triphase.app.unlabelled import Unlabelled, left_out_message
from triphase.context import Context
from triphase.data.sources.folder import class_folders, unlabelled_files
from triphase.data.streams import NO_IMAGES
from triphase.errors import InvalidValue, Mismatch
from triphase.events import OnEvent
from triphase.learners.protocol import Consolidates, QuickLearner, UsesUnlabelled

KEEP = 10  # versions
LessonPrecision = Literal["float32", "bfloat16"]  # float16 would need a scale of the loss from lesson to lesson


@dataclass(frozen=True)
class LessonSettings:
    """How a lesson is judged and published, whatever it teaches."""

    max_drop: float = 0.02  # what the classes known before may lose
    force: bool = False  # publish even if they lose more
    quick: bool = False  # publish what the closed form has learned at once
    skip_bad: bool = False  # go on without photos that cannot be read
    keep: int = KEEP
    unlabelled: Unlabelled = "ignore"  # pseudo: learn from photos in _unlabelled as what the model takes them for
    precision: LessonPrecision = "float32"  # of activations while it is learned; on the CPU, not of a frozen llf
    thorough: bool = False  # a consolidation will follow: refuse a model that cannot have one

    def __post_init__(self) -> None:
        check_max_drop(self.max_drop)
        if self.keep < 1:
            raise InvalidValue(f"keep must be at least 1, got {self.keep}: the version in use is one of them.")


@dataclass(frozen=True)
class Plan:
    """What a lesson would learn."""

    photos: Photos
    model: Model  # to start from
    pending: frozenset[int]  # ids of photos that only an unfinished quick lesson has seen
    counts: dict[str, int]  # photos to learn, per class
    n_known_already: int  # photos that were taught before
    n_corrected: int  # photos that were taught before as another class
    doubtful: list[str]  # sentences about what is probably a mistake, and is taught only with --force
    unlabelled: UnlabelledPhotos  # to learn from, if that was asked for

    @property
    def content(self) -> bytes:
        """What would be learned: which photos, as which classes, and which without a class."""
        return self.photos.content + self.unlabelled.images.ids.numpy().tobytes()

    @property
    def new_classes(self) -> list[str]:
        """Classes that the model does not know yet."""
        return [name for name in self.counts if name not in self.model.names]

    def to_json(self) -> dict[str, Any]:
        """For --dry-run."""
        return {
            "learn": self.counts,
            "new_classes": self.new_classes,
            "known_already": self.n_known_already,
            "corrected": self.n_corrected,
            "repeats": self.photos.repeats,
            "skipped": self.photos.skipped,
            "unlabelled": len(self.unlabelled.images),
            "notes": self.photos.remarks,
            "doubtful": self.doubtful,
        }


def check_consolidates(model: Model) -> Consolidates:
    """The learner of a model, if it can be consolidated and samples are stored for that."""
    if not isinstance(model.learner, Consolidates):
        raise InvalidValue(f"The learner {model.options.learner} has nothing to consolidate; anchored has.")
    if model.memory is None:
        raise InvalidValue("Nothing is stored of what was taught (--replay none), so nothing can be consolidated.")
    return model.learner


def plan_lesson(
    store: Store,
    folder: Path,
    options: ModelOptions | Mapping[str, Any] | None,
    settings: LessonSettings,
    on_event: OnEvent,
    context: Context,
) -> Plan:
    """Open the model, scan the photos and compare the two; nothing is written."""
    model, pending, chosen = _open(store, folder, options, context)
    if settings.quick and not isinstance(model.learner, QuickLearner):
        raise InvalidValue(f"The learner {model.options.learner} has one speed; --quick needs anchored.")
    if settings.thorough:
        check_consolidates(model)
    taught = {id_: model.names[label] for id_, label in model.taught.items()}
    photos = scan(folder, model.size, context.budget, taught=taught, skip_bad=settings.skip_bad, on_event=on_event)
    if pending - set(photos.ids.tolist()):
        raise Mismatch(
            f"{store.path} has learned the last lesson in part, and not all its photos are in {folder}: "
            f"finish that lesson {WHERE_IT_BEGAN}, or {store.undo_hint()}"
        )
    per_class = torch.bincount(photos.labels, minlength=len(photos.names)).tolist()
    counts = {name: n for name, n in zip(photos.names, per_class, strict=True) if n}
    doubtful = _mostly_moved(photos, taught, counts)
    if photos.nested and not set(counts) & set(model.names):
        doubtful.append(photos.nested)
    if doubtful and not settings.force:
        raise Mismatch(f"{' '.join(doubtful)} If that is meant, teach with --force.")
    n_known_already, n_corrected = sum(photos.known_already.values()), int(photos.corrected.sum())
    taken = {*taught, *photos.ids.tolist()}
    unlabelled, remarks = _unlabelled(folder, model, settings, bool(counts), taken, on_event)
    skipped = [*photos.skipped, *unlabelled.skipped]
    photos = replace(photos, remarks=[*chosen, *photos.remarks, *remarks], skipped=skipped)
    return Plan(photos, model, pending, counts, n_known_already, n_corrected, doubtful, unlabelled)


def _unlabelled(
    folder: Path, model: Model, settings: LessonSettings, learns: bool, taken: Collection[int], on_event: OnEvent
) -> tuple[UnlabelledPhotos, list[str]]:
    """The unlabelled photos that a lesson learns from, or a sentence why it leaves them out."""
    found, size, uses = unlabelled_files(folder), model.size, isinstance(model.learner, UsesUnlabelled)
    asked_for = settings.unlabelled == "pseudo"
    if found and uses and asked_for and learns:
        budget, skip_bad = model.context.budget, settings.skip_bad

        def report(event: dict[str, Any]) -> None:
            on_event(event | {"unlabelled": True})

        return scan_unlabelled(folder, size, budget, taken, skip_bad=skip_bad, on_event=report), []
    remarks = [left_out_message(len(found), model.options.learner, uses, asked_for)] if found else []
    return UnlabelledPhotos(NO_IMAGES, torch.empty(0, 2, dtype=torch.long), []), remarks


def _open(
    store: Store, folder: Path, options: ModelOptions | Mapping[str, Any] | None, context: Context
) -> tuple[Model, frozenset[int], list[str]]:
    """The model after the last whole lesson, ids of photos that only a quick lesson since then has seen, and
    sentences about what was chosen for a new model.
    """
    given = asdict(options) if isinstance(options, ModelOptions) else dict(options or {})
    current = store.current()
    if current is None:
        n_photos = sum(len(one.images) for one in class_folders(folder))
        chosen, remarks = complete_options(ModelOptions(**given), n_photos, partial(size_for_folder, folder))
        return Model(chosen, context=context), frozenset(), remarks
    state, version = store.load()
    saved = ModelOptions(**state["app"]["options"])
    saved.check_agreement(current.info["image_size"], given)
    pending = frozenset(state["taught"]["pending_ids"].tolist())
    while len(state["taught"]["pending_ids"]):
        if version.parent is None:  # the first lesson is unfinished: it starts from a new model
            return Model(saved, context=context), pending, []
        state, version = store.load(version.parent)
    return Model.from_state(state, context), pending, []


def _mostly_moved(photos: Photos, taught: dict[int, str], counts: dict[str, int]) -> list[str]:
    """A sentence for each class that corrections take most photos from: held-out photos cannot show the effect."""
    before, moved = Counter(taught.values()), Counter(taught[id_] for id_ in photos.ids[photos.corrected].tolist())
    return [
        f"{n} of the {before[name]} photos that {name} was learned from lie in other classes now."
        for name, n in moved.items()
        if 2 * n > before[name] and (n < before[name] or name in counts)
    ]
