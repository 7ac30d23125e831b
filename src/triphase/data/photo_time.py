"""When a photo was taken, as its EXIF says."""

from __future__ import annotations

import math
from datetime import datetime, timezone
from pathlib import Path

from PIL.JpegImagePlugin import JpegImageFile

EXIF, TAKEN_AT = 0x8769, 0x9003  # the block of the camera's settings, and the time in it
FORMAT = "%Y:%m:%d %H:%M:%S"


def taken_at(path: Path) -> float:
    """Seconds by the camera's clock, for comparison only; NaN if the photo has no time."""
    try:
        with JpegImageFile(path) as image:
            taken = image.getexif().get_ifd(EXIF).get(TAKEN_AT, "")
            return datetime.strptime(str(taken).strip("\0 "), FORMAT).replace(tzinfo=timezone.utc).timestamp()
    except Exception:  # no JPEG, or damaged EXIF, of which Pillow's parser makes almost any error
        return math.nan
