"""Datasets that Hugging Face's library has written to disk."""

import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch

from lessons import COLOURS, done, paint
from triphase.data.decoding import decode
from triphase.data.sources.data_folder import check_datasets
from triphase.data.sources.files import file_id
from triphase.data.sources.hugging_face import hugging_face
from triphase.errors import BadData, InvalidValue

pytestmark = pytest.mark.skipif(find_spec("datasets") is None, reason="datasets is not installed")


@pytest.fixture
def photos(tmp_path: Path) -> list[Path]:
    for colour in list(COLOURS)[:3]:
        paint(tmp_path / "photos" / colour, colour, range(6))
    return sorted((tmp_path / "photos").glob("*/*.png"))


def _dataset(files: list[Path], labels: Any = None, **columns: Any) -> Any:
    datasets = import_module("datasets")
    names = sorted({file.parent.name for file in files})
    features = {"image": datasets.Image()}
    if labels is None:
        labels, features["label"] = [file.parent.name for file in files], datasets.ClassLabel(names=names)
    made = {"image": [str(file) for file in files], "label": labels, **columns}
    dataset = datasets.Dataset.from_dict(made)
    for name, feature in features.items():
        dataset = dataset.cast_column(name, feature)
    return dataset


def test_images_and_classes_are_those_of_the_dataset(photos: list[Path], tmp_path: Path) -> None:
    splits = {"train": _dataset(photos), "test": _dataset(photos[::3])}
    import_module("datasets").DatasetDict(splits).save_to_disk(str(tmp_path / "set"))
    found = hugging_face(tmp_path / "set", 8)
    assert found.names == ["blue", "green", "red"] and found.test is not None and len(found.test) == 6
    assert [found.names[label] for label in found.train.labels] == [file.parent.name for file in photos]
    assert torch.equal(found.train.read(torch.tensor([7, 2])), torch.stack([decode(photos[i], 8) for i in (7, 2)]))
    assert found.train.ids.tolist() == [file_id(file) for file in photos]
    assert check_datasets(tmp_path / "set")[-1].state == "complete"


def test_a_benchmark_over_one_split_holds_out_its_own_test_images(photos: list[Path], tmp_path: Path) -> None:
    _dataset(photos, [file.parent.name for file in photos]).save_to_disk(str(tmp_path / "set"))
    options = ("--backbone", "small_cnn", "--image-size", 8, "--epochs", 3, "--memory", 6)
    done("bench", "run", "hf:2/2-1", "--data", tmp_path / "set", *options, "--out", tmp_path / "run")
    assert (tmp_path / "run" / "report.json").is_file()


def test_splits_that_number_their_classes_differently_have_the_same_classes(
    photos: list[Path], tmp_path: Path
) -> None:
    datasets = import_module("datasets")
    turned = datasets.ClassLabel(names=["red", "green", "blue"])
    tested = _dataset(photos, [file.parent.name for file in photos]).cast_column("label", turned)
    datasets.DatasetDict({"train": _dataset(photos), "test": tested}).save_to_disk(str(tmp_path / "set"))
    found = hugging_face(tmp_path / "set", 8)
    assert found.test is not None and torch.equal(found.test.labels, found.train.labels)


@pytest.mark.parametrize("names", [None, ["blue", "green", "red"]])
def test_an_image_without_a_class_is_refused(names: list[str] | None, photos: list[Path], tmp_path: Path) -> None:
    labels = [None, *(file.parent.name for file in photos[1:])]
    made = _dataset(photos, labels)
    if names is not None:
        made = made.cast_column("label", import_module("datasets").ClassLabel(names=names))
    made.save_to_disk(str(tmp_path / "set"))
    with pytest.raises(BadData, match="has images without a class"):
        hugging_face(tmp_path / "set", 8)


def test_broken_images_are_refused_or_left_out(photos: list[Path], tmp_path: Path) -> None:
    datasets = import_module("datasets")
    cells = [{"bytes": photos[0].read_bytes(), "path": None}, {"bytes": b"no image", "path": None}]
    raw = datasets.Dataset.from_dict({"image": cells, "label": ["a", "b"]})
    raw.cast_column("image", datasets.Image()).save_to_disk(str(tmp_path / "set"))
    with pytest.raises(BadData, match="row 1 cannot be read as an image"):
        hugging_face(tmp_path / "set", 8)
    found = hugging_face(tmp_path / "set", 8, skip_bad=True)
    assert len(found.train) == 1 and found.skipped == [f"{tmp_path / 'set'}, train, row 1"]


def test_what_is_no_such_dataset_is_refused(
    photos: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(BadData, match="cannot be read as a dataset of Hugging Face"):
        hugging_face(tmp_path, 8)
    _dataset(photos).rename_column("label", "colour_of_it").remove_columns("image").save_to_disk(
        str(tmp_path / "a")
    )
    with pytest.raises(BadData, match="needs one column of images"):
        hugging_face(tmp_path / "a", 8)
    _dataset(photos, [0] * len(photos)).rename_column("label", "colour").save_to_disk(str(tmp_path / "b"))
    with pytest.raises(BadData, match="has no column with one class an image that is called label"):
        hugging_face(tmp_path / "b", 8)
    _dataset(photos, [[0]] * len(photos)).save_to_disk(str(tmp_path / "c"))
    with pytest.raises(BadData, match="has no column with one class an image that is called label"):
        hugging_face(tmp_path / "c", 8)
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(InvalidValue, match=r"pip install 'triphase\[hf\]'"):
        hugging_face(tmp_path / "a", 8)
