"""Data folders for tests: files that look like published datasets, and what is found of them."""

import os
from pathlib import Path

from PIL import Image

from triphase.data.sources.data_folder import check_datasets
from triphase.data.sources.integrity import Integrity


def empty(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()


def sized(path: Path, size: int) -> None:
    """A file of that size that takes no room on the disk."""
    empty(path)
    os.truncate(path, size)


def photo(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (4, 4)).save(path)


def look(data: Path, name: str) -> Integrity:
    (found,) = (dataset for dataset in check_datasets(data) if dataset.info.name == name)
    return found


def found(dataset: Integrity) -> dict[str, int]:
    return {count.what: count.found for count in dataset.counts}


def touch_core50(place: Path, session: int, obj: int, n: int) -> None:
    for frame in range(n):
        empty(place / f"s{session}" / f"o{obj}" / f"C_{session:02}_{obj:02}_{frame:03}.png")


def touch_imagenet(root: Path) -> Path:
    for split, n in (("train", 732), ("val", 50)):
        for wnid in ("n01440764", "n01443537"):
            for i in range(n):
                empty(root / split / wnid / f"{wnid}_{i}.JPEG")
    return root
