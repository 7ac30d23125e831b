"""ImageNet (ILSVRC 2012) from its folders; nothing is decoded before it is asked for."""

import re
from pathlib import Path
from typing import NamedTuple

import torch

from triphase.data.images import Images
from triphase.data.photo_files import listdir
from triphase.data.sources.files import LazyPaths, path_ids
from triphase.data.sources.integrity import Count, DatasetInfo, Integrity, Progress, packed_archives
from triphase.errors import BadData, few

URL = "https://www.image-net.org/download.php"
FOLDERS = "train/<wnid>/*.JPEG and val/<wnid>/*.JPEG, such as train/n01440764/n01440764_18.JPEG"
LAYOUT = f"ImageNet is expected as {FOLDERS}; get it from {URL}"
CLASSES, TRAIN_IMAGES, VAL_IMAGES = 1000, 1_281_167, 50_000
ARCHIVES = ("ILSVRC2012_img_train.tar", "ILSVRC2012_img_val.tar")
OFFICIAL = re.compile(r"(n\d+|ILSVRC2012_val)_\d+\.JPEG")
LEAST = {"train": 732, "val": 50}  # images of the smallest class
INFO = DatasetInfo(
    "imagenet",
    "ImageNet (ILSVRC 2012): 1,281,167 training and 50,000 validation images in 1,000 classes",
    f"the ImageNet project, for registered users, {URL}",
    FOLDERS,
)


def imagenet(root: Path, size: int = 256) -> tuple[Images, Images, list[str]]:
    """Training images, validation images (the usual test set) and the wnids of the classes, sorted.

    Images are scaled so that the shorter side is `size` and cropped to the middle square. The id of an
    image is a hash of its path below `root`.
    """
    root = Path(root)
    train, names = _split(root, "train", size)
    test, test_names = _split(root, "val", size)
    different = sorted(set(names) ^ set(test_names))
    if different:
        raise BadData(
            f"{root / 'train'} has {len(names)} classes and {root / 'val'} {len(test_names)}; {different[0]} "
            f"is in one only ({len(different)} such classes): unpack what is missing."
        )
    return train, test, names


def _split(root: Path, split: str, size: int) -> tuple[Images, list[str]]:
    """The images of one split, and its classes."""
    if not (root / split).is_dir():
        raise BadData(f"There is no folder {root / split}. {LAYOUT}.")
    names: list[str] = []
    files: list[str] = []
    labels: list[int] = []
    for wnid in listdir(root / split):
        images = _images(listdir(root / split / wnid))
        if images:
            files += [f"{split}/{wnid}/{name}" for name in images]
            labels += [len(names)] * len(images)
            names.append(wnid)
    if not names:
        raise BadData(f"{root / split} has no class folders with images. {LAYOUT}.")
    return Images.from_files(LazyPaths(root, files), torch.tensor(labels), path_ids(files), size), names


class _SplitFolder(NamedTuple):
    """What is in the folder of a split."""

    classes: dict[str, int]  # images by wnid, for folders that have some
    loose: list[str]  # images of the dataset in no class folder
    packed: list[str]  # archives of classes


def check_integrity(data: Path, progress: Progress) -> Integrity:
    """Class folders and images of both splits."""
    splits = {split: _count_images(data / split, progress) for split in LEAST}
    train, val = (found.classes for found in splits.values())
    problems = [] if train and val else packed_archives(data, ARCHIVES)
    for split, found in splits.items():
        short = [f"{wnid} ({n} of {_at_least(split)})" for wnid, n in found.classes.items() if n < LEAST[split]]
        if found.packed:
            problems.append(f"Still packed in {split}: {few(found.packed)}; unpack each into a folder of its name.")
        if found.loose:
            lying = f"{len(found.loose):,} images lie in {split} itself"
            problems.append(f"{lying}: {few(found.loose)}; sort them into {split}/<wnid>.")
        if short:
            problems.append(f"Classes of {split} with too few images: {few(short)}.")
    if train and val:
        for split, absent in (("train", sorted(val.keys() - train)), ("val", sorted(train.keys() - val))):
            problems += [f"Missing in {split}: {few(absent)}."] if absent else []
    counts = (
        Count("class folders in train", len(train), CLASSES),
        Count("training images", sum(train.values()), TRAIN_IMAGES),
        Count("class folders in val", len(val), CLASSES),
        Count("validation images", sum(val.values()), VAL_IMAGES),
    )
    own = [split for split, found in splits.items() if any(re.fullmatch(r"n\d+", name) for name in found.classes)]
    return Integrity(INFO, counts, tuple(problems), frozenset(own))


def _at_least(split: str) -> str:
    return f"at least {LEAST[split]}" if split == "train" else str(LEAST[split])


def _count_images(folder: Path, progress: Progress) -> _SplitFolder:
    """Count what is in the folder of a split; no file is opened."""
    names = listdir(folder)
    loose = [name for name in names if OFFICIAL.fullmatch(name)]
    classes: dict[str, int] = {}
    for wnid in sorted(set(names) - set(loose)):
        classes[wnid] = len(_images(listdir(folder / wnid)))
        progress(classes[wnid])
    packed = [name for name in names if name.endswith(".tar")]
    return _SplitFolder({wnid: n for wnid, n in classes.items() if n}, loose, packed)


def _images(names: list[str]) -> list[str]:
    return [name for name in names if name.lower().endswith((".jpeg", ".jpg"))]
