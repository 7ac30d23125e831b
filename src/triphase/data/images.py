"""Labelled images, in memory or on disk, read as whole batches of uint8 NCHW."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from triphase.data.decoding import decode, in_threads
from triphase.data.squares import picture, square
from triphase.errors import BadData, InvalidValue
from triphase.image_size import scaling_of
from triphase.randomness import generator

Reader = Callable[[Tensor], Tensor]  # row numbers (int64) -> uint8 NCHW


class Images:
    """Labelled images with stable ids; `read` returns pixels at one common size.

    Ids never change, because the keys of the reservoir are derived from them. They are hashes of the content, or
    positions in a published dataset.

    >>> images = Images.from_array(torch.zeros(4, 1, 8, 8, dtype=torch.uint8), torch.tensor([0, 1, 1, 2]))
    >>> ones = images.select(torch.tensor([1, 2]))
    >>> len(ones), ones.labels.tolist(), ones.read(torch.tensor([0])).shape
    (2, [1, 1], torch.Size([1, 1, 8, 8]))
    """

    def __init__(self, reader: Reader, labels: Tensor, ids: Tensor, rows: Tensor | None = None) -> None:
        self._reader = reader
        self.labels = labels.long()
        self.ids = ids.long()
        self._rows = torch.arange(len(labels)) if rows is None else rows
        if not len(self.labels) == len(self.ids) == len(self._rows):
            raise BadData(
                f"{len(self._rows)} images, {len(self.labels)} labels and {len(self.ids)} ids: "
                "there must be one label and one id for each image."
            )

    @classmethod
    def from_array(cls, pixels: Tensor, labels: Tensor, ids: Tensor | None = None) -> Images:
        """Images held in memory: uint8 (n, channels, height, width)."""
        if len(pixels) != len(labels):
            raise BadData(f"{len(pixels)} images but {len(labels)} labels: give one label for each image.")
        if pixels.is_floating_point() and not bool(torch.isfinite(pixels).all()):
            raise BadData("The images contain NaN or infinite values; remove them before learning.")
        if pixels.dtype != torch.uint8 or pixels.dim() != 4:
            raise BadData(
                f"Images must be uint8 of shape (n, channels, height, width), got {pixels.dtype} "
                f"of shape {tuple(pixels.shape)}."
            )
        return cls(pixels.__getitem__, labels, content_ids(pixels) if ids is None else ids)

    @classmethod
    def from_files(cls, paths: Sequence[Path], labels: Tensor, ids: Tensor, size: int) -> Images:
        """Files decoded whenever they are read, in threads, as size x size RGB."""
        check_size(size)
        if len(paths) != len(labels):
            raise BadData(f"{len(paths)} images but {len(labels)} labels: give one label for each image.")

        def read(rows: Tensor) -> Tensor:
            pixels = torch.empty(len(rows), 3, size, size, dtype=torch.uint8)

            def fill(i: int) -> None:
                pixels[i] = decode(paths[int(rows[i])], size)

            in_threads(fill, range(len(rows)))
            return pixels

        return cls(read, labels, ids)

    def __len__(self) -> int:
        return len(self.labels)

    def read(self, indices: Tensor) -> Tensor:
        """uint8 pixels (len(indices), channels, height, width)."""
        return self._reader(self._rows[indices])

    def select(self, indices: Tensor, labels: Tensor | None = None) -> Images:
        """The images at these indices, optionally under other labels; no pixel is copied."""
        chosen = self.labels[indices] if labels is None else labels
        return Images(self._reader, chosen, self.ids[indices], self._rows[indices])

    def renamed(self, labels: Tensor) -> Images:
        """The same images with label c renamed to labels[c]; -1 takes the last entry, and labels below -1 stay.

        >>> images = Images.from_array(torch.zeros(3, 1, 8, 8, dtype=torch.uint8), torch.tensor([1, -1, -2]))
        >>> images.renamed(torch.tensor([5, 6, -1])).labels.tolist()
        [6, -1, -2]
        """
        new = torch.where(self.labels < -1, self.labels, labels[self.labels.clamp(min=-1)])
        return self.select(torch.arange(len(self)), new)

    def resized(self, size: int) -> Images:
        """The same images, scaled to size x size whenever they are read."""
        reader = self._reader
        return Images(lambda rows: resize(reader(rows), size), self.labels, self.ids, self._rows)


def select_classes(images: Images, classes: Sequence[int]) -> Images:
    """The images of these classes, in their order."""
    return images.select(torch.isin(images.labels, torch.tensor(classes)).nonzero().view(-1))


def subsample(images: Images, n_per_class: int, seed: int = 0) -> Images:
    """At most n_per_class images of each class, drawn at random."""
    shuffled = torch.randperm(len(images), generator=generator(seed, "subset"))
    grouped = shuffled[images.labels[shuffled].argsort(stable=True)]
    _, counts = images.labels.unique(return_counts=True)
    rank = torch.arange(len(images)) - (counts.cumsum(0) - counts).repeat_interleave(counts)
    return images.select(grouped[rank < n_per_class].sort().values)


def concatenate(parts: Sequence[Images]) -> Images:
    """All the images of several sets, in order; no pixel is copied."""
    ends = torch.tensor([len(part) for part in parts]).cumsum(0)

    def read(rows: Tensor) -> Tensor:
        owner = torch.searchsorted(ends, rows, right=True)
        pieces = [(owner == i).nonzero().view(-1) for i in range(len(parts))]
        pixels = [parts[i].read(rows[at] - ends[i] + len(parts[i])) for i, at in enumerate(pieces) if len(at)]
        return torch.cat(pixels)[torch.cat(pieces).argsort()] if pixels else parts[0].read(rows)

    labels = torch.cat([part.labels for part in parts])
    return Images(read, labels, torch.cat([part.ids for part in parts]))


def content_ids(pixels: Tensor) -> Tensor:
    """An id for each image that depends on its pixels alone, int64.

    >>> a, b, c = content_ids(torch.tensor([1, 2, 1], dtype=torch.uint8).view(3, 1, 1, 1)).tolist()
    >>> a == c, a == b
    (True, False)
    """
    shape = str(tuple(pixels.shape[1:])).encode()
    digests = [hashlib.blake2b(shape + image.tobytes(), digest_size=8).digest() for image in pixels.cpu().numpy()]
    return torch.from_numpy(np.frombuffer(b"".join(digests), dtype=np.int64).copy())


def resize(pixels: Tensor, size: int) -> Tensor:
    """Scale a whole batch of uint8 images to size x size (bicubic, antialiased when shrinking).

    A size with a scaling of its own gets that one, image by image. What has the size already is left as it is.

    >>> resize(torch.full((1, 3, 4, 4), 9, dtype=torch.uint8), 8).unique().tolist()
    [9]
    """
    if pixels.shape[-2:] == (size, size) or len(pixels) == 0:
        return pixels if len(pixels) else pixels.new_zeros(0, pixels.shape[1], size, size)
    if scaling_of(size) is not None:
        return torch.stack([square(picture(image), size) for image in pixels])[:, : pixels.shape[1]]
    scaled = F.interpolate(pixels.float(), size=(size, size), mode="bicubic", antialias=True)
    return scaled.round_().clamp_(0, 255).to(torch.uint8)


def check_size(size: int) -> int:
    """A side in pixels that networks can take."""
    if size < 1:
        raise InvalidValue(f"The image size must be at least 1 pixel, got {size}.")
    return size
