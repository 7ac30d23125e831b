"""CIFAR-100 from either official download: 60,000 colour images of 32 x 32 in 100 classes."""

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from triphase.data.images import Images
from triphase.data.sources.plain_pickle import read_plain, text
from triphase.errors import BadData

URL = "https://www.cs.toronto.edu/~kriz/cifar.html"
COUNTS = {"train": 50_000, "test": 10_000}
RECORD = 2 + 3 * 32 * 32  # coarse label, fine label, the red, green and blue planes
FILES = {
    "cifar-100-binary": ("train.bin", "test.bin", "fine_label_names.txt"),
    "cifar-100-python": ("train", "test", "meta"),
}


def cifar100(root: Path, *, complete: bool = True) -> tuple[Images, Images, list[str]]:
    """Training images (ids from 0), test images (ids from 50,000) and the names of the fine classes.

    `root` is the unpacked folder of the binary or the Python version, or contains it. complete=False also
    takes files with fewer images than the official ones.
    """
    folder, layout = _find(Path(root))
    read = _binary if layout == "cifar-100-binary" else _python
    train_file, test_file, names_file = (folder / name for name in FILES[layout])
    names = _names(names_file, complete)
    splits = []
    for split, path, first_id in (("train", train_file, 0), ("test", test_file, COUNTS["train"])):
        pixels, labels = read(path)
        if complete and len(pixels) != COUNTS[split]:
            raise _damaged(path, f"holds {len(pixels):,} images instead of {COUNTS[split]:,}")
        if len(labels) != len(pixels) or bool(((labels < 0) | (labels >= len(names))).any()):
            raise _damaged(path, f"has labels that do not fit its {len(pixels):,} images of {len(names)} classes")
        splits.append(Images.from_array(pixels, labels, torch.arange(first_id, first_id + len(pixels))))
    return splits[0], splits[1], names


def _find(root: Path) -> tuple[Path, str]:
    """The folder with the files, and its layout."""
    missing: Path | None = None
    for layout, files in FILES.items():
        for folder in (root / layout, root):
            absent = [folder / name for name in files if not (folder / name).is_file()]
            if not absent:
                return folder, layout
            if len(absent) < len(files):
                missing = absent[0]
    if missing:
        raise BadData(f"CIFAR-100 is incomplete: {missing} is missing; get it again from {URL}.")
    raise BadData(
        f"There is no CIFAR-100 in {root}: unpack there the binary version (cifar-100-binary) or the Python "
        f"version (cifar-100-python) from {URL}."
    )


def _damaged(path: Path, what: str) -> BadData:
    return BadData(f"{path} {what}: the download is incomplete or damaged; get it again from {URL}.")


def _names(path: Path, complete: bool) -> list[str]:
    """The 100 fine class names."""
    if path.suffix == ".txt":
        names = path.read_text("utf-8").split()
    else:
        found = read_plain(path).get("fine_label_names")
        if not isinstance(found, list) or not all(isinstance(name, str | bytes) for name in found):
            raise _damaged(path, "lacks 'fine_label_names'")
        names = [text(name) for name in found]
    if complete and len(names) != 100:
        raise _damaged(path, f"names {len(names)} classes instead of 100")
    return names


def _binary(path: Path) -> tuple[Tensor, Tensor]:
    """Pixels (n, 3, 32, 32) and fine labels; the pixels are a view of the file's bytes, read once."""
    try:
        content = torch.from_numpy(np.fromfile(path, dtype=np.uint8))
    except OSError as error:
        raise _damaged(path, f"cannot be read ({error})") from error
    if len(content) % RECORD:
        raise _damaged(path, f"has {len(content):,} bytes, which is no whole number of records of {RECORD:,}")
    records = content.view(len(content) // RECORD, RECORD)
    return records[:, 2:].unflatten(1, (3, 32, 32)), records[:, 1].long()


def _python(path: Path) -> tuple[Tensor, Tensor]:
    """Pixels (n, 3, 32, 32) and fine labels, out of the pickle without running it."""
    fields = read_plain(path)
    data, labels = fields.get("data"), fields.get("fine_labels")
    if not isinstance(data, np.ndarray) or data.shape[1:] != (3072,) or not isinstance(labels, list):
        raise _damaged(path, "lacks 'data' of 3,072 bytes per image or 'fine_labels'")
    if not all(type(label) is int for label in labels):
        raise _damaged(path, "has labels that are not whole numbers")
    return torch.from_numpy(data).reshape(len(data), 3, 32, 32), torch.tensor(labels, dtype=torch.long)
