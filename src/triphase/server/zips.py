"""Photos in a zip of class folders, read without trusting anything that the zip says."""

from __future__ import annotations

import stat
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import IO

from triphase.data.decoding import image_suffixes
from triphase.errors import BadData
from triphase.server.answering import Upload
from triphase.server.limits import Limits

PIECE = 1 << 20


def photos_in_zip(file: IO[bytes], limits: Limits) -> Iterator[tuple[str, Upload]]:
    """(class, photo) for each photo in the class folders of a zip, at the top or inside one folder."""
    try:
        with zipfile.ZipFile(file) as archive:
            entries = [
                (entry, path) for entry in _entries(archive, limits) if (path := _photo_path(entry)) is not None
            ]
            depth = _depth([path for _, path in entries])
            left = limits.zip_bytes
            for entry, path in entries:
                content = _read(archive, entry, left, limits)
                left -= len(content)
                yield path.parts[depth], Upload(str(path), content)
    except (
        zipfile.BadZipFile,
        zlib.error,
        EOFError,
        NotImplementedError,  # from zipfile: a compression method that it does not know
        ValueError,
        RuntimeError,
        OSError,
    ) as error:
        if isinstance(error, BadData):
            raise
        raise BadData(f"The zip cannot be read ({error}); make it again.") from error


def _entries(archive: zipfile.ZipFile, limits: Limits) -> list[zipfile.ZipInfo]:
    """The files of a zip; refuses paths that leave it, links, and more than the limits allow."""
    entries = archive.infolist()
    if len(entries) > limits.zip_files:
        raise BadData(f"The zip holds {len(entries):,} files, and {limits.zip_files:,} are allowed; make several.")
    for entry in entries:
        name = entry.orig_filename
        if name.startswith(("/", "\\")) or ".." in PurePosixPath(name.replace("\\", "/")).parts or ":" in name[:3]:
            raise BadData(
                f"The zip names {name!r}, which lies outside of it; make it from a folder of class folders."
            )
        if stat.S_ISLNK(entry.external_attr >> 16):
            raise BadData(f"{name!r} in the zip is a link; make the zip with the photos themselves.")
        if entry.flag_bits & 1:
            raise BadData("The zip is encrypted; make one without a password.")
    if sum(entry.file_size for entry in entries) > limits.zip_bytes:
        raise BadData(f"The zip unpacks to more than {limits.zip_bytes:,} bytes; make several.")
    return [entry for entry in entries if not entry.is_dir()]


def _photo_path(entry: zipfile.ZipInfo) -> PurePosixPath | None:
    """The path of a photo in the zip; None for other files and hidden ones."""
    path = PurePosixPath(entry.filename)
    hidden = any(part.startswith(".") or part == "__MACOSX" for part in path.parts)
    return None if hidden or path.suffix.lower() not in image_suffixes() else path


def _depth(paths: list[PurePosixPath]) -> int:
    """The depth of the class folders."""
    if not paths:
        raise BadData("The zip holds no photo; make it from a folder with one folder for each class.")
    loose = [path for path in paths if len(path.parts) < 2]
    if loose:
        raise BadData(f"{loose[0]} in the zip is in no class folder; put it into one, such as cat/{loose[0]}.")
    one_folder = len({path.parts[0] for path in paths}) == 1
    return 1 if one_folder and all(len(path.parts) > 2 for path in paths) else 0


def _read(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, left: int, limits: Limits) -> bytes:
    """The content of a file, as long as it stays within bounds, whatever the zip says about its size."""
    most = min(left, max(PIECE, entry.compress_size * limits.zip_ratio))
    pieces, size = [], 0
    with archive.open(entry) as stream:
        while piece := stream.read(PIECE):
            size += len(piece)
            if size > most:
                raise BadData(f"{entry.filename!r} in the zip unpacks to far more than its size; leave it out.")
            pieces.append(piece)
    return b"".join(pieces)
