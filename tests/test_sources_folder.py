"""A person's photos: one folder for each class."""

import os
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import pytest
import torch
from PIL import Image

from dataset_folders import found, look, photo
from triphase.data.images import Images
from triphase.data.sources import (
    folder,
)
from triphase.errors import BadData


def everything(images: Images) -> torch.Tensor:
    return images.read(torch.arange(len(images)))


def picture(path: Path, grey: int = 0, side: int = 6) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("L", (side, side), grey).save(path)
    return path


def test_a_folder_of_photos_is_read_class_by_class(tmp_path: Path) -> None:
    picture(tmp_path / "dog" / "1.PNG", 10)
    picture(tmp_path / "dog" / "summer" / "2.jpg", 20)
    picture(tmp_path / "cat" / "3.bmp", 30)
    picture(tmp_path / "cat" / ".hidden.png")
    picture(tmp_path / ".trash" / "4.png")
    (tmp_path / "cat" / "notes.txt").write_text("no image")
    (tmp_path / "readme.txt").write_text("no image")
    (tmp_path / "bird").mkdir()
    found = folder(tmp_path, 4)
    assert found.names == ["cat", "dog"] and found.empty == ["bird"] and found.skipped == []
    assert found.images.labels.tolist() == [0, 1, 1]
    assert everything(found.images)[:, 0, 0, 0].tolist() == [30, 10, 20]


def test_ids_follow_the_content_and_not_the_name(tmp_path: Path) -> None:
    picture(tmp_path / "a" / "cat" / "1.png", 10)
    picture(tmp_path / "a" / "cat" / "2.png", 20)
    picture(tmp_path / "b" / "tom" / "9.png", 20)
    first, second = folder(tmp_path / "a", 4).images.ids, folder(tmp_path / "b", 8).images.ids
    assert first[1] == second[0] and first[0] != first[1]


def test_a_broken_photo_is_refused_or_counted(tmp_path: Path) -> None:
    picture(tmp_path / "cat" / "good.png")
    truncated = picture(tmp_path / "cat" / "holiday.jpg", side=600)
    truncated.write_bytes(truncated.read_bytes()[:-200])
    iphone = tmp_path / "dog" / "iphone.HEIC"
    iphone.parent.mkdir()
    iphone.write_bytes(b"\x00\x00\x00\x18ftypheic")
    with pytest.raises(BadData, match=r"holiday\.jpg cannot be read"):
        folder(tmp_path, 8)
    found = folder(tmp_path, 8, skip_bad=True)
    assert found.skipped == [truncated, iphone]
    assert found.names == ["cat"] and found.empty == ["dog"] and len(found.images) == 1


@pytest.mark.parametrize(
    ("prepare", "words"),
    [
        (lambda root: None, r"no folder .*photos; check the spelling"),
        (lambda root: root.write_text(""), "is a file; give the folder"),
        (lambda root: root.mkdir(), r"no class folders; put the images of each class .*photos/cat/1\.jpg"),
        (lambda root: (root / "cat").mkdir(parents=True), "No folder in .* holds an image"),
        (lambda root: picture(root / "1.jpg"), r"photos/1\.jpg \(1 in all\) is not in a class folder; put"),
        (lambda root: (picture(root / "1.jpg"), picture(root / "cat" / "2.jpg")), "not in a class folder"),
    ],
)
def test_a_folder_of_another_shape_is_refused_with_a_remedy(
    tmp_path: Path, prepare: Callable[[Path], object], words: str
) -> None:
    prepare(tmp_path / "photos")
    with pytest.raises(BadData, match=words):
        folder(tmp_path / "photos", 8)


def test_links_are_followed_but_not_in_circles(tmp_path: Path) -> None:
    root, elsewhere = tmp_path / "photos", tmp_path / "elsewhere"
    picture(root / "cat" / "1.png", 10)
    picture(root / "dog" / "2.png", 20)
    picture(elsewhere / "3.png", 30)
    for name, target in (("loop", root / "cat"), ("up", root), ("further", tmp_path), ("album", elsewhere)):
        (root / "cat" / name).symlink_to(target)
    (root / "linked").symlink_to(elsewhere)
    found = folder(root, 4)
    assert found.names == ["cat", "dog", "linked"]
    assert everything(found.images)[:, 0, 0, 0].tolist() == [10, 30, 20, 30]


def test_dangling_links_are_broken_photos_and_pipes_are_none(tmp_path: Path) -> None:
    picture(tmp_path / "cat" / "1.png")
    os.mkfifo(tmp_path / "cat" / "pipe.jpg")
    assert len(folder(tmp_path, 4).images) == 1
    (tmp_path / "cat" / "gone.jpg").symlink_to(tmp_path / "nowhere.jpg")
    (tmp_path / "cat" / "self.jpg").symlink_to(tmp_path / "cat" / "self.jpg")
    with pytest.raises(BadData, match=r"gone\.jpg"):
        folder(tmp_path, 4)
    assert len(folder(tmp_path, 4, skip_bad=True).skipped) == 2


def test_many_photos_are_checked_a_few_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(import_module("triphase.data.sources.folder"), "CHUNK", 3)
    for i in range(8):
        picture(tmp_path / "cat" / f"{i}.png", i)
    found = folder(tmp_path, 4)
    assert everything(found.images)[:, 0, 0, 0].tolist() == list(range(8))
    assert len(set(found.images.ids.tolist())) == 8


def test_photos_are_counted_as_they_would_be_read(tmp_path: Path) -> None:
    for name in ("cat/1.jpg", "cat/deep/2.png", "dog/1.jpg", "dog/2.jpg", "train/1.jpg", "train/2.jpg"):
        photo(tmp_path / name)
    (tmp_path / "cat" / "notes.txt").write_text("no photo")
    (tmp_path / "none").mkdir()
    dataset = look(tmp_path, "folder")
    assert dataset.state == "complete" and found(dataset) == {"classes": 3, "photos in them": 6}
    loaded = folder(tmp_path, 4)
    assert (len(loaded.names), len(loaded.images)) == (3, 6)
    assert look(tmp_path, "imagenet").state == "absent"  # a train is also a vehicle
    photo(tmp_path / "bird" / "1.jpg")
    photo(tmp_path / "loose.png")
    single, loose = look(tmp_path, "folder").problems
    assert single.endswith("need another one for testing: bird.")
    assert loose.startswith("1 photos are in no class folder: loose.png; put the images of each class")
