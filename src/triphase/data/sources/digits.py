"""scikit-learn's handwritten digits: 1,797 grey images of 8 x 8 that come with the package."""

from pathlib import Path

import torch

from triphase.data.images import Images
from triphase.data.sources.integrity import Count, DatasetInfo, Integrity, Progress
from triphase.randomness import generator

INFO = DatasetInfo(
    "digits",
    "Handwritten digits: 1,797 grey images of 8 x 8 in 10 classes",
    "scikit-learn, which is installed with triphase, https://scikit-learn.org",
    "nothing in --data",
)
IMAGES = 1797


def digits(seed: int = 0) -> tuple[Images, Images, list[str]]:
    """Training and test images (3 to 1 within each class) and the names of the classes.

    >>> train, test, names = digits()
    >>> len(train), len(test), names[:3], train.read(torch.tensor([0])).shape
    (1347, 450, ['0', '1', '2'], torch.Size([1, 1, 8, 8]))
    """
    from sklearn.datasets import load_digits  # here: importing scikit-learn takes a second

    bunch = load_digits()
    grey = torch.from_numpy(bunch.images)[:, None]  # (1797, 1, 8, 8), 0 to 16
    labels = torch.from_numpy(bunch.target)
    pixels = (grey * 255 / 16).round().to(torch.uint8)
    every = Images.from_array(pixels, labels, torch.arange(len(labels)))
    train, test = [], []
    for label in range(10):
        members = (labels == label).nonzero()[:, 0]
        members = members[torch.randperm(len(members), generator=generator(seed, "digits", label))]
        cut = round(len(members) / 4)
        test.append(members[:cut])
        train.append(members[cut:])
    names = [str(label) for label in range(10)]
    return every.select(torch.cat(train).sort()[0]), every.select(torch.cat(test).sort()[0]), names


def check_integrity(data: Path, progress: Progress) -> Integrity:
    """They come with scikit-learn, whatever is in the data folder."""
    train, test, _ = digits()
    return Integrity(INFO, (Count("images", len(train) + len(test), IMAGES),))
