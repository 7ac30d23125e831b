"""The image size of a new model: that of its network, or less if the photos are small.

Enlarging a small picture adds nothing but work: 32 pixels need no 224.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from triphase.data.decoding import short_side
from triphase.data.sources.folder import class_folders
from triphase.errors import BadData

MAX_ENLARGED = 3  # times that the typical short side is enlarged, at most
SMALLEST = 96  # pixels: below, the last feature maps of a photo network have hardly any pixels
N_SAMPLED = 64  # pictures, about: fewer than twice as many


def size_for(short_sides: Iterable[int], suggested: int) -> int:
    """The size for pictures with these short sides, where a network suggests one; a multiple of 32 if it is less.

    >>> size_for([480, 600], 224), size_for([32] * 9, 224), size_for([64], 224), size_for([], 224), size_for([9], 8)
    (224, 96, 192, 224, 8)
    """
    sides = list(short_sides)
    if not sides:
        return suggested
    return min(suggested, max(SMALLEST, 32 * math.ceil(MAX_ENLARGED * median(sides) / 32)))


def size_for_folder(folder: Path, suggested: int) -> int:
    """The same for the photos in class folders; files that cannot be read are ignored here."""
    files = [file for one in class_folders(folder) for file in one.images]
    sides = []
    for file in files[:: max(1, len(files) // N_SAMPLED)]:
        with suppress(BadData):
            sides.append(short_side(file))
    return size_for(sides, suggested)


def size_for_pictures(pictures: list[Any] | NDArray[Any] | Tensor, suggested: int) -> int:
    """The same for pictures as programs have them, in a list or one array; anything else is ignored here."""
    sides = []
    for picture in pictures[:: max(1, len(pictures) // N_SAMPLED)]:
        with suppress(BadData):
            if isinstance(picture, (str, Path)):
                sides.append(short_side(Path(picture)))
            elif isinstance(picture, Image.Image):
                sides.append(min(picture.size))
            elif isinstance(picture, (np.ndarray, Tensor)) and picture.ndim >= 2:
                sides.append(sorted(picture.shape)[-2])  # the number of channels is less
    return size_for(sides, suggested)
