"""What else is done with a model in use: ask it, test it, rename, forget, take back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from triphase.app import removal
from triphase.app.class_names import class_name, normalized
from triphase.app.model import Model, no_such_class
from triphase.app.predictor import Predictor
from triphase.app.publishing import version_state
from triphase.app.scan import Watch, find_taught, scan
from triphase.app.store.files import Info, Version
from triphase.app.store.versions import Store
from triphase.context import Context
from triphase.data.images import Images
from triphase.errors import BadData, InvalidValue, Mismatch
from triphase.printable import printable


@dataclass(frozen=True)
class TestResult:
    """How a model does on photos that nobody taught it, or on any others."""

    accuracy: float  # arg max, whether or not the answer would have been "unknown"
    per_class: dict[str, float]
    unknown_rate: float  # answered "unknown"
    images: int
    taught: int  # photos among them that the model was taught: they flatter it
    classes: list[str]  # of the model, in the order of the confusion
    confusion: list[list[int]]  # rows: true classes, columns: answers
    skipped: list[str]


@dataclass(frozen=True)
class ClassCount:
    """How much of a class a model was taught, and how much of that it keeps."""

    name: str
    taught: int
    stored: int  # to learn from again
    exemplars: int  # to measure with


def open_store(path: Path) -> Store:
    """The directory of a model that is there; a mistyped path leaves nothing behind."""
    store = Store(path)
    store.version()
    return store


@contextmanager
def _changing(path: Path) -> Iterator[tuple[Store, Model, Version]]:
    """The model in use, to be changed by one writer; one that has learned half a lesson must finish it first."""
    store = open_store(path)
    with store.lock():
        state, version = store.load()
        model = Model.from_state(state)
        if model.pending:
            raise InvalidValue(
                f"Version {version.number} has learned the last lesson in part (--quick): finish it with the same "
                f"`triphase teach` as before, or {store.undo_hint()}"
            )
        yield store, model, version


def classes(path: Path) -> list[ClassCount]:
    """The classes of the model in use, in order of arrival."""
    info = open_store(path).version().info
    return [ClassCount(name, **counts) for name, counts in zip(info["classes"], info["counts"], strict=True)]


def evaluate(path: Path, folder: Path, *, skip_bad: bool = False, watch: Watch = lambda event: None) -> TestResult:
    """Accuracy on class folders; classes that the model does not know are refused."""
    store, context = open_store(path), Context()
    parts, _ = store.load(parts=("inference", "taught"))
    predictor, taught = Predictor(parts), parts["taught"]
    photos = scan(folder, predictor.size, context.budget, skip_bad=skip_bad, watch=watch)
    names = predictor.names
    if strangers := [name for name in photos.names if name not in names]:
        raise Mismatch(f"The model was never taught {', '.join(strangers)}; it knows {', '.join(names)}.")
    probabilities, known = predictor.predict(photos.images)
    y = torch.tensor([names.index(name) for name in photos.names], dtype=torch.long)[photos.labels]
    guess, n = probabilities.argmax(1), len(names)
    correct = (guess == y).double()
    taught_ids = {*taught["ids"].tolist(), *taught["pending_ids"].tolist()}
    return TestResult(
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
    with _changing(path) as (store, model, version):
        if old not in model.names:
            raise no_such_class(model.names, old)
        if new in model.names:
            raise InvalidValue(f"There is a class {new!r} already; two classes cannot be made one by renaming.")
        model.names[model.names.index(old)] = new
        info = version.info | model.describe()
        return store.publish(version_state(model), info, {"event": "renamed", "old": old, "new": new})


def forget(path: Path, name: str, *, everywhere: bool = False) -> Version:
    """Take a class out of the version in use, or with `everywhere` out of every version and the history."""
    name = normalized(name)
    with _changing(path) as (store, model, version):
        if name not in model.names:
            if everywhere and _ever(store, name):
                return _forget_everywhere(store, name)
            raise no_such_class(model.names, name)
        if len(model.names) == 1:
            raise InvalidValue(f"{name} is the only class: to forget everything, delete {path}.")
        if everywhere:
            return _forget_everywhere(store, name)
        removal.forget(model, name)
        store.discard_work()  # an interrupted lesson holds it, too, and could not be continued
        return store.publish(version_state(model), _info_without_accuracy(version.info, model), {"event": "forgot"})


def unteach(
    path: Path, photos: Sequence[Path], *, skip_bad: bool = False, watch: Watch = lambda event: None
) -> tuple[Version, int]:
    """Take photos, by content, out of memory, exemplars and statistics; how many of them were there.

    They are files, or folders in which they lie at any depth.
    """
    with _changing(path) as (store, model, version):
        files, ids = find_taught(photos, model.taught, skip_bad=skip_bad, watch=watch)
        if not files:
            raise BadData(f"No photo in {_places(photos)} was taught to this model: nothing to take back.")
        labels = torch.tensor([model.taught[id_] for id_ in ids.tolist()])
        count = removal.unteach(model, Images.from_files(files, labels, ids, model.size))
        if not model.names:
            raise InvalidValue(f"These are all the photos that it was taught: to forget everything, delete {path}.")
        info = _info_without_accuracy(version.info, model)
        store.discard_work()
        return store.publish(version_state(model), info, {"event": "untaught", "images": count}), count


def _info_without_accuracy(info: Info, model: Model) -> Info:
    """What a version says about itself once something is taken out; the accuracy was measured with it."""
    return info | model.describe() | {"accuracy": None}


def _places(photos: Sequence[Path]) -> str:
    others = len(photos) - 1
    more = f" and {others} other place{'s' if others > 1 else ''}" if others else ""
    return f"{printable(photos[0])}{more}"


def _forget_everywhere(store: Store, name: str) -> Version:
    called = _called(store, name)
    current = store.current()
    if current is not None and called[tuple(current.info["classes"])] == set(current.info["classes"]):
        raise InvalidValue(f"{name} is the only class: to forget everything, delete {store.path}.")
    aliases = _aliases(store, name)

    def without(state: dict[str, Any], info: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]] | None:
        gone = called.get(tuple(state["app"]["names"]))
        if not gone:
            return state, info
        if gone == set(state["app"]["names"]):  # an older version that knew nothing else
            return None
        model = Model.from_state(state)
        for alias in sorted(gone):
            removal.forget(model, alias)
        return version_state(model), _info_without_accuracy(info, model)

    def scrubbed(event: dict[str, Any]) -> dict[str, Any]:
        names = {key: None for key in ("old", "new") if event.get(key) in aliases}
        classes = {c: n for c, n in event.get("classes", {}).items() if c not in aliases}
        return event | names | ({"classes": classes} if "classes" in event else {})

    return store.rewrite(without, scrubbed, {"event": "forgot"})


def _called(store: Store, name: str) -> dict[tuple[str, ...], set[str]]:
    """What to forget where: for each list of classes, those called `name`, and those that became it by renaming."""
    versions = [store.version(number) for number in store.version_numbers()]
    names = {version.number: tuple(version.info["classes"]) for version in versions}
    parents = {v.number: v.parent for v in versions if v.parent in names}
    renamed = {e["version"]: (e["old"], e["new"]) for e in store.history() if e["event"] == "renamed"}
    gone = {number: {name} & set(known) for number, known in names.items()}
    for number in sorted(parents, reverse=True):  # a parent's number is lower than its child's
        old, new = renamed.get(number, (None, None))
        before = {old if alias == new else alias for alias in gone[number]}
        gone[parents[number]] |= before & set(names[parents[number]])
    called: dict[tuple[str, ...], set[str]] = {}
    for number, known in names.items():
        called.setdefault(known, set()).update(gone[number])
    return called


def _aliases(store: Store, name: str) -> set[str]:
    """All names that a class may have had; those of another class that was called the same are among them."""
    aliases = {name}
    for event in reversed(store.history()):
        if event["event"] == "renamed" and event["new"] in aliases:
            aliases.add(event["old"])
    return aliases


def _ever(store: Store, name: str) -> bool:
    """Whether a version that is kept knows the class, or the history tells of it."""
    told = any(name in (*e.get("classes", ()), e.get("old"), e.get("new")) for e in store.history())
    return told or any(name in store.version(number).info["classes"] for number in store.version_numbers())
