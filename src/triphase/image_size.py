"""The size of a network's images, and how a photo becomes a square of that size."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

Interpolation = Literal["nearest", "bilinear", "bicubic", "box", "hamming", "lanczos"]  # Pillow's filters
CropMode = Literal["center", "squash", "border"]


@dataclass(frozen=True)
class Scaling:
    """How timm scales and crops a photo for evaluation."""

    interpolation: Interpolation
    crop_pct: float  # side of the square, as a share of the side that the photo is scaled to before it is cropped
    crop_mode: CropMode  # what gets that side: the short side of the photo, both sides, or the long one
    fill: tuple[int, int, int]  # colour where the scaled photo does not cover the square

    def __str__(self) -> str:
        return f"{self.interpolation}, crop_pct {self.crop_pct:g}, {self.crop_mode}"

    def scaled_side(self, size: int) -> int:
        """The side that a photo is scaled to before it is cropped to `size`.

        >>> Scaling("bicubic", 0.875, "center", (0, 0, 0)).scaled_side(224)
        256
        """
        return math.floor(size / self.crop_pct)


class ImageSize(int):
    """A side in pixels that knows how photos become squares of it; a plain int means: scaled to cover, cropped.

    >>> ImageSize(224, Scaling("bilinear", 0.875, "center", (0, 0, 0))) == 224
    True
    """

    scaling: Scaling

    def __new__(cls, size: int, scaling: Scaling) -> ImageSize:
        made = super().__new__(cls, size)
        made.scaling = scaling
        return made

    def __getnewargs__(self) -> tuple[int, Scaling]:  # type: ignore[override]
        return int(self), self.scaling  # for copies


def with_scaling(size: int, scaling: Scaling | None) -> int:
    """The size with a scaling, if there is one."""
    return size if scaling is None else ImageSize(size, scaling)


def scaling_of(size: int) -> Scaling | None:
    """The scaling of a size that has one."""
    return size.scaling if isinstance(size, ImageSize) else None


def size_state(size: int) -> dict[str, Any]:
    """A size as primitives, without a scaling unless it has one.

    >>> size_state(224)
    {'image_size': 224}
    """
    scaling = scaling_of(size)
    own = {} if scaling is None else {"scaling": asdict(scaling) | {"fill": list(scaling.fill)}}
    return {"image_size": int(size), **own}


def load_size(state: Mapping[str, Any]) -> int:
    """The size that `size_state` has written."""
    saved = state.get("scaling")
    scaling = None if saved is None else Scaling(**{**saved, "fill": tuple(saved["fill"])})
    return with_scaling(int(state["image_size"]), scaling)
