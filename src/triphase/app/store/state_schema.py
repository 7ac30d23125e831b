"""What the parts of a version may hold: the training state of a model, and the inference parts that answers need.

A part that is declared here must have exactly these fields; any other is a nested dict of tensors and primitives
whose structure `check_structure` compares with a blank model. Every number in a tensor is finite.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import torch
from pydantic import ConfigDict, Field, GetCoreSchemaHandler, TypeAdapter, ValidationError, model_validator
from pydantic_core import core_schema
from torch import Tensor

from triphase.app.store.schema import ClassNames, Count, Document, Word, reason
from triphase.errors import CorruptState

Seed = Annotated[int, Field(ge=-(2**63), lt=2**64)]
Positive = Annotated[float, Field(gt=1e-30, lt=1e30)]
MemorySize = Annotated[str, Field(pattern=r"^ *[0-9.]+ *([KMGkmg][Bb])? *$", max_length=32)]
ImageSize = Annotated[int, Field(ge=1, le=1024)]


class Shape:
    """A tensor's dtype and sizes; a name stands for one size, the same wherever it occurs, and "*" for any."""

    def __init__(self, dtype: torch.dtype, *sizes: int | str) -> None:
        self.dtype, self.sizes = dtype, sizes

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        return core_schema.with_info_plain_validator_function(self._check)

    def _check(self, value: Any, info: core_schema.ValidationInfo[dict[str, int]]) -> Tensor:
        if not isinstance(value, Tensor):
            raise ValueError("it should be a tensor")
        if value.dtype != self.dtype or value.dim() != len(self.sizes):
            raise ValueError(f"{_short(value)} should be {_short(self.dtype)} of {len(self.sizes)} dimensions")
        known = info.context if info.context is not None else {}
        for size, expected in zip(value.shape, self.sizes, strict=True):
            wanted = expected if isinstance(expected, int) else known.setdefault(expected, size)
            if expected != "*" and size != wanted:
                raise ValueError(f"it is {_short(value)}, where {expected} is {wanted}")
        _check_numbers(value, "it")
        return value


class Part(Document):
    """Fields may be tensors."""

    model_config = ConfigDict(arbitrary_types_allowed=True)


# --- training state ---------------------------------------------------------------------------------------------


class Options(Part):
    """How the model was made."""

    backbone: Word
    image_size: ImageSize | None
    memory: Annotated[int, Field(ge=1)] | MemorySize
    replay: Literal["raw", "latent", "none"]
    learner: Word
    seed: Seed


class Moments(Part):
    """Moments of an out-of-distribution score by class."""

    n: Annotated[Tensor, Shape(torch.float64, "moments")]
    mean: Annotated[Tensor, Shape(torch.float64, "moments")]
    squares: Annotated[Tensor, Shape(torch.float64, "moments")]
    cubes: Annotated[Tensor, Shape(torch.float64, "moments")]


class App(Part):
    """What a model is beside its learner."""

    options: Options
    names: ClassNames
    lessons: Count
    temperature: Positive
    thresholds: list[float | None] = Field(max_length=2)
    moments: list[Moments] = Field(max_length=2)
    exemplar_correct: Annotated[Tensor, Shape(torch.bool, "exemplars")]
    covariance_reestimated: bool


class TaughtPhotos(Part):
    """Ids and classes of the photos that were taught."""

    ids: Annotated[Tensor, Shape(torch.int64, "taught")]
    labels: Annotated[Tensor, Shape(torch.int64, "taught")]
    pending_ids: Annotated[Tensor, Shape(torch.int64, "pending")]
    pending_labels: Annotated[Tensor, Shape(torch.int64, "pending")]
    held_out: Annotated[Tensor, Shape(torch.int64, "*")]


class Exemplars(Part):
    """Features of exemplars by the csf that never learns."""

    ids: Annotated[Tensor, Shape(torch.int64, "features")]
    features: Annotated[Tensor, Shape(torch.float16, "features", "*")]


class MemoryColumns(Part):
    """What is stored of each sample."""

    y: Annotated[Tensor, Shape(torch.int64, "samples")]
    id: Annotated[Tensor, Shape(torch.int64, "samples")]
    key: Annotated[Tensor, Shape(torch.int64, "samples")]
    split: Annotated[Tensor, Shape(torch.int8, "samples")]
    hash: Annotated[Tensor, Shape(torch.int64, "samples", 2)] | None = None
    x: Annotated[Tensor, Shape(torch.uint8, "samples", 3, "pixels", "pixels")] | None = None
    z: Annotated[Tensor, Shape(torch.float16, "samples", "*", "*", "*")] | None = None


class ReplayMemory(Part):
    """The samples that are learned from again."""

    columns: MemoryColumns
    floor: dict[Annotated[str, Field(pattern=r"^\d{1,15}$")], Seed]
    capacity: Annotated[int, Field(ge=1)]
    seed: Seed


class Loop(Part):
    """The position of a training loop that has finished."""

    section: Literal[""]
    epochs_before: Count
    epoch: Count
    step: Count
    divisor: Positive
    best: Annotated[float, Field(allow_inf_nan=True)]
    waited: Count
    total: float


class ClosedForm(Part):
    """What the closed form of an anchored learner knows."""

    known: list[Count]
    score_stds: Annotated[list[float], Field(min_length=2, max_length=2)] | None
    quick_experience: Count


# --- inference --------------------------------------------------------------------------------------------------


class Inference(Part):
    """What an answer needs beside the network."""

    backbone: Word
    image_size: ImageSize
    names: ClassNames
    temperature: Positive
    thresholds: list[float | None] = Field(max_length=2)


class Whitening(Part):
    """The inverse of a covariance's factor, its lower half row by row, and whitened class means."""

    inverse: Annotated[Tensor, Shape(torch.float32, "*")]
    means: Annotated[Tensor, Shape(torch.float32, "*", "*")]
    centre: Annotated[Tensor, Shape(torch.float32, "*")]

    @model_validator(mode="after")
    def _check_sizes(self) -> Whitening:
        D = len(self.centre)
        if self.means.shape[1] != D or len(self.means) == 0 or len(self.inverse) != D * (D + 1) // 2:
            raise ValueError(f"its tensors are not those of {D} features")
        return self


class Member(Part):
    """A linear classifier of features."""

    max_width: Annotated[int, Field(ge=1, le=2**20)] | None
    unit_length: bool
    weight: Annotated[Tensor, Shape(torch.float32, "classes", "*")]
    bias: Annotated[Tensor, Shape(torch.float32, "classes")] | None
    whitening: Whitening | None

    @model_validator(mode="after")
    def _check_sizes(self) -> Member:
        if self.whitening is not None and len(self.whitening.centre) != self.weight.shape[1]:
            raise ValueError("its weight and its whitening have other features")
        return self


class InferenceScores(Part):
    """The members whose scores are added."""

    members: list[Member] = Field(min_length=1, max_length=8)
    weights: list[float]
    stds: list[Positive | None]

    @model_validator(mode="after")
    def _check_sizes(self) -> InferenceScores:
        if not len(self.members) == len(self.weights) == len(self.stds):
            raise ValueError("each member needs a weight and a standard deviation")
        return self


PARTS: dict[str, TypeAdapter[Any]] = {
    "app": TypeAdapter(App),
    "taught": TypeAdapter(TaughtPhotos),
    "exemplars": TypeAdapter(Exemplars),
    "memory": TypeAdapter(ReplayMemory),
    "known": TypeAdapter(list[Count]),
    "loop": TypeAdapter(Loop),
    "momentum": TypeAdapter(Annotated[dict[str, Any], Field(max_length=0)]),  # a lesson starts with none
    "closed_form": TypeAdapter(ClosedForm),
    "inference": TypeAdapter(Inference),
    "inference_scores": TypeAdapter(InferenceScores),
}


def validate_part(name: str, part: Any, sizes: dict[str, int]) -> None:
    """Refuse a part that is not as declared, or holds NaN; `sizes` are those that other parts have."""
    if name in PARTS:
        try:
            PARTS[name].validate_python(part, strict=True, context=sizes)
        except ValidationError as error:
            raise ValueError(f"{name}.{reason(error)}") from error
    else:
        check_tree(part, name)


def check_tree(value: Any, where: str) -> None:
    """Refuse anything but dicts, lists, tensors and primitives, and numbers that are not finite."""
    if isinstance(value, Tensor):
        _check_numbers(value, where)
    elif isinstance(value, Mapping):
        for key, item in value.items():
            check_tree(item, f"{where}.{key}")
    elif isinstance(value, list | tuple):
        for i, item in enumerate(value):
            check_tree(item, f"{where}.{i}")
    elif isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{where} is {value}")


def check_learner(state: Mapping[str, Any], blank: Mapping[str, Any]) -> None:
    """Refuse a state whose parts that a learner declares itself are not like those of a blank model."""
    for name, part in blank.items():
        if name not in PARTS:
            check_structure(state[name], part, name)


def check_structure(found: Any, template: Any, where: str = "state") -> None:
    """Refuse parts whose fields, dtypes or sizes are not those of a blank model; its sizes of 0 grow.

    >>> check_structure({"sums": torch.ones(2, 3)}, {"sums": torch.ones(0, 3)})
    >>> check_structure({"sums": torch.ones(2, 4)}, {"sums": torch.ones(0, 3)})
    Traceback (most recent call last):
    triphase.errors.CorruptState: state.sums is float32 (2, 4) where float32 (0, 3) is expected.
    """
    if isinstance(template, Mapping) and isinstance(found, Mapping):
        if template and found.keys() != template.keys():
            odd = sorted(map(str, found.keys() ^ template.keys()))[0]
            raise CorruptState(f"{where} has {'no' if odd in template else 'a'} field {odd}.")
        for key, item in template.items():
            check_structure(found[key], item, f"{where}.{key}")
    elif isinstance(template, Tensor) and isinstance(found, Tensor):
        fits = found.dim() == template.dim() and found.dtype == template.dtype
        if not fits or any(b not in (0, a) for a, b in zip(found.shape, template.shape, strict=True)):
            raise CorruptState(f"{where} is {_short(found)} where {_short(template)} is expected.")
    elif template is not None and type(found) is not type(template):
        raise CorruptState(f"{where} is {type(found).__name__} where {type(template).__name__} is expected.")


def _check_numbers(tensor: Tensor, where: str) -> None:
    if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
        raise ValueError(f"{where} holds NaN or infinity")
    if where.endswith("running_var") and bool((tensor < 0).any()):
        raise ValueError(f"{where} holds negative variances")


def _short(value: Tensor | torch.dtype) -> str:
    """A tensor's dtype and sizes, as in "float32 (2, 3)"."""
    if isinstance(value, Tensor):
        return f"{_short(value.dtype)} {tuple(value.shape)}"
    return str(value).removeprefix("torch.")
