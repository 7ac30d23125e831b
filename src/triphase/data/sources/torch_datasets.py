"""Streams of other libraries: datasets whose items are an image and its class, as in Avalanche and Continuum.

Neither library is imported. Pixels are read from the datasets whenever they are needed, and once before, for ids.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any, Literal

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from triphase.data.augment import center_crop
from triphase.data.images import Images, check_size, concatenate, content_ids, resize
from triphase.data.squares import square
from triphase.data.streams import Stream, stream
from triphase.errors import BadData, InvalidValue
from triphase.image_size import scaling_of

CHUNK = 1024  # images read together for their ids


def stream_from_avalanche(
    benchmark: Any, *, size: int | None = None, evaluation: Literal["seen", "all"] = "seen"
) -> Stream:
    """The train_stream of an Avalanche benchmark, tested on the whole of its test_stream.

    Images are read as for evaluation, without random transforms: augmentation is the recipe's.
    """
    train, test = (
        [_for_evaluation(e.dataset) for e in part] for part in (benchmark.train_stream, benchmark.test_stream)
    )
    return stream_from_datasets(train, test, size=size, evaluation=evaluation)


def stream_from_continuum(
    train: Iterable[Any],
    test: Iterable[Any],
    *,
    size: int | None = None,
    evaluation: Literal["seen", "all"] = "seen",
) -> Stream:
    """The task sets of a Continuum scenario, tested on all task sets of another one, that of the test images."""
    return stream_from_datasets(list(train), list(test), size=size, evaluation=evaluation)


def stream_from_datasets(
    train: Sequence[Any],
    test: Sequence[Any],
    *,
    names: Sequence[str] | None = None,  # of the classes, by their numbers; None: the numbers
    size: int | None = None,  # pixels, for images that are not all of the same size
    evaluation: Literal["seen", "all"] = "seen",
) -> Stream:
    """A stream with one experience for each dataset of `train`."""
    if not test:
        raise BadData("A stream needs at least one dataset to test on.")
    experiences = [images_from(dataset, size) for dataset in train]
    tested = concatenate([images_from(dataset, size) for dataset in test])
    n = 1 + max(int(images.labels.max()) for images in (*experiences, tested))
    chosen = [str(label) for label in range(n)] if names is None else names
    if len(chosen) < n:
        raise InvalidValue(
            f"There are {len(chosen)} names for classes up to {n - 1}: give one for each number from 0."
        )
    return stream(experiences, tested, chosen, n_classes=n, evaluation=evaluation)


def images_from(dataset: Any, size: int | None = None) -> Images:
    """The images of a dataset whose items begin with an image and the number of its class."""
    labels, ids, size = [], [], None if size is None else check_size(size)
    for start in range(0, len(dataset), CHUNK):
        items = [dataset[i] for i in range(start, min(start + CHUNK, len(dataset)))]
        labels += [_class_of(item[1]) for item in items]
        ids.append(content_ids(_stacked([pixels_of(item[0], size) for item in items])))
    if not labels:
        raise BadData("A dataset has no images; leave it out of the stream.")

    def read(rows: Tensor) -> Tensor:
        return _stacked([pixels_of(dataset[int(row)][0], size) for row in rows])

    return Images(read, torch.tensor(labels), torch.cat(ids))


def _class_of(label: Any) -> int:
    """The number of a class; one-hot vectors, names and fractions are refused."""
    with suppress(TypeError, ValueError, RuntimeError):
        if (number := int(label)) == label:
            return number
    raise BadData(f"The class of an image must be a whole number from 0, got {label!r}; give it its number.")


def pixels_of(image: Any, size: int | None = None) -> Tensor:
    """A PIL image, an array of uint8 or a tensor of uint8 or of 0 to 1 as uint8 (channels, height, width).

    >>> pixels_of(torch.full((3, 2, 2), 0.5)).unique().tolist()
    [128]
    """
    if isinstance(image, Image.Image):
        return square(image, min(image.size) if size is None else size)
    if isinstance(image, np.ndarray):
        image = torch.from_numpy(np.ascontiguousarray(image))
        image = image.permute(2, 0, 1) if image.dim() == 3 else image.unsqueeze(0)
    if not isinstance(image, Tensor):
        raise BadData(f"An image must be a PIL image, an array or a tensor, got {type(image).__name__}.")
    pixels = image if image.dtype == torch.uint8 else _eight_bits(image)
    if size is None or pixels.shape[-2:] == (size, size):
        return pixels
    batch = pixels.unsqueeze(0)
    return resize(batch if scaling_of(size) else center_crop(batch, min(pixels.shape[-2:])), size)[0]


def _eight_bits(image: Tensor) -> Tensor:
    """A batch or an image with pixels of 0 to 1, as torchvision's ToTensor makes them."""
    if not bool(((image >= 0) & (image <= 1)).all()):
        low, high = float(image.min()), float(image.max())
        raise BadData(
            f"The pixels of an image are from {low:.3g} to {high:.3g}: give uint8, or 0 to 1 as ToTensor makes "
            "them, without normalisation, which is a part of the network here."
        )
    return (255 * image).round().to(torch.uint8)


def _stacked(images: Sequence[Tensor]) -> Tensor:
    if len({image.shape for image in images}) > 1:
        shapes = " and ".join(sorted({" x ".join(map(str, image.shape)) for image in images})[:2])
        raise BadData(f"The images are of different shapes ({shapes}); give a size that they are scaled to.")
    return torch.stack(list(images))


def _for_evaluation(dataset: Any) -> Any:
    """A dataset of Avalanche with the transforms that it has for evaluation."""
    return dataset.eval() if hasattr(dataset, "eval") else dataset
