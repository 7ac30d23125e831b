"""Image files of every kind as uint8 squares; a file that cannot be read is a BadData with a remedy."""

from __future__ import annotations

import ctypes
import os
import re
import stat
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from io import BytesIO
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, TypeVar

from PIL import Image, UnidentifiedImageError
from PIL.JpegImagePlugin import JpegImageFile

from triphase.data.squares import Pixels, squares, tensors
from triphase.errors import BadData
from triphase.image_size import scaling_of

if TYPE_CHECKING:
    from torch import Tensor

DECODE_THREADS = min(8, (os.cpu_count() or 2) + 2)  # some wait for the disk; each may hold a photo below LARGE
LARGE = 1 << 24  # pixels of an image that is decoded while no other large one is, so that memory stays bounded
DRAFT = 96  # pixels: no JPEG is decoded smaller, so a photo's pixels do not depend on what else is made of it
_one_large = Lock()  # of the process, as its memory is
TOO_LARGE = (Image.DecompressionBombError, Image.DecompressionBombWarning)  # they name the number of pixels
Item = TypeVar("Item")
Result = TypeVar("Result")

# EPS would start Ghostscript on the file; Pillow only recognises the others, it cannot draw them.
NOT_DECODED = frozenset({"EPS", "BUFR", "GRIB", "HDF5", "MPEG", "WMF"})
# Photos that Pillow cannot read by itself: they are refused by name rather than passed over.
FOREIGN_SUFFIXES = frozenset({".heic", ".heif"})
JPEG, PNG = b"\xff\xd8\xff", b"\x89PNG\r\n"  # how they begin
# How JPEG, PNG, GIF, WebP, BMP and AVIF begin.
PHOTO = re.compile(rb"\xff\xd8\xff|\x89PNG\r\n|GIF8[79]a|RIFF.{4}WEBP|BM.{4}\0{4}|.{4}ftypavi[fs]", re.DOTALL)
HEIC = re.compile(rb".{4}ftyp(?:hei|hev|mif1|msf1)", re.DOTALL)  # of telephones, also under the name of a JPEG
TIFF = (b"II*\0", b"MM\0*")  # raw files of cameras too, which have suffixes of their own and hold a thumbnail


def decode(path: Path, size: int) -> Tensor:
    """One file as uint8 (3, size, size), whatever its suffix; see `decode_sizes`."""
    return decode_sizes(path, (size,))[0]


def decode_array(path: Path, size: int) -> Pixels:
    """The same as an array."""
    check_file(path)
    return _decode(path, path, (size,))[0]


def decode_sizes(path: Path, sizes: Sequence[int]) -> list[Tensor]:
    """One file as a uint8 (3, size, size) square of each size, from pixels that are decoded once; see `squares`.

    A JPEG is decoded at the smallest fraction that covers the largest square and one of DRAFT pixels, so it may be
    of any size; other images may have as many pixels as Pillow's MAX_IMAGE_PIXELS (89 million). Whatever is larger,
    or cannot be decoded to the end, is BadData. Where a size has a scaling of its own, a JPEG of at most as many
    pixels is decoded whole: it is the whole photo that timm scales.
    """
    check_file(path)
    return tensors(_decode(path, path, sizes))


def decode_bytes(content: bytes, name: str, sizes: Sequence[int], *, max_pixels: int | None = None) -> list[Tensor]:
    """The content of a file in the same way; errors call it `name`, and more than `max_pixels` are refused."""
    if not content:
        raise _empty(name)
    return tensors(_decode(BytesIO(content), Path(name), sizes, max_pixels))


def _decode(
    source: Path | BytesIO, path: Path, sizes: Sequence[int], max_pixels: int | None = None
) -> list[Pixels]:
    side, start = max(DRAFT, *sizes), b""
    try:
        start = _first_bytes(source)
        with _open(source, start) as image:
            width, height = image.size
            if max_pixels is not None and width * height > max_pixels:
                raise _Refused(f"{width} x {height} pixels, at most {max_pixels:,} are accepted")
            progressive, full = bool(image.info.get("progressive")), image.size
            if not _decodes_whole(*full, sizes):
                # only JPEG supports this; a progressive one is decoded in full anyway
                image.draft("RGB", (side, side))
            n_pixels = _check_pixels(*(full if progressive else image.size))
            with _memory_for(n_pixels):
                try:
                    return squares(image, sizes)
                finally:
                    image.close()  # frees the pixels before another large image is decoded
    except Exception as error:  # damaged files make Pillow's parsers raise almost anything
        raise _unreadable(path, start, error) from error


def short_side(path: Path) -> int:
    """The smaller of a picture's width and height, in pixels; they are not decoded."""
    check_file(path)
    start = b""
    try:
        start = _first_bytes(path)
        with _open(path, start) as image:
            return min(image.size)
    except Exception as error:  # as in `decode_sizes`
        raise _unreadable(path, start, error) from error


def in_threads(work: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
    """What `work` makes of each item, in order, in as many threads as decode well together.

    >>> in_threads(abs, [-1, 2])
    [1, 2]
    """
    if len(items) < 2:
        return [work(item) for item in items]
    with ThreadPoolExecutor(min(DECODE_THREADS, len(items))) as pool:
        return list(pool.map(work, items))


def check_file(path: Path) -> os.stat_result:
    """What the system says about a file with something in it; whatever else the path names is BadData."""
    try:
        status = path.stat()
    except FileNotFoundError as error:
        raise BadData(_missing(path)) from error
    except OSError as error:
        raise BadData(f"{path} cannot be read ({error.strerror}); allow reading it, or remove it.") from error
    if stat.S_ISDIR(status.st_mode):
        raise BadData(f"{path} is a folder; give the photos in it, such as {path}/*.jpg.")
    if not stat.S_ISREG(status.st_mode):  # reading a pipe might never end
        raise BadData(f"{path} is neither a file nor a folder; give photos.")
    if status.st_size == 0:
        raise _empty(path)
    return status


def _missing(path: Path) -> str:
    """Why there may be no file of this name, and what to do."""
    if path.is_symlink():
        return f"{path} is a link to {os.readlink(path)}, which does not exist; mend or remove the link."
    if any(sign in path.name for sign in "*?["):
        return f"No file matches {path}; check the folder and the spelling."
    return f"There is no file {path}; check the spelling, or whether it was moved or removed."


def _open(source: Path | BytesIO, start: bytes) -> Image.Image:
    """The file as an image whose pixels are not decoded yet; `start` is how it begins."""
    if start.startswith(JPEG):
        # not by Image.open, which refuses large JPEGs before they can be asked for a fraction
        return JpegImageFile(source)
    # Pillow has loaded the plugin for PNG already; loading those of all formats takes a tenth of a second.
    return Image.open(source, formats=("PNG",) if start.startswith(PNG) else _formats())


def _first_bytes(source: Path | BytesIO) -> bytes:
    if isinstance(source, BytesIO):
        return source.getvalue()[:12]
    with open(source, "rb") as file:
        return file.read(12)


class _Refused(Exception):
    """An image with more pixels than were asked for, in whatever format."""


def _check_pixels(width: int, height: int) -> int:
    """The number of pixels to decode, if Pillow's limit allows it."""
    limit = Image.MAX_IMAGE_PIXELS
    if limit is not None and width * height > limit:
        raise Image.DecompressionBombError(f"{width * height} pixels")
    return width * height


def _decodes_whole(width: int, height: int, sizes: Sequence[int]) -> bool:
    """Whether every pixel of a JPEG counts, and all of them can be decoded safely."""
    limit = Image.MAX_IMAGE_PIXELS
    return any(map(scaling_of, sizes)) and (limit is None or width * height <= limit)


@contextmanager
def _memory_for(n_pixels: int) -> Iterator[None]:
    """Wait, if the image is large, until no other large one is decoded; what it frees goes back to the system.

    glibc keeps freed memory for the thread that used it, so every thread would come to hold that of a large image.
    """
    if n_pixels <= LARGE:
        yield
        return
    with _one_large:
        try:
            yield
        finally:
            if sys.platform == "linux" and hasattr(libc := ctypes.CDLL(None), "malloc_trim"):
                libc.malloc_trim(0)


def _empty(name: object) -> BadData:
    return BadData(f"{name} is an empty file, as a failed copy leaves it; copy the photo again, or remove it.")


def _unreadable(path: Path, start: bytes, error: Exception) -> BadData:
    return BadData(f"{path} cannot be read as an image ({_reason(error)}); {_remedy(path, start, error)}.")


def _reason(error: Exception) -> str:
    """What went wrong, without the file's name, which the message has already."""
    if isinstance(error, UnidentifiedImageError):
        return "its content is no image format that is known here"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    if isinstance(error, TOO_LARGE) and (
        pixels := re.search(r"\d+", str(error))
    ):  # Pillow's limit is twice as high
        return f"{int(pixels[0]):,} pixels, at most {Image.MAX_IMAGE_PIXELS:,} can be decoded safely"
    return str(error)


def _remedy(path: Path, start: bytes, error: Exception) -> str:
    """What to do about a file that begins with `start` and cannot be decoded."""
    if isinstance(error, _Refused):
        return "save a smaller copy"
    if isinstance(error, TOO_LARGE):
        # a JPEG is read at a fraction
        other = "a JPEG that is not progressive" if start.startswith(JPEG) else "a copy as JPEG"
        return f"save a smaller copy, or {other}"
    foreign = path.suffix.lower() in FOREIGN_SUFFIXES or HEIC.match(start)
    return "export it as JPEG" if foreign else "mend or remove it"


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
