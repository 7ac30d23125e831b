"""Labelled images, in memory or on disk, read as whole batches of uint8 NCHW."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from pathlib import Path
from threading import Lock

import numpy as np
import torch
from PIL import Image, ImageOps
from PIL.JpegImagePlugin import JpegImageFile
from torch import Tensor
from torch.nn import functional as F

from triphase.errors import BadData, InvalidValue

DECODE_THREADS = min(8, (os.cpu_count() or 2) + 2)  # some wait for the disk; each may hold a large photo
Reader = Callable[[Tensor], Tensor]  # row numbers (int64) -> uint8 NCHW

# EPS would start Ghostscript on the file; Pillow only recognises the others, it cannot draw them.
NOT_DECODED = frozenset({"EPS", "BUFR", "GRIB", "HDF5", "MPEG", "WMF"})
# Photos that Pillow cannot read by itself: they are refused by name rather than passed over.
FOREIGN_SUFFIXES = frozenset({".heic", ".heif"})
# How JPEG, PNG, GIF, WebP, BMP and AVIF begin.
PHOTO = re.compile(rb"\xff\xd8\xff|\x89PNG\r\n|GIF8[79]a|RIFF.{4}WEBP|BM.{4}\0{4}|.{4}ftypavi[fs]", re.DOTALL)
TIFF = (b"II*\0", b"MM\0*")  # raw files of cameras too, which have suffixes of their own and hold a thumbnail
LARGE = 1 << 24  # pixels of an image that is decoded while no other large one is, so that memory stays bounded
_one_large = Lock()
DRAFT = 96  # pixels: no JPEG is decoded smaller, so a photo's pixels do not depend on what else is made of it
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


class Images:
    """Labelled images with stable ids; `read` returns pixels at one common size.

    Ids tell samples apart for ever (the reservoir's keys come from them): a content hash, or the position in the
    dataset for published sets.

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
        """Files decoded on demand by a thread pool, as size x size RGB."""
        check_size(size)
        if len(paths) != len(labels):
            raise BadData(f"{len(paths)} images but {len(labels)} labels: give one label for each image.")

        def read(rows: Tensor) -> Tensor:
            decoded = list(decode_pool().map(lambda row: decode(paths[row], size), rows.tolist()))
            return torch.stack(decoded) if decoded else torch.empty(0, 3, size, size, dtype=torch.uint8)

        return cls(read, labels, ids)

    def __len__(self) -> int:
        return len(self.labels)

    def read(self, indices: Tensor) -> Tensor:
        """uint8 pixels (len(indices), channels, height, width)."""
        return self._reader(self._rows[indices])

    def select(self, indices: Tensor, labels: Tensor | None = None) -> Images:
        """Some of the images, optionally under other labels; no pixel is copied."""
        chosen = self.labels[indices] if labels is None else labels
        return Images(self._reader, chosen, self.ids[indices], self._rows[indices])

    def resized(self, size: int) -> Images:
        """The same images, scaled to size x size whenever they are read."""
        reader = self._reader
        return Images(lambda rows: resize(reader(rows), size), self.labels, self.ids, self._rows)


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

    >>> resize(torch.full((1, 3, 4, 4), 9, dtype=torch.uint8), 8).unique().tolist()
    [9]
    """
    if pixels.shape[-2:] == (size, size) or len(pixels) == 0:
        return pixels if len(pixels) else pixels.new_zeros(0, pixels.shape[1], size, size)
    scaled = F.interpolate(pixels.float(), size=(size, size), mode="bicubic", antialias=True)
    return scaled.round_().clamp_(0, 255).to(torch.uint8)


def decode(path: Path, size: int) -> Tensor:
    """One file as uint8 (3, size, size), whatever its suffix; see `decode_sizes`."""
    return decode_sizes(path, (size,))[0]


def decode_sizes(path: Path, sizes: Sequence[int]) -> list[Tensor]:
    """One file as a uint8 (3, size, size) square of each size, from pixels that are decoded once; see `squares`.

    A JPEG is decoded at the smallest fraction that covers the largest square and one of DRAFT pixels, so it may be
    of any size; other images may have as many pixels as Pillow's MAX_IMAGE_PIXELS (89 million). Whatever is larger,
    or cannot be decoded to the end, is BadData.
    """
    side = max(DRAFT, *sizes)
    try:
        with _open(path) as image:
            full = image.size
            image.draft("RGB", (side, side))  # only JPEG knows how; a progressive one is held in full all the same
            pixels = _check_pixels(*(full if image.info.get("progressive") else image.size))
            guard: AbstractContextManager[object] = _one_large if pixels > LARGE else nullcontext()
            with guard:
                return squares(image, sizes)
    except Exception as error:  # damaged files make Pillow's parsers raise almost anything
        if isinstance(error, (Image.DecompressionBombError, Image.DecompressionBombWarning)):
            remedy = "save a smaller copy, or a JPEG that is not progressive"
        else:
            remedy = "export it as JPEG" if path.suffix.lower() in FOREIGN_SUFFIXES else "mend or remove it"
        raise BadData(f"{path} cannot be read as an image ({error}); {remedy}.") from error


def square(image: Image.Image, size: int) -> Tensor:
    """A picture as uint8 (3, size, size); see `squares`.

    >>> square(Image.new("L", (3, 5), 7), 2).shape
    torch.Size([3, 2, 2])
    """
    return squares(image, (size,))[0]


def squares(image: Image.Image, sizes: Sequence[int]) -> list[Tensor]:
    """A picture as a uint8 (3, size, size) square of each size: turned as its EXIF says, scaled to cover, cropped.

    Transparency is laid on white, as viewers show it; 16-bit grey is scaled to 8 bits; of an animation
    the first frame counts.
    """
    image.load()
    turn, whole = _turn(image), _eight_bits(image)
    scaled = []
    for size in sizes:
        small = ImageOps.fit(whole, (size, size), Image.Resampling.BICUBIC)
        if small.mode == "RGBA":
            small = Image.alpha_composite(Image.new("RGBA", small.size, "white"), small)
        if turn is not None:
            small = small.transpose(turn)
        scaled.append(torch.from_numpy(np.array(small.convert("RGB"))).permute(2, 0, 1).contiguous())
    return scaled


def _open(path: Path) -> Image.Image:
    """The file as an image whose pixels are not decoded yet."""
    with open(path, "rb") as file:
        start = file.read(3)
    # Not by Image.open, which refuses large JPEGs before they can be asked for a fraction.
    return JpegImageFile(path) if start == b"\xff\xd8\xff" else Image.open(path, formats=_formats())


def _check_pixels(width: int, height: int) -> int:
    """The number of pixels to decode, if memory can be trusted to hold them."""
    limit = Image.MAX_IMAGE_PIXELS
    if limit is not None and width * height > limit:
        raise Image.DecompressionBombError(f"{width} x {height} pixels, at most {limit:,} can be decoded safely")
    return width * height


def _turn(image: Image.Image) -> Image.Transpose | None:
    """How to turn a loaded image upright; damaged EXIF is ignored."""
    try:
        return TURNS.get(image.getexif().get(ORIENTATION, 1))
    except Exception:  # the parser raises almost anything, and the picture is still good
        return None


def _eight_bits(image: Image.Image) -> Image.Image:
    """Any mode as 8-bit L, RGB or (if parts are transparent) RGBA; no copy where it is one already."""
    if image.mode == "F":
        raise BadData("floating point pixels have no defined white: save it with 8 bits per channel")
    if image.mode.startswith("I"):  # 16 bits, sometimes held in 32; convert("RGB") would clip at 255
        deep = np.asarray(image).astype(np.int32).clip(0, 65535)
        deep += 128
        deep //= 257
        return Image.fromarray(deep.astype(np.uint8))
    wanted = "RGBA" if image.has_transparency_data else "L" if image.mode == "L" else "RGB"
    return image if image.mode == wanted else image.convert(wanted)


def is_picture(path: Path) -> bool:
    """Whether a file begins as photos do, whatever its name."""
    try:
        with open(path, "rb") as file:
            start = file.read(16)
    except OSError:
        return False
    return PHOTO.match(start) is not None or (not path.suffix and start[:4] in TIFF)


@cache
def _formats() -> tuple[str, ...]:
    """The file formats that `decode` opens."""
    Image.init()
    return tuple(name for name in Image.ID if name not in NOT_DECODED)


@cache
def image_suffixes() -> frozenset[str]:
    """Lower-case suffixes of files that count as images.

    >>> sorted(image_suffixes() & {".jpg", ".png", ".webp", ".pdf", ".txt"})
    ['.jpg', '.png', '.webp']
    """
    decoded = {*_formats(), "MPO"}  # MPO is opened as JPEG
    known = {suffix for suffix, name in Image.registered_extensions().items() if name in decoded}
    return frozenset(known | FOREIGN_SUFFIXES)


def decode_pool() -> ThreadPoolExecutor:
    """The threads that decode files, started once per process."""
    return _pool_of(os.getpid())


@cache
def _pool_of(pid: int) -> ThreadPoolExecutor:
    # One for each process: a forked child inherits the object without its threads and would wait for ever.
    return ThreadPoolExecutor(DECODE_THREADS, thread_name_prefix=f"decode-{pid}")


def check_size(size: int) -> int:
    """A side in pixels that networks can take."""
    if size < 1:
        raise InvalidValue(f"The image size must be at least 1 pixel, got {size}.")
    return size
