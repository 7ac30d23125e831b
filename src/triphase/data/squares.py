"""Pictures of every kind as uint8 squares."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps

from triphase.errors import BadData
from triphase.image_size import Scaling, scaling_of

if TYPE_CHECKING:
    from torch import Tensor

Pixels = NDArray[np.uint8]  # (3, size, size)
ORIENTATION = 0x0112
TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}


def squares(image: Image.Image, sizes: Sequence[int]) -> list[Pixels]:
    """A picture as a uint8 (3, size, size) square of each size: turned as its EXIF says, scaled to cover, cropped.

    A size with a scaling of its own (`ImageSize`) gets that one. Transparency is laid on white, as viewers show it;
    16-bit grey is scaled to 8 bits; of an animation the first frame counts.
    """
    if 0 in image.size:
        raise BadData(f"an image of {image.width} x {image.height} pixels shows nothing")
    image.load()
    turn, whole = _turn(image), _eight_bits(image)
    made = []
    for size in sizes:
        scaling = scaling_of(size)
        if scaling is None:  # a small square is turned faster than the whole
            small = _turned(_on_white(ImageOps.fit(whole, (size, size), Image.Resampling.BICUBIC)), turn)
        else:
            small = _cropped(_on_white(_scaled(_turned(whole, turn), scaling, size)), size, scaling.fill)
        made.append(np.ascontiguousarray(np.array(small).transpose(2, 0, 1)))
    return made


def square(image: Image.Image, size: int) -> Tensor:
    """A picture as uint8 (3, size, size); see `squares`.

    >>> square(Image.new("L", (3, 5), 7), 2).shape
    torch.Size([3, 2, 2])
    """
    return tensors(squares(image, (size,)))[0]


def tensors(made: Sequence[Pixels]) -> list[Tensor]:
    """The same squares as tensors, for which torch is imported."""
    import torch

    return [torch.from_numpy(pixels) for pixels in made]


def picture(pixels: Tensor) -> Image.Image:
    """The picture of uint8 pixels (1 or 3, height, width)."""
    return Image.fromarray(pixels.expand(3, -1, -1).permute(1, 2, 0).contiguous().numpy())


def _scaled(image: Image.Image, scaling: Scaling, size: int) -> Image.Image:
    """A picture as large as timm scales it before it crops a square of `size`."""
    side, (width, height) = scaling.scaled_side(size), image.size
    short, long = min(width, height), max(width, height)
    if scaling.crop_mode == "squash":
        width = height = side
    elif scaling.crop_mode == "border":
        width, height = (round(length / (long / side)) for length in (width, height))
    else:
        width, height = (side if length == short else int(side * long / short) for length in (width, height))
    return image.resize((max(1, width), max(1, height)), Image.Resampling[scaling.interpolation.upper()])


def _cropped(image: Image.Image, size: int, fill: tuple[int, int, int]) -> Image.Image:
    """The middle square of a picture, on a background `fill` where it is smaller; rounded as torchvision does."""
    left, top = (round((length - size) / 2) if length >= size else -((size - length) // 2) for length in image.size)
    ground = Image.new("RGB", (size, size), fill)
    ground.paste(image, (-left, -top))
    return ground


def _turned(image: Image.Image, turn: Image.Transpose | None) -> Image.Image:
    return image if turn is None else image.transpose(turn)


def _on_white(image: Image.Image) -> Image.Image:
    """A picture in RGB, on white where it is transparent."""
    if image.mode == "RGBA":
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
    return image.convert("RGB")


def _turn(image: Image.Image) -> Image.Transpose | None:
    """How to turn a loaded image upright; damaged EXIF is ignored."""
    try:
        return TURNS.get(image.getexif().get(ORIENTATION, 1))
    except Exception:  # the parser raises almost anything, and the pixels are not affected
        return None


def _eight_bits(image: Image.Image) -> Image.Image:
    """Any mode as 8-bit L, RGB or (if parts are transparent) RGBA; no copy where it is one already."""
    if image.mode == "F":
        raise BadData("floating point pixels have no defined white: save it with 8 bits per channel")
    if image.mode.startswith("I"):  # 16 bits, sometimes held in 32; convert("RGB") would clip at 255
        deep = np.asarray(image).astype(np.int32)
        np.clip(deep, 0, 65535, out=deep)
        deep += 128
        deep //= 257
        return Image.fromarray(deep.astype(np.uint8))
    wanted = "RGBA" if image.has_transparency_data else "L" if image.mode in ("1", "L") else "RGB"
    return image if image.mode == wanted else image.convert(wanted)
