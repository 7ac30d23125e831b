"""CIFAR-100 from either official download: 60,000 colour images of 32 x 32 in 100 classes."""

import hashlib
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from triphase.data.images import Images
from triphase.data.sources.integrity import Count, DatasetInfo, Integrity, Progress, packed_archives
from triphase.errors import BadData, few

URL = "https://www.cs.toronto.edu/~kriz/cifar.html"
COUNTS = {"train": 50_000, "test": 10_000}
RECORD = 2 + 3 * 32 * 32  # coarse label, fine label, the red, green and blue planes
FILES = {
    "cifar-100-binary": ("train.bin", "test.bin", "fine_label_names.txt"),
    "cifar-100-python": ("train", "test", "meta"),
}
CLASSES = 100
MD5 = {  # of the Python version's files
    "train": "16019d7e3df5f24257cddd939b257f8d",
    "test": "f0ef6b0ae62326f3e7ffdfab6717acfc",
}
INFO = DatasetInfo(
    "cifar100",
    "CIFAR-100: 60,000 colour images of 32 x 32 in 100 classes",
    f"the CIFAR page of the University of Toronto, {URL}",
    "cifar-100-binary/ with train.bin, test.bin and fine_label_names.txt, "
    "or cifar-100-python/ with train, test and meta",
)


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


def check_integrity(data: Path, progress: Progress) -> Integrity:
    """Images in the files of that version of which more is there."""
    places = [(folder, layout) for layout in FILES for folder in (data / layout, data)]
    folder, layout = max(places, key=lambda place: sum((place[0] / name).is_file() for name in FILES[place[1]]))
    paths = [folder / name for name in FILES[layout]]
    kinds = ("training images", COUNTS["train"]), ("test images", COUNTS["test"]), ("class names", CLASSES)
    there = [path for path in paths if path.is_file()]
    problems = []
    counts = []
    for path, (what, expected) in zip(paths, kinds, strict=True):
        found, problem = _count(path) if path in there else (0, "")
        counts.append(Count(what, found, expected))
        problems += [problem] if problem else []
        progress(1)
    missing = [str(path.relative_to(data)) for path in paths if path not in there]
    if missing and there:
        problems.append(f"Missing: {few(missing)}.")
    elif missing:
        problems = packed_archives(data, [f"{layout}.tar.gz" for layout in FILES])
    return Integrity(INFO, tuple(counts), tuple(problems), frozenset(FILES))


def _count(path: Path) -> tuple[int, str]:
    """How many images (or names) a file holds, and what is wrong with it."""
    try:
        if path.suffix == ".bin":
            whole, rest = divmod(path.stat().st_size, RECORD)
            cut = f"{path} ends in the middle of image {whole + 1:,}; get it again from {URL}."
            return whole, cut if rest else ""
        if path.name not in MD5:
            return len(_names(path, False)), ""
        if _md5(path) == MD5[path.name]:
            return COUNTS[path.name], ""
        other = f"{path} is not the official file, whose MD5 is {MD5[path.name]}; get it again from {URL}."
        return len(_python(path)[0]), other
    except (BadData, OSError) as error:
        return 0, str(error)


def _md5(path: Path) -> str:
    running = hashlib.md5(usedforsecurity=False)
    with open(path, "rb") as file:
        while piece := file.read(1 << 20):
            running.update(piece)
    return running.hexdigest()


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
        try:
            names = path.read_text("utf-8").split()
        except (OSError, UnicodeDecodeError) as error:
            raise _damaged(path, f"cannot be read ({error})") from error
    else:
        found = read_pickle(path).get("fine_label_names")
        if not isinstance(found, list) or not all(isinstance(name, str | bytes) for name in found):
            raise _damaged(path, "lacks 'fine_label_names'")
        names = [_text(name) for name in found]
    if complete and len(names) != CLASSES:
        raise _damaged(path, f"names {len(names)} classes instead of {CLASSES}")
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
    """Pixels (n, 3, 32, 32) and fine labels."""
    fields = read_pickle(path)
    data, labels = fields.get("data"), fields.get("fine_labels")
    if not isinstance(data, _Array) or data.values.shape[1:] != (3072,) or not isinstance(labels, list):
        raise _damaged(path, "lacks 'data' of 3,072 bytes per image or 'fine_labels'")
    if not all(type(label) is int for label in labels):
        raise _damaged(path, "has labels that are not whole numbers")
    pixels = torch.from_numpy(data.values)
    return pixels.reshape(len(pixels), 3, 32, 32), torch.tensor(labels, dtype=torch.long)


def read_pickle(path: Path) -> dict[str, Any]:
    """The dict in a file of the Python version; nothing that the file names is imported or called.

    CIFAR-100's official Python download is a pickle, the only one that triphase reads.
    """
    try:
        with open(path, "rb") as file:
            return {_text(key): value for key, value in _Unpickler(file, encoding="bytes").load().items()}
    except Exception as error:  # a damaged pickle makes the parser raise almost anything
        raise BadData(f"{path} cannot be read as plain data ({error}); nothing in it was run.") from error


class _Unpickler(pickle._Unpickler):  # the one in C allocates whatever a damaged index asks for
    """Builds dicts, lists, numbers and strings; for what an array of bytes asks for there are stand-ins."""

    def find_class(self, module: str, name: str) -> Any:
        if (wanted := f"{module}.{name}") not in STAND_INS:
            raise pickle.UnpicklingError(f"it asks for {wanted}")
        return STAND_INS[wanted]


class _Array:
    """In place of numpy's array, which would trust whatever the file says about its memory."""

    values: NDArray[np.uint8] = np.empty(0, np.uint8)

    def __init__(self, *arguments: object) -> None:
        """The content comes with the state."""

    def __setstate__(self, state: tuple[object, tuple[int, ...], object, bool, bytes]) -> None:
        _, shape, dtype, by_columns, content = state
        if not isinstance(dtype, _UInt8) or not isinstance(content, bytes):
            raise ValueError("it holds an array of something other than bytes")
        self.values = np.frombuffer(bytearray(content), np.uint8).reshape(shape, order="F" if by_columns else "C")


class _UInt8:
    """In place of numpy's dtype, of which only uint8 is allowed."""

    def __init__(self, name: str | bytes, *arguments: object) -> None:
        if _text(name) not in ("u1", "|u1"):
            raise ValueError(f"it holds an array of {_text(name)}, and arrays of bytes are all that is needed")

    def __setstate__(self, state: object) -> None:
        """Byte order and size, which a byte does not need."""


STAND_INS: dict[str, Any] = {
    "numpy.core.multiarray._reconstruct": _Array,
    "numpy._core.multiarray._reconstruct": _Array,
    "numpy.ndarray": None,
    "numpy.dtype": _UInt8,
    "_codecs.encode": str.encode,
}


def _text(value: object) -> str:
    """A string of the file, which Python 2 did not tell from bytes."""
    if not isinstance(value, str | bytes):
        raise ValueError(f"a {type(value).__name__} where a string should be")
    return value.decode("latin-1") if isinstance(value, bytes) else value
