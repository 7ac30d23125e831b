"""A dataset of Hugging Face on disk, as `Dataset.save_to_disk` or `DatasetDict.save_to_disk` has written it."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from triphase.data.decoding import decode_bytes, in_threads
from triphase.data.images import Images, check_size
from triphase.data.sources.files import content_id
from triphase.data.sources.integrity import Count, DatasetInfo, Integrity
from triphase.errors import BadData, InvalidValue, few

INFO = DatasetInfo(
    "hf",
    "A dataset of Hugging Face",
    "the hub, https://huggingface.co/datasets: load_dataset(NAME).save_to_disk(FOLDER)",
    "the folder that save_to_disk has written, with a column of images and one of classes",
)
TEST_SPLITS = ("test", "validation", "valid", "val")  # the first that exists is used
LABEL_COLUMNS = ("label", "labels", "fine_label", "class")  # the first that exists is used
CHUNK = 256  # rows checked together


class HuggingFace(NamedTuple):
    """The images of a dataset and what was left out of it."""

    train: Images
    test: Images | None  # None: it has one split alone
    names: list[str]
    skipped: list[str]  # images that cannot be read (only with skip_bad)


def hugging_face(folder: Path, size: int, *, skip_bad: bool = False) -> HuggingFace:
    """The images of a dataset on disk, decoded on demand as size x size RGB.

    Every image is decoded once now, so that a broken one is found before learning starts. Its id is a hash of its
    content.
    """
    check_size(size)
    content = _load(folder)
    splits = dict(content) if isinstance(content, dict) else {"train": content}
    tested = next((name for name in TEST_SPLITS if name in splits), None)
    if "train" not in splits:
        raise BadData(f"{folder} has the splits {few(list(splits))}; one of them must be called train.")
    names = _names(splits["train"], folder)
    skipped: list[str] = []
    train, test = (
        None if name is None else _images(splits[name], f"{folder}, {name}", names, size, skip_bad, skipped)
        for name in ("train", tested)
    )
    assert train is not None
    return HuggingFace(train, test, names, skipped)


def check_integrity(data: Path) -> Integrity:
    """Whether the data folder itself is such a dataset; it is not opened."""
    there = any((data / name).is_file() for name in ("dataset_dict.json", "dataset_info.json"))
    return Integrity(INFO, (Count("datasets", int(there), None),))


def _load(folder: Path) -> Any:
    try:
        datasets = import_module("datasets")
    except ImportError as error:
        raise InvalidValue(f"datasets cannot be imported ({error}): pip install 'triphase[hf]'.") from error
    try:
        return datasets.load_from_disk(str(folder))
    except Exception as error:  # pyarrow's errors have no common class
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise BadData(
            f"{folder} cannot be read as a dataset of Hugging Face ({reason}); give the folder that "
            "save_to_disk wrote."
        ) from error


def _column(dataset: Any, kind: str, names: Sequence[str] = ()) -> str | None:
    """The column with features of a kind: the first of the names that has, or the only one."""
    columns = [name for name, feature in dataset.features.items() if type(feature).__name__ == kind]
    return next((name for name in names if name in columns), columns[0] if len(columns) == 1 else None)


def _label_column(dataset: Any, place: object) -> str:
    plain = [name for name, feature in dataset.features.items() if type(feature).__name__ == "Value"]
    found = _column(dataset, "ClassLabel", LABEL_COLUMNS) or next((c for c in LABEL_COLUMNS if c in plain), None)
    if found is None:
        raise BadData(
            f"{place} has no column with one class an image that is called {' or '.join(LABEL_COLUMNS)}, but "
            f"{few(list(dataset.features))}; rename it (rename_column)."
        )
    return found


def _names(dataset: Any, place: object) -> list[str]:
    """The names of the classes: those of the column, or what is written in it."""
    column = _label_column(dataset, place)
    names = getattr(dataset.features[column], "names", None)
    return list(names) if names else [str(value) for value in sorted({*dataset[column]} - {None})]


def _class_names(dataset: Any, place: object) -> list[str | None]:
    """The name of the class of each row, None where there is none; splits may number the same names differently."""
    column = _label_column(dataset, place)
    names, written = getattr(dataset.features[column], "names", None), list(dataset[column])
    if names:
        return [None if value is None or value < 0 else names[value] for value in written]
    return [None if value is None else str(value) for value in written]


def _images(dataset: Any, place: str, names: list[str], size: int, skip_bad: bool, skipped: list[str]) -> Images:
    column, written = _column(dataset, "Image", ("image", "img")), _class_names(dataset, place)
    if column is None:
        raise BadData(f"{place} needs one column of images, and has {few(list(dataset.features))}.")
    encoded = dataset.cast_column(column, import_module("datasets").Image(decode=False))

    def decoded(rows: Sequence[int]) -> list[tuple[Tensor, int] | BadData]:
        cells = encoded[list(rows)][column]
        return in_threads(lambda cell: _decode(*cell, place, size), list(zip(rows, cells, strict=True)))

    ids: dict[int, int] = {}  # of rows that can be read
    for start in range(0, len(dataset), CHUNK):
        rows = range(start, min(start + CHUNK, len(dataset)))
        for row, found in zip(rows, decoded(rows), strict=True):
            if not isinstance(found, BadData):
                ids[row] = found[1]
            elif skip_bad:
                skipped.append(f"{place}, row {row}")
            else:
                raise found
    numbers: dict[str | None, int] = {name: number for number, name in enumerate(names)}
    labels = [numbers.get(written[row], -1) for row in ids]
    if -1 in labels:
        raise BadData(
            f"{place} has images without a class, or of one that the training images lack; leave them out."
        )

    def read(rows: Tensor) -> Tensor:
        pixels = torch.empty(len(rows), 3, size, size, dtype=torch.uint8)
        for i, found in enumerate(decoded(rows.tolist())):
            if isinstance(found, BadData):
                raise found
            pixels[i] = found[0]
        return pixels

    return Images(read, torch.tensor(labels), torch.tensor(list(ids.values())), torch.tensor(list(ids)))


def _decode(row: int, cell: dict[str, Any] | None, place: str, size: int) -> tuple[Tensor, int] | BadData:
    """The pixels of an image and its id, or what is wrong with it."""
    try:
        content = (cell or {}).get("bytes") or Path((cell or {})["path"]).read_bytes()
        return decode_bytes(content, f"{place}, row {row}", (size,))[0], content_id(content)
    except BadData as error:
        return error
    except (KeyError, TypeError, OSError) as error:
        return BadData(f"{place}, row {row} has no image ({error}); leave it out.")
