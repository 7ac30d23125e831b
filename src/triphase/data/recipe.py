"""The conditions of training that every learner shares."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any, Literal

from triphase.data import augment
from triphase.errors import InvalidValue

CropSize = Literal["small", "full"]  # to which crops of feature maps are scaled: smaller than the map, or as large


@dataclass(frozen=True)
class Recipe:
    """How one experience is trained on, the same for every learner (equal conditions, Sec. V-C).

    >>> Recipe(epochs=4, lr=0.1).csf_lr_or_lr
    0.1
    """

    epochs: int = 4  # 0: the experience was learned in another run, whose weights were taken over
    lr: float = 0.1  # of the head
    csf_lr: float | None = None  # of csf (and llf where it learns); None: the same as lr
    n_mbe: int = 128  # datapoints of the experience in a minibatch
    n_mbr: int = 0  # datapoints of the replay memory in a minibatch
    mixed: int | None = None  # datapoints of the experience in an epoch of Phases I and II; None: all
    balanced: int | None = None  # datapoints in an epoch of Phase III, n_mbe + n_mbr at a time; None: all, by n_mbe
    latent_crops: CropSize | None = (
        None  # of the random crops of feature maps that csf learns from; None: whole maps
    )
    momentum: float = 0.9
    weight_decay: float = 0.0  # of csf and llf; the head never decays, or masked rows would shrink
    augment: str = "none"
    lr_schedule: Literal["constant", "patience"] = "constant"
    trainable: Literal["csf", "all"] = "csf"  # what learners other than TPC train: all includes llf
    latents: Literal["float32", "float16", "off"] = "float32"  # how those of a frozen llf are kept
    views: int = 0  # random crops of each image that are drawn once and kept; 0: each minibatch draws new ones

    def __post_init__(self) -> None:
        augment.parse(self.augment)
        for name, least in (("epochs", 0), ("n_mbe", 1), ("n_mbr", 0), ("views", 0)):
            if getattr(self, name) < least:
                raise InvalidValue(f"{name} must be at least {least}, got {getattr(self, name)}.")
        for name in ("mixed", "balanced"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise InvalidValue(f"{name} must be at least 1, got {value}.")
        for name in ("lr", "csf_lr"):
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise InvalidValue(f"{name} must be above 0 and finite, got {value}.")
        if not 0 <= self.momentum < 1:
            raise InvalidValue(f"momentum must be in [0, 1), got {self.momentum}.")
        if not 0 <= self.weight_decay < math.inf:
            raise InvalidValue(f"weight_decay must be finite and not negative, got {self.weight_decay}.")
        if self.lr_schedule not in ("constant", "patience"):
            raise InvalidValue(f"lr_schedule must be 'constant' or 'patience', got {self.lr_schedule!r}.")
        if self.latents not in ("float32", "float16", "off"):
            raise InvalidValue(f"latents must be 'float32', 'float16' or 'off', got {self.latents!r}.")
        if self.trainable not in ("csf", "all"):
            raise InvalidValue(f"trainable must be 'csf' or 'all', got {self.trainable!r}.")

    @property
    def n_mb_balanced(self) -> int:
        """Datapoints in a minibatch of Phase III."""
        return self.n_mbe if self.balanced is None else self.n_mbe + self.n_mbr

    @property
    def csf_lr_or_lr(self) -> float:
        """The learning rate of csf."""
        return self.lr if self.csf_lr is None else self.csf_lr

    def to_json(self) -> dict[str, Any]:
        """For settings and reports."""
        return asdict(self)
