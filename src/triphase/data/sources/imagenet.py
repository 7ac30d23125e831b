"""ImageNet (ILSVRC 2012) from its folders; nothing is decoded before it is asked for."""

from pathlib import Path

import torch

from triphase.data.images import Images
from triphase.data.sources.listing import Listed, listdir, path_ids
from triphase.errors import BadData

LAYOUT = (
    "ImageNet is expected as train/<wnid>/*.JPEG and val/<wnid>/*.JPEG, such as "
    "train/n01440764/n01440764_18.JPEG; get it from https://www.image-net.org/download.php"
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
        images = [name for name in listdir(root / split / wnid) if name.lower().endswith((".jpeg", ".jpg"))]
        if images:
            files += [f"{split}/{wnid}/{name}" for name in images]
            labels += [len(names)] * len(images)
            names.append(wnid)
    if not names:
        raise BadData(f"{root / split} has no class folders with images. {LAYOUT}.")
    return Images.from_files(Listed(root, files), torch.tensor(labels), path_ids(files), size), names
