"""Convert what programs pass in (paths, PIL images, arrays) to images of one size."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Union

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from triphase.data.decoding import check_file
from triphase.data.images import Images, content_ids, resize
from triphase.data.sources.files import file_id
from triphase.data.squares import square
from triphase.errors import InvalidValue
from triphase.image_size import scaling_of

Pictures = Union[Sequence[Union[str, Path, Image.Image, "NDArray[np.uint8]"]], "NDArray[np.uint8]", Tensor]


def as_batch(X: Pictures) -> list[Any] | NDArray[Any] | Tensor:
    """Several pictures as a list or one array; a single picture is refused."""
    _refuse_single(X)
    if isinstance(X, (np.ndarray, Tensor)) and not _is_array_of_paths(X):
        return X
    try:
        return list(X)  # pandas looks indices up, a list counts
    except TypeError:
        kind = type(X).__name__
        raise InvalidValue(f"Give a list of paths, PIL images or uint8 arrays, or one array, not {kind}.") from None


def as_images(X: Pictures, size: int) -> Images:
    """Pictures of any kind as images of one size; ids are made of their content."""
    pictures = as_batch(X)
    if isinstance(pictures, (np.ndarray, Tensor)):
        pixels = _batch(torch.as_tensor(_usable(pictures)), size)
        return Images.from_array(pixels, torch.zeros(len(pixels), dtype=torch.long))
    if pictures and all(isinstance(picture, (str, Path)) for picture in pictures):
        paths = [Path(picture) for picture in pictures]
        for path in paths:
            check_file(path)
        ids = torch.tensor([file_id(path) for path in paths])
        return Images.from_files(paths, torch.zeros(len(paths), dtype=torch.long), ids, size)
    squares = [_one(picture, size) for picture in pictures]
    pixels = torch.stack(squares) if squares else torch.empty(0, 3, size, size, dtype=torch.uint8)
    return Images(pixels.__getitem__, torch.zeros(len(pixels), dtype=torch.long), content_ids(pixels))


def _refuse_single(X: object) -> None:
    """Refuse a single picture where a list is expected."""
    single = None
    if X is None:
        raise InvalidValue("There are no images, got None; give a list of paths, PIL images or uint8 arrays.")
    if isinstance(X, (str, Path)):
        single = "path"
    elif isinstance(X, Image.Image):
        single = "PIL image"
    elif isinstance(X, (np.ndarray, Tensor)) and not _is_array_of_paths(X):
        if X.ndim == 2 or (X.ndim == 3 and X.shape[-1] in (1, 3)):
            single = f"array of shape {tuple(X.shape)}"
    if single is not None:
        raise InvalidValue(f"One {single} was given where several images are expected: put it in a list, [image].")


def _is_array_of_paths(X: object) -> bool:
    return isinstance(X, np.ndarray) and X.dtype.kind in "OU"


def _usable(array: NDArray[Any] | Tensor) -> NDArray[Any] | Tensor:
    """An array that torch takes: with positive strides, unlike BGR[..., ::-1], and writable, unlike memory maps."""
    return np.require(array, requirements=["C", "W"]) if isinstance(array, np.ndarray) else array


def _one(picture: Any, size: int) -> Tensor:
    if isinstance(picture, Image.Image):
        _check_area(*picture.size)
        return square(picture, size)
    if isinstance(picture, (np.ndarray, Tensor)):
        return _batch(torch.as_tensor(_usable(picture))[None], size)[0]
    if isinstance(picture, (str, Path)):
        raise InvalidValue("The list mixes paths with images: give all as paths, or open each path with PIL.")
    raise InvalidValue(f"An image is a path, a PIL image or a uint8 array, got {type(picture).__name__}.")


def _check_area(width: int, height: int) -> None:
    if 0 in (width, height):
        raise InvalidValue(f"An image of {width} x {height} pixels has nothing to look at; leave it out.")


def _batch(pixels: Tensor, size: int) -> Tensor:
    """NHWC, NCHW or NHW as RGB of one size: scaled to cover the square, centre-cropped."""
    if pixels.dtype != torch.uint8:
        raise InvalidValue(
            f"Arrays of pixels must be uint8 (0 to 255), got {str(pixels.dtype).removeprefix('torch.')}."
        )
    if pixels.dim() == 3:
        pixels = pixels.unsqueeze(1)
    if pixels.dim() != 4 or not {pixels.shape[1], pixels.shape[3]} & {1, 3}:
        shape = tuple(pixels.shape)
        raise InvalidValue(
            f"An array of images is (n, height, width), with 1 or 3 channels before or after, got {shape}."
        )
    if pixels.shape[1] not in (1, 3):
        pixels = pixels.permute(0, 3, 1, 2)
    height, width = pixels.shape[2:]
    _check_area(width, height)
    if scaling_of(size) is not None:
        return resize(pixels.expand(-1, 3, -1, -1), size)
    side = min(height, width)
    top, left = (height - side) // 2, (width - side) // 2
    cropped = pixels[:, :, top : top + side, left : left + side]
    return resize(cropped.expand(-1, 3, -1, -1).contiguous(), size)
