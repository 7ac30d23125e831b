"""What a person may change about a benchmark."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from triphase.bench.datasets import parse_numbers
from triphase.bench.learners import check_options
from triphase.errors import InvalidValue


@dataclass(frozen=True)
class RunOptions:
    """What a person may change about a benchmark; None keeps the benchmark's own value."""

    learner: str = "tpc"
    order: int = 0
    seed: int = 0
    epochs_scale: float = 1.0
    epochs: int | None = None
    lr: float | None = None
    csf_lr: float | None = None
    n_mbe: int | None = None
    n_mbr: int | None = None
    augment: str | None = None
    weight_decay: float | None = None
    trainable: Literal["csf", "all"] = "csf"
    latents: Literal["float32", "float16", "off"] = "float32"
    views: int = 0
    memory: int | None = None
    replay: Literal["raw", "latent", "none"] = "raw"
    latent_dtype: Literal["float32", "float16"] = "float32"
    backbone: str | None = None
    image_size: int | None = None
    weights: Path | None = None
    norm: Literal["bn", "brn"] = "bn"
    head: Literal["fixed", "incremental"] = "fixed"
    bfloat16: bool = False
    compiled: bool = False
    per_class: int | None = None
    classes: str | None = None  # only these labels of the dataset, such as 50-99
    evaluate_every: int | None = None  # after the first, then every so many, and the last
    experiences: int | None = None  # only so many of the first ones
    first_from: Path | None = None  # a run over E_1 alone whose weights are taken over
    skip_bad: bool = False  # leave out photos that cannot be read
    learner_options: tuple[tuple[str, Any], ...] = ()  # keyword arguments of the learner's class

    def __post_init__(self) -> None:
        check_options(self.learner, self.own)
        if not 0 < self.epochs_scale < math.inf:
            raise InvalidValue(f"--epochs-scale must be above 0 and finite, got {self.epochs_scale}.")
        if self.epochs is not None and self.epochs_scale != 1:
            raise InvalidValue("--epochs and --epochs-scale contradict each other: give one of them.")
        for name in ("epochs", "per_class", "image_size", "evaluate_every", "experiences"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise InvalidValue(f"--{name.replace('_', '-')} must be at least 1, got {value}.")
        if self.classes is not None:
            parse_numbers("--classes", self.classes)
        if self.order < 0:
            raise InvalidValue(f"--order must not be negative, got {self.order}.")
        for name, allowed in (("replay", ("raw", "latent", "none")), ("head", ("fixed", "incremental"))):
            if getattr(self, name) not in allowed:
                raise InvalidValue(f"--{name} is one of {', '.join(allowed)}, got {getattr(self, name)!r}.")

    @property
    def own(self) -> dict[str, Any]:
        """The learner's own options by name."""
        return dict(self.learner_options)
