"""Manage a model: evaluate it, rename or forget a class, remove photos."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch

from triphase.app import removal, thumbnails
from triphase.app.class_names import class_name, no_such_class, normalized
from triphase.app.model import Model
from triphase.app.predictor import Predictor
from triphase.app.publishing import version_state
from triphase.app.scan import classes_in, find_taught, scan
from triphase.app.store import identities
from triphase.app.store.rewriting import rewrite
from triphase.app.store.schema import Version
from triphase.app.store.versions import WHERE_IT_BEGAN, Store, open_store
from triphase.budget import Budget
from triphase.context import Context
from triphase.data.images import Images
from triphase.errors import BadData, CorruptState, InvalidValue, Mismatch, few
from triphase.events import OnEvent, ignore_event
from triphase.printable import printable


@dataclass(frozen=True)
class ModelEvaluation:
    """Accuracy of a model on photos in class folders."""

    accuracy: float  # arg max, whether or not the answer would have been "unknown"
    per_class: dict[str, float]
    unknown_rate: float  # answered "unknown"
    images: int
    taught: int  # photos among them that the model was taught, which raises the accuracy
    classes: list[str]  # of the model, in the order of the confusion
    confusion: list[list[int]]  # rows: true classes, columns: answers
    skipped: list[str]


class Untaught(NamedTuple):
    """What `unteach` has done."""

    version: Version
    images: int  # photos that were removed
    skipped: list[str]  # a sentence for each photo that cannot be read (only with skip_bad)


@contextmanager
def changing(path: Path, device: str | torch.device | None = None) -> Iterator[tuple[Store, Model, Version]]:
    """Open the model in use for one writer; a lesson that was learned in part must be finished first."""
    store = open_store(path)
    with store.lock():
        state, version = store.load()
        model = Model.from_state(state, Context(engine="auto", device=device))
        if model.pending:
            raise InvalidValue(
                f"Version {version.number} has learned the last lesson in part: finish it {WHERE_IT_BEGAN}, "
                f"or {store.undo_hint()}"
            )
        yield store, model, version


def evaluate(
    path: Path,
    folder: Path,
    *,
    skip_bad: bool = False,
    on_event: OnEvent = ignore_event,
    device: str | torch.device = "cpu",
) -> ModelEvaluation:
    """Accuracy on class folders; classes that the model does not know are refused."""
    store, budget = open_store(path), Budget()
    parts, _ = store.load(parts=("inference", "taught"))
    predictor, taught = Predictor(parts, device, torch.get_num_threads()), parts["taught"]
    names = predictor.names
    if untaught := [name for name in classes_in(folder) if name not in names]:
        raise Mismatch(
            f"The model was never taught {few(untaught)}; it knows {few(names)}. "
            "Teach these photos, or leave them out."
        )
    photos = scan(folder, predictor.size, budget, skip_bad=skip_bad, on_event=on_event)
    probabilities, known = predictor.predict(photos.images)
    y = torch.tensor([names.index(name) for name in photos.names], dtype=torch.long)[photos.labels]
    guess, n = probabilities.argmax(1), len(names)
    correct = (guess == y).double()
    taught_ids = {*taught["ids"].tolist(), *taught["pending_ids"].tolist()}
    return ModelEvaluation(
        accuracy=float(correct.mean()),
        per_class={name: float(correct[y == c].mean()) for c, name in enumerate(names) if bool((y == c).any())},
        unknown_rate=1 - float(known.float().mean()),
        images=len(photos),
        taught=sum(id_ in taught_ids for id_ in photos.ids.tolist()),
        classes=list(names),
        confusion=torch.bincount(y * n + guess, minlength=n * n).view(n, n).tolist(),
        skipped=photos.skipped,
    )


def rename(path: Path, old: str, new: str) -> Version:
    """Give a class another name; a new version, which `undo` takes back."""
    old, new = normalized(old), class_name(new)
    with changing(path) as (store, model, version):
        if old not in model.names:
            raise no_such_class(model.names, old)
        if new in model.names:
            raise InvalidValue(f"There is a class {new!r} already; two classes cannot be made one by renaming.")
        model.names[model.names.index(old)] = new
        info = version.info | model.describe()
        event = {"event": "renamed", "old": old, "new": new}
        return store.publish(version_state(model), info, event, renamed=(old, new))


def forget(path: Path, name: str, *, everywhere: bool = False, device: str | torch.device | None = None) -> Version:
    """Remove a class from the version in use, or with `everywhere` from every version and the history."""
    name = normalized(name)
    with changing(path, device) as (store, model, version):
        if name not in model.names:
            if everywhere and _was_ever_known(store, name):
                return _forget_everywhere(store, name, device)
            raise no_such_class(model.names, name)
        if len(model.names) == 1:
            raise _only_class(name, store)
        if everywhere:
            return _forget_everywhere(store, name, device)
        label = model.names.index(name)
        thumbnails.remove(store, [id_ for id_, own in model.taught.items() if own == label])
        removal.forget(model, name)
        store.discard_work()  # an interrupted lesson holds it, too, and could not be continued
        return store.publish(version_state(model), info_without_accuracy(version.info, model), {"event": "forgot"})


def unteach(
    path: Path,
    photos: Sequence[Path],
    *,
    skip_bad: bool = False,
    on_event: OnEvent = ignore_event,
    device: str | torch.device | None = None,
) -> Untaught:
    """Remove photos, by content, from memory, exemplars and statistics.

    `photos` are files, or folders with photos at any depth.
    """
    with changing(path, device) as (store, model, version):
        files, ids, skipped = find_taught(photos, model.taught, skip_bad=skip_bad, on_event=on_event)
        if not files:
            raise BadData(f"No photo in {_shown_paths(photos)} was taught to this model: nothing to take back.")
        labels = torch.tensor([model.taught[id_] for id_ in ids.tolist()])
        count = removal.unteach(model, Images.from_files(files, labels, ids, model.size))
        return Untaught(publish_untaught(store, model, version, ids.tolist()), count, skipped)


def publish_untaught(store: Store, model: Model, version: Version, ids: Sequence[int]) -> Version:
    """Publish a model from which photos were removed; a model without photos is refused."""
    if not model.names:
        raise InvalidValue(
            f"These are all the photos that it was taught: to forget everything, delete {store.path}."
        )
    thumbnails.remove(store, ids)
    store.discard_work()
    info = info_without_accuracy(version.info, model)
    return store.publish(version_state(model), info, {"event": "untaught", "images": len(ids)})


def info_without_accuracy(info: dict[str, Any], model: Model) -> dict[str, Any]:
    """The description of a version after a removal, without the accuracy, which included what was removed."""
    return info | model.describe() | {"accuracy": None}


def _shown_paths(photos: Sequence[Path]) -> str:
    others = len(photos) - 1
    more = f" and {others} other place{'s' if others > 1 else ''}" if others else ""
    return f"{printable(photos[0])}{more}"


def _forget_everywhere(store: Store, name: str, device: str | torch.device | None) -> Version:
    """Take a class out of every version that is kept, under whatever name, and all its names out of the history."""
    versions = [store.version(number) for number in store.version_numbers()]
    ids, names = _identify(store, name, versions)

    def gone(version: Version) -> list[str]:
        """The classes to forget; in older versions also another class that had this name then."""
        return [c for c, identity in version.identities.items() if c == name or identity.id in ids]

    def without(state: dict[str, Any], version: Version) -> tuple[dict[str, Any], dict[str, Any]] | None:
        if not gone(version):
            return state, version.info
        if len(gone(version)) == len(version.identities):  # an older version that knew nothing else
            return None
        model = Model.from_state(state, Context(engine="auto", device=device))
        for known in gone(version):
            removal.forget(model, known)
        return version_state(model), info_without_accuracy(version.info, model)

    def scrubbed(event: dict[str, Any]) -> dict[str, Any]:
        hidden = {key: None for key in ("old", "new") if event.get(key) in names}
        classes = {c: n for c, n in event.get("classes", {}).items() if c not in names}
        return event | hidden | ({"classes": classes} if "classes" in event else {})

    if len(gone(store.version())) == len(store.version().identities):
        raise _only_class(name, store)
    for version in versions:
        thumbnails.remove(store, thumbnails.photos_of(store, version, gone(version)))
    version = rewrite(store, without, scrubbed, {"event": "forgot"}, forgotten_names=names)
    _check_forgotten(store, ids, names)
    return version


def _only_class(name: str, store: Store) -> InvalidValue:
    return InvalidValue(f"{name} is the only class: to forget everything, delete {store.path}.")


def _identify(store: Store, name: str, versions: Sequence[Version]) -> tuple[set[str], set[str]]:
    """The identities of the classes to forget, and all names that they have or had.

    These are all classes that are or were called `name`, except one that has another name in the version in use.
    """
    current = store.version().identities
    others = {identity.id: known for known, identity in current.items() if known != name}
    ids = identities.ids_of(name, versions)
    if name not in current and (renamed := sorted(others[id_] for id_ in ids if id_ in others)):
        raise InvalidValue(f"{name} is called {renamed[0]} now: give that name to forget the class.")
    ids -= others.keys()
    names = {name, *identities.names_of(ids, versions)}
    for event in reversed(store.history()):  # names of versions that are no longer kept
        if event["event"] == "renamed" and event["new"] in names and event["old"] is not None:
            names.add(event["old"])
    return ids, names


def _check_forgotten(store: Store, ids: set[str], names: set[str]) -> None:
    """Refuse to report success while a version or the history holds a class."""
    versions = [store.version(number) for number in store.version_numbers()]
    if ids & {identity.id for version in versions for identity in version.identities.values()}:
        raise CorruptState(f"A version of {store.path} holds the class after all: run the same command again.")
    if any(names & _names_in(event) for event in store.history()):
        raise CorruptState(f"The history of {store.path} names the class after all: run the same command again.")


def _names_in(event: dict[str, Any]) -> set[str]:
    return {*event.get("classes", ()), *(event[key] for key in ("old", "new") if event.get(key) is not None)}


def _was_ever_known(store: Store, name: str) -> bool:
    """Whether a version that is kept knows a class of this name, or the history mentions it."""
    versions = [store.version(number) for number in store.version_numbers()]
    return bool(identities.ids_of(name, versions)) or any(name in _names_in(event) for event in store.history())
