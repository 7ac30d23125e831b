"""When a photo was taken."""

import math
from pathlib import Path

import pytest
from PIL import Image

from triphase.data.photo_time import EXIF, TAKEN_AT, taken_at


def photo(path: Path, said: str | None) -> Path:
    exif = Image.Exif()
    if said is not None:
        exif.get_ifd(EXIF)[TAKEN_AT] = said
    Image.new("RGB", (8, 8)).save(path, exif=exif)
    return path


def test_the_difference_of_two_photos_is_in_seconds(tmp_path: Path) -> None:
    first = photo(tmp_path / "a.jpg", "2024:02:28 23:59:00")
    second = photo(tmp_path / "b.jpg", "2024:02:29 00:01:30")
    assert taken_at(second) - taken_at(first) == 150


@pytest.mark.parametrize("said", [None, "", "yesterday", "0000:00:00 00:00:00"])
def test_a_photo_that_does_not_say_has_no_time(said: str | None, tmp_path: Path) -> None:
    assert math.isnan(taken_at(photo(tmp_path / "a.jpg", said)))


def test_what_is_no_jpeg_has_no_time(tmp_path: Path) -> None:
    (tmp_path / "a.jpg").write_bytes(b"no photo")
    assert math.isnan(taken_at(tmp_path / "a.jpg")) and math.isnan(taken_at(tmp_path / "missing.jpg"))
