"""What the parts of a version may hold: the training state of a model, and the inference parts that answers need.

A part that is declared here must have exactly these fields; any other is a nested dict of tensors and primitives
whose structure `check_structure` compares with a blank model. Every number in a tensor is finite.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from triphase.app.store.schema import BackboneName, ClassNames, Count, Document, Word, reason
from triphase.app.store.tensors import Shape, check_structure, check_tree
from triphase.errors import CorruptState
from triphase.image_size import CropMode, Interpolation


def _check_float(value: Any) -> Any:
    if isinstance(value, int):  # which torch cannot always convert
        raise ValueError("an integer should be a floating-point number")
    return value


MIN_SEED, MAX_SEED = -(2**63), 2**64 - 1
Seed = Annotated[int, Field(ge=MIN_SEED, le=MAX_SEED)]
Float = Annotated[float, BeforeValidator(_check_float)]
Positive = Annotated[Float, Field(gt=1e-30, lt=1e30)]
MemorySize = Annotated[str, Field(pattern=r"^ *[0-9.]+ *([KMGkmg][Bb])? *$", max_length=32)]
ImageSize = Annotated[int, Field(ge=1, le=1024)]


class Part(Document):
    """Fields may be tensors."""

    model_config = ConfigDict(arbitrary_types_allowed=True)


# --- training state ---------------------------------------------------------------------------------------------


class Options(Part):
    """How the model was made."""

    backbone: BackboneName
    image_size: ImageSize | None
    memory: Annotated[int, Field(ge=1)] | MemorySize
    replay: Literal["raw", "latent", "none"]
    learner: Word
    seed: Seed
    weights: Annotated[str, Field(max_length=4096)] | None = None


class Moments(Part):
    """Moments of an out-of-distribution score by class."""

    n: Annotated[Any, Shape("float64", "moments")]
    mean: Annotated[Any, Shape("float64", "moments")]
    squares: Annotated[Any, Shape("float64", "moments")]
    cubes: Annotated[Any, Shape("float64", "moments")]


class App(Part):
    """What a model is beside its learner."""

    options: Options
    names: ClassNames
    lessons: Count
    temperature: Positive
    thresholds: list[Float | None] = Field(max_length=2)
    moments: list[Moments] = Field(max_length=2)
    exemplar_correct: Annotated[Any, Shape("bool", "exemplars")]
    covariance_reestimated: bool


class TaughtPhotos(Part):
    """Ids and classes of the photos that were taught."""

    ids: Annotated[Any, Shape("int64", "taught")]
    labels: Annotated[Any, Shape("int64", "taught")]
    pending_ids: Annotated[Any, Shape("int64", "pending")]
    pending_labels: Annotated[Any, Shape("int64", "pending")]
    held_out: Annotated[Any, Shape("int64", "*")]


class Exemplars(Part):
    """Features of exemplars by the csf that never learns."""

    ids: Annotated[Any, Shape("int64", "features")]
    features: Annotated[Any, Shape("float16", "features", "*")]


class MemoryColumns(Part):
    """What is stored of each sample."""

    y: Annotated[Any, Shape("int64", "samples")]
    id: Annotated[Any, Shape("int64", "samples")]
    key: Annotated[Any, Shape("int64", "samples")]
    split: Annotated[Any, Shape("int8", "samples")]
    hash: Annotated[Any, Shape("int64", "samples", 2)] | None = None
    x: Annotated[Any, Shape("uint8", "samples", 3, "pixels", "pixels")] | None = None
    z: Annotated[Any, Shape("float16", "samples", "*", "...")] | None = None


class ReplayMemory(Part):
    """The samples that are learned from again."""

    columns: MemoryColumns
    floor: dict[Annotated[str, Field(pattern=r"^\d{1,15}$")], Seed]
    capacity: Annotated[int, Field(ge=1)]
    seed: Seed


class Statistics(Part):
    """What a closed form has counted: sums of features by class, and products of features over all classes."""

    sums: Annotated[Any, Shape(None, "classes", "*")]
    counts: Annotated[Any, Shape(None, "classes")]
    products: Annotated[Any, Shape(None, "*")] | None = None  # the lower half of a symmetric matrix


class Adapted(Part):
    """The discriminant over the csf that TPC has trained."""

    weight: Annotated[Any, Shape("float32", "*", "*")] | None
    bias: Annotated[Any, Shape("float32", "*")] | None
    weight_with_held_out: Annotated[Any, Shape("float32", "*", "*")] | None
    bias_with_held_out: Annotated[Any, Shape("float32", "*")] | None
    closed_form_weight: Positive | None = None  # fitted to exemplars; None: the constant


class ClosedForm(Part):
    """What the closed form of an anchored learner knows."""

    known: list[Count]
    score_stds: Annotated[list[Float], Field(min_length=2, max_length=2)] | None
    quick_experience: Count


# --- inference --------------------------------------------------------------------------------------------------


class Scaling(Part):
    """How photos become squares, where the network has a way of its own."""

    interpolation: Interpolation
    crop_pct: Annotated[Float, Field(ge=0.1, le=10)]
    crop_mode: CropMode
    fill: Annotated[list[Annotated[int, Field(ge=0, le=255)]], Field(min_length=3, max_length=3)]


class Inference(Part):
    """What an answer needs beside the network."""

    backbone: BackboneName
    image_size: ImageSize
    scaling: Scaling | None = None
    names: ClassNames
    temperature: Positive
    thresholds: list[Float | None] = Field(max_length=2)


class Whitening(Part):
    """The Cholesky factor of a covariance, its lower half row by row, and whitened class means."""

    factor: Annotated[Any, Shape("float32", "*")]
    means: Annotated[Any, Shape("float32", "*", "*")]
    centre: Annotated[Any, Shape("float32", "*")]

    @model_validator(mode="after")
    def _check_sizes(self) -> Whitening:
        D = len(self.centre)
        if self.means.shape[1] != D or len(self.means) == 0 or len(self.factor) != D * (D + 1) // 2:
            raise ValueError(f"its tensors are not those of {D} features")
        if bool((self.factor[np.arange(1, D + 1).cumsum() - 1] <= 0).any()):  # the diagonal
            raise ValueError("its factor is not that of a covariance")
        return self


class Member(Part):
    """A linear classifier of features."""

    max_width: Annotated[int, Field(ge=1, le=2**20)] | None
    unit_length: bool
    weight: Annotated[Any, Shape("float32", "classes", "*")]
    bias: Annotated[Any, Shape("float32", "classes")] | None
    whitening: Whitening | None

    @model_validator(mode="after")
    def _check_sizes(self) -> Member:
        if self.whitening is not None and len(self.whitening.centre) != self.weight.shape[1]:
            raise ValueError("its weight and its whitening have other features")
        return self


class InferenceScores(Part):
    """The members whose scores are added."""

    members: list[Member] = Field(min_length=1, max_length=8)
    weights: list[Float]
    stds: list[Annotated[Float, Field(ge=0)] | None]  # 0 with a single class

    @model_validator(mode="after")
    def _check_sizes(self) -> InferenceScores:
        if not len(self.members) == len(self.weights) == len(self.stds):
            raise ValueError("each member needs a weight and a standard deviation")
        return self


PARTS: dict[str, type[Part]] = {
    "app": App,
    "taught": TaughtPhotos,
    "exemplars": Exemplars,
    "memory": ReplayMemory,
    "closed_form": ClosedForm,
    "adapted": Adapted,
    "statistics": Statistics,
    "closed_form_statistics": Statistics,
    "inference": Inference,
    "inference_scores": InferenceScores,
}


def validate_part(name: str, part: Any, sizes: dict[str, int]) -> None:
    """Refuse a part that is not as declared, or holds NaN; `sizes` are those that other parts have."""
    if name in PARTS:
        try:
            PARTS[name].model_validate(part, context=sizes)
        except ValidationError as error:
            raise ValueError(f"{name}.{reason(error)}") from error
    else:
        check_tree(part, name)


def check_checkpoint(state: Mapping[str, Any], blank: Mapping[str, Any]) -> None:
    """Refuse the state of a lesson under way that is not like that of a blank model."""
    if missing := sorted(blank.keys() - state.keys()):
        raise CorruptState(f"there is no part {missing[0]}.")
    sizes: dict[str, int] = {}
    try:
        for name, part in blank.items():
            if name in PARTS:
                validate_part(name, state[name], sizes)
            else:
                check_tree(state[name], name)
                check_structure(state[name], part, name)
    except CorruptState:
        raise
    except ValueError as error:
        raise CorruptState(f"{error}.") from error


def check_learner(state: Mapping[str, Any], blank: Mapping[str, Any]) -> None:
    """Refuse a state whose parts that a learner declares itself are not like those of a blank model."""
    for name, part in blank.items():
        if name not in PARTS:
            check_structure(state[name], part, name)
    for name in ("loop", "momentum"):
        if state[name] != blank[name]:
            raise CorruptState(f"{name} is not that of a lesson that has ended.")
