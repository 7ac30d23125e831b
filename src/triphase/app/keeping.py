"""What else is done with a model in use: ask it, test it, rename, forget, take back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from triphase.app.model import Answer, Model, unknown_classes
from triphase.app.photos import UNKNOWN, Watch, scan
from triphase.app.store import Store, Version
from triphase.data.images import Images
from triphase.errors import BadData, InvalidValue, Mismatch


@dataclass(frozen=True)
class Evaluation:
    """How a model does on photos that nobody taught it, or on any others."""

    accuracy: float  # arg max, whether or not the answer would have been "unknown"
    per_class: dict[str, float]
    unknown_rate: float  # answered "unknown"
    images: int
    taught: int  # photos among them that the model was taught: they flatter it
    confusion: list[list[int]]  # rows: true classes, columns: answers, in the model's order
    skipped: list[str]


def open_store(path: Path) -> Store:
    """The directory of a model that is there; a mistyped path leaves nothing behind."""
    store = Store(path)
    if not store.exists:
        raise BadData(f"{path} holds no model; teach one with: triphase teach {path} PHOTOS")
    return store


def open_model(path: Path) -> tuple[Model, Version]:
    """The model in use."""
    state, version = open_store(path).load()
    return Model.from_state(state), version


def predict(path: Path, photos: Sequence[Path]) -> list[Answer]:
    """What the model in use says about some files."""
    model, _ = open_model(path)
    for photo in photos:  # a missing file is a mistake of the caller: say so before work begins
        if not photo.is_file():
            raise BadData(f"There is no file {photo}.")
    return model.answers(_files(photos, model.size))


def evaluate(path: Path, folder: Path, *, skip_bad: bool = False, watch: Watch = lambda event: None) -> Evaluation:
    """Accuracy on class folders; classes that the model does not know are refused."""
    model, _ = open_model(path)
    photos = scan(folder, skip_bad=skip_bad, watch=watch)
    strangers = [name for name in photos.names if name not in model.names]
    if strangers:
        raise Mismatch(f"The model was never taught {', '.join(strangers)}; it knows {', '.join(model.names)}.")
    probabilities, known = model.scores(photos.images(model.size))
    y = torch.tensor([model.names.index(name) for name in photos.names], dtype=torch.long)[photos.labels]
    guess, n = probabilities.argmax(1), len(model.names)
    right = (guess == y).float()
    per_class = {
        name: float(right[y == label].mean()) for label, name in enumerate(model.names) if bool((y == label).any())
    }
    confusion = torch.bincount(y * n + guess, minlength=n * n).view(n, n).tolist()
    taught = sum(id_ in model.taught for id_ in photos.ids.tolist())
    unknown = 1 - float(known.float().mean())
    return Evaluation(float(right.mean()), per_class, unknown, len(photos), taught, confusion, photos.skipped)


def rename(path: Path, old: str, new: str) -> Version:
    """Give a class another name; a new version, which `undo` takes back."""
    if new.strip().casefold() == UNKNOWN or not new.strip():
        raise InvalidValue(f"A class cannot be called {new!r}: choose another name.")
    store = open_store(path)
    with store.lock():
        model, version = open_model(path)
        if old not in model.names:
            raise unknown_classes(model.names, old)
        if new in model.names:
            raise InvalidValue(f"There is a class {new!r} already; two classes cannot be made one by renaming.")
        model.names[model.names.index(old)] = new
        info = version.info | model.describe()
        return store.publish(model.state_dict(), info, {"event": "renamed", "old": old, "new": new})


def forget(path: Path, name: str, *, everywhere: bool = False) -> Version:
    """Take a class out of the version in use, or with `everywhere` out of every version and the history."""
    store = open_store(path)
    with store.lock():
        model, version = open_model(path)
        if name not in model.names:
            if everywhere and _ever(store, name):
                return _forget_everywhere(store, name)
            raise unknown_classes(model.names, name)
        if len(model.names) == 1:
            raise InvalidValue(f"{name} is the only class: to forget everything, delete {path}.")
        if everywhere:
            return _forget_everywhere(store, name)
        model.forget(name)
        return store.publish(model.state_dict(), version.info | model.describe(), {"event": "forgot"})


def unteach(
    path: Path, folder: Path, *, skip_bad: bool = False, watch: Watch = lambda event: None
) -> tuple[Version, int]:
    """Take the photos of a folder, by content, out of memory, exemplars and statistics; how many were there."""
    store = open_store(path)
    with store.lock():
        model, version = open_model(path)
        photos = scan(folder, skip_bad=skip_bad, watch=watch)
        count = model.unteach(photos.images(model.size))
        if count == 0:
            raise BadData(f"None of the photos in {folder} was taught to this model: nothing to take back.")
        info = version.info | model.describe()
        return store.publish(model.state_dict(), info, {"event": "untaught", "images": count}), count


def _forget_everywhere(store: Store, name: str) -> Version:
    def without(state: dict[str, Any], info: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        if name not in state["app"]["names"]:
            return state, info
        model = Model.from_state(state)
        if len(model.names) == 1:
            raise InvalidValue(
                f"{name} is the only class of an older version: teach with --keep 1 first, then forget."
            )
        model.forget(name)
        return model.state_dict(), info | model.describe()

    def scrubbed(event: dict[str, Any]) -> dict[str, Any]:
        names = {key: None for key in ("old", "new") if event.get(key) == name}
        classes = {c: n for c, n in event.get("classes", {}).items() if c != name}
        return event | names | ({"classes": classes} if "classes" in event else {})

    return store.rewrite(without, scrubbed, {"event": "forgot"})


def _ever(store: Store, name: str) -> bool:
    return any(name in store.load(number)[0]["app"]["names"] for number in store.numbers())


def _files(paths: Sequence[Path], size: int) -> Images:
    """Files as images without classes; ids are of no use here."""
    n = len(paths)
    return Images.from_files(list(paths), torch.zeros(n, dtype=torch.long), torch.arange(n), size)
