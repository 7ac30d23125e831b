"""ContinualClassifier: a model that is taught batch by batch, with scikit-learn's interface."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import NotFittedError
from torch import Tensor

from triphase.app import removal
from triphase.app.class_names import UNKNOWN, class_name
from triphase.app.hold_out import hold_out
from triphase.app.inference_parts import inference_parts
from triphase.app.learning import learn, lesson_recipe
from triphase.app.model import Model
from triphase.app.near_duplicates import HASH_SIZE, dhash
from triphase.app.network import complete_options
from triphase.app.options import ModelOptions
from triphase.app.photo_size import size_for_pictures
from triphase.app.pictures import Pictures, as_batch, as_images
from triphase.app.plan import KEEP
from triphase.app.predictor import Predictor
from triphase.app.publishing import version_state
from triphase.app.store.schema import Version
from triphase.app.store.versions import Store
from triphase.context import Context
from triphase.data.images import Images, resize
from triphase.errors import BadData, Busy, InvalidValue, Mismatch

KINDS: dict[str, Any] = {"str": str, "int": int, "bool": lambda name: name == "True", "float": float}


class ContinualClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """An image classifier that learns batch by batch; new labels may appear at any time.

    X is a sequence of paths, of PIL images or of uint8 arrays (HWC, CHW or HW, of any sizes), or one uint8 array
    (NHWC, NCHW or NHW). `classes_` lists the labels of `fit` in order, then others as they arrive.
    The network comes pre-trained, and computes on `device`: "auto" is a GPU where there is one.
    """

    model_: Model
    classes_: NDArray[Any]
    n_lessons_: int
    _kind: str
    _inference: tuple[Predictor, NDArray[Any]]  # after the last whole lesson, with the labels of its classes
    _origin: Version | None = None  # the version that was loaded, or saved last

    def __init__(
        self,
        backbone: str = "efficientnet_lite0",
        memory: int | str = "200MB",
        replay: Literal["raw", "latent", "none"] = "latent",
        image_size: int | None = None,
        learner: str = "anchored",
        seed: int = 0,
        weights: str | Path | None = None,
        device: str | torch.device = "auto",
    ) -> None:
        self.backbone, self.memory, self.replay, self.weights = backbone, memory, replay, weights
        self.image_size, self.learner, self.seed, self.device = image_size, learner, seed, device

    def fit(self, X: Pictures, y: Sequence[Any] | NDArray[Any]) -> ContinualClassifier:
        """Start again and learn one batch; `classes_` is then sorted, as scikit-learn's scorers expect."""
        with self._learning():
            for name in ("model_", "classes_", "_kind", "_origin", "_inference"):
                self.__dict__.pop(name, None)
            return self._lesson(X, y, in_order=True)

    def partial_fit(
        self, X: Pictures, y: Sequence[Any] | NDArray[Any], classes: object = None
    ) -> ContinualClassifier:
        """Learn one more batch; images that were learned before are recognised by their content.

        They must come in the same form as before: a path is identified by the bytes of its file, a PIL image and
        an array by their scaled pixels. `classes` is accepted for scikit-learn and ignored: classes may come at
        any time.
        """
        with self._learning():
            return self._lesson(X, y, in_order=False)

    @contextmanager
    def _learning(self) -> Iterator[None]:
        """Refuse a second lesson while one is learned; dict.setdefault is atomic."""
        mine = object()
        if self.__dict__.setdefault("_busy", mine) is not mine:
            raise Busy("Another thread is teaching this classifier; wait until that lesson is over.")
        try:
            yield
        finally:
            del self.__dict__["_busy"]

    def _lesson(self, X: Pictures, y: Sequence[Any] | NDArray[Any], *, in_order: bool) -> ContinualClassifier:
        labels, kind, pictures = *_labels(y), as_batch(X)
        names = list(dict.fromkeys(labels))
        if in_order:
            names.sort(key=KINDS[kind])
        if not hasattr(self, "model_"):
            options = ModelOptions(**self._model_options())
            completed, _ = complete_options(options, len(labels), partial(size_for_pictures, pictures))
            model = Model(completed, context=self._context())
        else:
            model = self.model_
            model.options.check_agreement(model.size, self._model_options())
            _refuse_pending(model)
            if kind != self._kind:
                raise InvalidValue(f"Labels were {self._kind} before and are {kind} now; keep to one kind.")
        images = as_images(pictures, model.size)
        if len(images) != len(labels):
            raise InvalidValue(f"{len(images)} images and {len(labels)} labels: give one label for each image.")
        if len(images) == 0:
            raise InvalidValue("There is no image to learn from; give at least one.")
        before = copy.deepcopy(model.state_dict())
        try:
            self._learn(model, images, labels, names)
        except BaseException:  # interrupted, too: a classifier is never left with half a lesson
            if hasattr(self, "model_"):
                self.model_ = Model.from_state(before, self._context())
            raise
        self.model_, self._kind, self.n_lessons_ = model, kind, model.lessons
        self.classes_ = _values(model.names, kind)
        self._inference = self._predictor(inference_parts(model)), self.classes_
        return self

    def predict_proba(self, X: Pictures) -> NDArray[np.float64]:
        """(n, classes) in the order of `classes_`, calibrated on images that were held out."""
        probabilities = self._predict(X)[0].double()
        return (probabilities / probabilities.sum(1, keepdim=True)).numpy()

    def predict(self, X: Pictures, unknown: bool = False) -> NDArray[Any]:
        """The label that fits best; with `unknown`, "unknown" for images unlike anything that was learned."""
        probabilities, known, classes = self._predict(X)
        best: NDArray[Any] = classes[probabilities.argmax(1).numpy()]
        return np.where(known.numpy(), best.astype(object), UNKNOWN) if unknown else best

    def save(self, directory: Path | str, *, force: bool = False, keep: int = KEEP) -> None:
        """Publish the model as a new version in a directory, where the command line finds it, too.

        An existing model there must be the one that this model continues, unless `force` is set. `keep` versions
        are kept for `undo`.
        """
        model, store = self._fitted(), Store(directory)
        _refuse_pending(model)
        info = model.describe() | {"labels": self._kind}
        with store.lock():
            current = store.current()
            if current is not None and current != self._origin and not force:
                raise Mismatch(
                    f"{directory} holds version {current.number}, which this model does not go on from: "
                    "load it and learn again, save to another place, or save over it with force=True."
                )
            self._origin = store.publish(version_state(model), info, {"event": "saved"})
            store.prune(keep)

    @classmethod
    def load(cls, directory: Path | str, device: str | torch.device = "auto") -> ContinualClassifier:
        """The model in use in a directory."""
        state, version = Store(directory).load()
        classifier = cls(**state["app"]["options"], device=device)
        classifier.model_ = Model.from_state(state, classifier._context())
        classifier._kind, names = version.info.get("labels", "str"), classifier.model_.names
        try:
            classifier.classes_ = _values(names, classifier._kind)
        except ValueError:  # labels were numbers until the command line added a name
            classifier._kind, classifier.classes_ = "str", np.array(names)
        classifier._inference, classifier._origin = (classifier._predictor(state), classifier.classes_), version
        classifier.n_lessons_ = classifier.model_.lessons
        return classifier

    def _predict(self, X: Pictures) -> tuple[Tensor, Tensor, NDArray[Any]]:
        """Probabilities (n, classes), whether each image is known (n,), and the labels of the classes."""
        self._fitted()
        predictor, classes = self._inference  # both of the same lesson, even if another thread is teaching
        return *predictor.predict(as_images(X, predictor.size)), classes

    def _model_options(self) -> dict[str, Any]:
        """The parameters that a model is made with, and keeps."""
        return {name: value for name, value in self.get_params().items() if name != "device"}

    def _predictor(self, parts: Mapping[str, Any]) -> Predictor:
        return Predictor(parts, self.device, torch.get_num_threads())

    def _context(self) -> Context:
        return Context(engine="auto", device=self.device)

    def _fitted(self) -> Model:
        if not hasattr(self, "model_"):
            raise NotFittedError("This ContinualClassifier has learned nothing yet; call fit or partial_fit first.")
        return self.model_

    def _learn(self, model: Model, images: Images, labels: list[str], names: list[str]) -> None:
        numbers = torch.tensor([names.index(label) for label in labels])
        rows = self._new_rows(model, images, labels)
        if len(rows) == 0:
            return
        chosen = images.select(rows, numbers[rows])
        parts = torch.arange(len(rows)).split(256)
        hashes = torch.cat([dhash(resize(chosen.read(part), HASH_SIZE)) for part in parts])
        with model.context.reuse_latents():
            lesson = hold_out(model, chosen, names, hashes)
            learn(model, lesson, lesson_recipe(model, lesson))

    def _new_rows(self, model: Model, images: Images, labels: list[str]) -> Tensor:
        """The rows of new images; images that return with another label are unlearned first."""
        first: dict[int, int] = {}
        moved = []
        for row, (id_, label) in enumerate(zip(images.ids.tolist(), labels, strict=True)):
            other = first.setdefault(id_, row)
            if labels[other] != label:
                raise BadData(f"Images {other} and {row} are the same with labels {labels[other]} and {label}.")
            if other == row and id_ in model.taught and model.names[model.taught[id_]] != label:
                moved.append(row)
        if moved:
            removal.unteach(model, images.select(torch.tensor(moved)))
        return torch.tensor([row for id_, row in first.items() if id_ not in model.taught], dtype=torch.long)


def _refuse_pending(model: Model) -> None:
    """Refuse a model that has learned its last lesson in part: only `triphase teach` can finish that."""
    if model.pending:
        raise InvalidValue("A quick lesson of this model is not finished; run triphase teach again first.")


def _labels(y: Sequence[Any] | NDArray[Any]) -> tuple[list[str], str]:
    """Labels as names, and what kind they are."""
    if y is None:
        raise InvalidValue("This classifier requires y to be passed, but the target y is None.")
    y = y if isinstance(y, (list, tuple)) else np.asarray(y)
    if np.ndim(y) != 1:
        raise InvalidValue(f"Labels are a list, one for each image, got an array of shape {np.shape(y)}.")
    values = [value.item() if isinstance(value, np.generic) else value for value in y]
    kinds = {type(value).__name__ for value in values}
    fractions = [value for value in values if isinstance(value, float) and not value.is_integer()]
    if len(kinds) > 1 or not kinds <= KINDS.keys() or fractions:
        raise InvalidValue(f"Labels must be all strings or all whole numbers, got {', '.join(sorted(kinds))}.")
    return [class_name(str(value)) for value in values], next(iter(kinds), "str")


def _values(names: list[str], kind: str) -> NDArray[Any]:
    """Names as labels of a kind again; one that no label of this kind has, such as 05 among numbers, is refused."""
    values = [KINDS[kind](name) for name in names]
    for name, value in zip(names, values, strict=True):
        if str(value) != name or (kind == "float" and not value.is_integer()):
            raise InvalidValue(f"A class is called {name!r}, which is no {kind}; keep to strings.")
    return np.array(values)
