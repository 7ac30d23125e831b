"""Photos that are always the same: drawn from the name of the class and the number of the photo."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
from PIL import Image

FIRST = {"apple": 36, "brick": 36, "cloth": 36}  # photos of the first lesson
SECOND = {"apple": 6, "daisy": 8, "earth": 8}  # of the second one: two new classes, and more of an old one
EVEN = {"apple": 12, "brick": 12, "cloth": 12}, {"daisy": 12, "earth": 12}  # lessons of about the same size
NEAR_DUPLICATES = 5  # every fifth photo is nearly the same as the one before


def make_photos(folder: Path) -> None:
    """Write all sets: two lessons as PNG and as large JPEG, even lessons, lesson1 with moved photos, and tests."""
    _write(folder / "lesson1", FIRST, start=0)
    _write(folder / "lesson2", SECOND, start=1000)
    _write(folder / "jpeg1", FIRST, start=0, jpeg=True)
    _write(folder / "jpeg2", SECOND, start=1000, jpeg=True)
    _write(folder / "even1", EVEN[0], start=2000)
    _write(folder / "even2", EVEN[1], start=3000)
    _write(folder / "test", dict.fromkeys(["apple", "brick", "cloth", "daisy", "earth"], 4), start=4000)
    _write(folder / "strange", {"foliage": 2}, start=5000)
    _write(folder / "corrected", FIRST, start=0)
    for i in range(4):
        file = folder / "corrected" / "apple" / f"{i:04d}.png"
        file.rename(folder / "corrected" / "brick" / f"moved-{i:04d}.png")
    for i in range(2):  # the second lesson brings near-duplicates of photos of the first one
        draw("apple", i, brighter=3).save(folder / "lesson2" / "apple" / f"again-{i:04d}.png")


def _write(folder: Path, counts: dict[str, int], start: int, jpeg: bool = False) -> None:
    for name, n in counts.items():
        (folder / name).mkdir(parents=True)
        for i in range(start, start + n):
            again = i % NEAR_DUPLICATES == NEAR_DUPLICATES - 1
            photo = draw(name, i - 1, brighter=2) if again else draw(name, i)
            if jpeg:  # three times as large, so that a decoder may take a fraction
                photo.resize((3 * photo.width, 3 * photo.height)).save(folder / name / f"{i:04d}.jpg", quality=90)
            else:
                photo.save(folder / name / f"{i:04d}.png")


def draw(name: str, number: int, brighter: int = 0) -> Image.Image:
    """A photo of more than 128 pixels: stripes and blobs whose colours and angles depend on the class."""
    ours, own = _generator(name, -1), _generator(name, number)
    height, width = (int(side) for side in own.integers(135, 220, 2))
    y, x = np.mgrid[:height, :width] / 100.0
    angle, rate = ours.uniform(0, np.pi) + own.normal(0, 0.4), ours.uniform(4, 22) * own.uniform(0.6, 1.6)
    stripes = np.sin(rate * (x * np.cos(angle) + y * np.sin(angle)) + own.uniform(0, 6))
    photo = 128 + 45 * stripes[..., None] * ours.uniform(-1, 1, 3) + 20 * ours.uniform(-1, 1, 3)
    photo = photo + 35 * own.normal(size=3)
    for _ in range(int(ours.integers(2, 9))):
        cy, cx, radius = own.uniform(0, height / 100), own.uniform(0, width / 100), own.uniform(0.1, 0.4)
        inside = ((y - cy) ** 2 + (x - cx) ** 2 < radius**2)[..., None]
        photo = photo + inside * (50 * ours.uniform(-1, 1, 3) + 40 * own.normal(size=3))
    photo = photo + own.normal(0, 12, photo.shape) + brighter
    return Image.fromarray(photo.clip(0, 255).astype(np.uint8))


def _generator(name: str, number: int) -> np.random.Generator:
    seed = hashlib.sha256(f"{name} {number}".encode()).digest()
    return np.random.default_rng(int.from_bytes(seed[:8], "little"))
