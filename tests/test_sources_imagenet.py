"""ImageNet: a miniature of its folders."""

import shutil
import weakref
from pathlib import Path
from threading import Event

import pytest
import torch
from PIL import Image

from dataset_folders import empty, found, look, touch_imagenet
from triphase.data.batches import Batches
from triphase.data.images import Images
from triphase.data.prefetch import DEPTH
from triphase.data.recipe import Recipe
from triphase.data.sources import (
    imagenet,
)
from triphase.data.streams import class_incremental
from triphase.errors import BadData
from triphase.models import small_cnn


def picture(path: Path, grey: int = 0, side: int = 6) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("L", (side, side), grey).save(path)
    return path


def write_imagenet(root: Path) -> Path:
    for grey, wnid in enumerate(("n02", "n01")):
        picture(root / "train" / wnid / f"{wnid}_2.JPEG", 100 * grey)
        picture(root / "train" / wnid / f"{wnid}_1.JPEG", 100 * grey)
        picture(root / "val" / wnid / "ILSVRC2012_val_1.JPEG", 100 * grey)
    return root


def test_imagenet_is_listed_and_decoded_on_demand(tmp_path: Path) -> None:
    train, test, names = imagenet(write_imagenet(tmp_path), size=16)
    (tmp_path / "train" / "n02" / "n02_2.JPEG").write_bytes(b"broken, and never looked at")
    assert names == ["n01", "n02"]
    assert train.labels.tolist() == [0, 0, 1, 1] and test.labels.tolist() == [0, 1]
    assert train.read(torch.tensor([0, 2]))[:, 0, 0, 0].tolist() == [100, 0]
    assert len({*train.ids.tolist(), *test.ids.tolist()}) == 6
    with pytest.raises(BadData, match=r"n02_2\.JPEG"):
        train.read(torch.tensor([3]))


def test_imagenet_is_decoded_a_few_minibatches_ahead_and_then_forgotten(tmp_path: Path) -> None:
    n, n_mbe = 24, 2
    for split, wnid, count in (("train", "n01", n), ("train", "n02", 1), ("val", "n01", 1), ("val", "n02", 1)):
        for i in range(count):
            picture(tmp_path / split / wnid / f"{wnid}_{i}.JPEG", 10 * i, side=40)
    train, test, names = imagenet(tmp_path, size=32)
    asked: list[int] = []
    alive: list[weakref.ref[torch.Tensor]] = []
    early = Event()

    def read(rows: torch.Tensor) -> torch.Tensor:
        pixels = train.read(rows)
        asked.extend(rows.tolist())
        alive.append(weakref.ref(pixels))
        if len(asked) == (1 + DEPTH) * n_mbe:
            early.set()
        return pixels

    watched = Images(read, train.labels, train.ids)
    lessons = class_incremental(watched, test, names, first=1, then=1, order=[0, 1])
    assert not asked  # a stream is made of names
    recipe = Recipe(epochs=1, n_mbe=n_mbe, augment="rrc+flip")
    batches = Batches(small_cnn(2, channels=3, image_size=16), lessons.experiences[0], None, recipe, seed=0)
    served = batches.mixed((0, step) for step in range(batches.n_mixed))
    for k, minibatch in enumerate(served, start=1):
        assert early.wait(60)  # more is decoded while the first minibatch is still in use
        assert minibatch.z.shape == (n_mbe, 3, 16, 16)
        assert len(asked) <= (k + DEPTH) * n_mbe
        assert sum(pixels() is not None for pixels in alive) <= DEPTH + 1
    assert sorted(asked) == list(range(n))


def test_ids_of_imagenet_do_not_depend_on_where_it_is(tmp_path: Path) -> None:
    first, second = imagenet(write_imagenet(tmp_path / "a")), imagenet(write_imagenet(tmp_path / "b" / "c"))
    assert torch.equal(first[0].ids, second[0].ids)


def test_another_layout_of_imagenet_is_refused_with_the_right_one(tmp_path: Path) -> None:
    with pytest.raises(BadData, match=r"no folder .*train\. .*train/<wnid>/\*\.JPEG and val/<wnid>"):
        imagenet(tmp_path)
    write_imagenet(tmp_path)
    shutil.rmtree(tmp_path / "val" / "n02")
    with pytest.raises(BadData, match="n02 is in one only"):
        imagenet(tmp_path)
    shutil.rmtree(tmp_path / "val")
    picture(tmp_path / "val" / "ILSVRC2012_val_1.JPEG")
    with pytest.raises(BadData, match="no class folders with images.*val/<wnid>"):
        imagenet(tmp_path)


# Whether it is complete


def test_imagenet_names_classes_that_are_short_or_missing(tmp_path: Path) -> None:
    touch_imagenet(tmp_path)
    dataset = look(tmp_path, "imagenet")
    assert list(found(dataset).values()) == [2, 1464, 2, 100]
    assert dataset.problems == () and dataset.state == "incomplete"
    (tmp_path / "train" / "n01440764" / "n01440764_7.JPEG").unlink()
    (tmp_path / "val" / "n01443537" / "n01443537_0.JPEG").unlink()
    empty(tmp_path / "val" / "n09999999" / "ILSVRC2012_val_1.JPEG")
    train, test, names = imagenet_lengths(tmp_path)
    short_train, short_val, missing = look(tmp_path, "imagenet").problems
    assert short_train == "Classes of train with too few images: n01440764 (731 of at least 732)."
    assert short_val == "Classes of val with too few images: n01443537 (49 of 50), n09999999 (1 of 50)."
    assert missing == "Missing in train: n09999999."
    assert (train, test, names) == (1463, 99, 2)


def imagenet_lengths(root: Path) -> tuple[int, int, int]:
    """What the loader counts, once the class that it refuses is gone."""
    kept = root / "val" / "n09999999"
    kept.rename(root / "aside")
    train, test, names = imagenet(root)
    (root / "aside").rename(kept)
    return len(train), len(test), len(names)


def test_imagenet_as_it_is_downloaded_is_recognised(tmp_path: Path) -> None:
    for i in range(3):
        empty(tmp_path / "val" / f"ILSVRC2012_val_0000000{i}.JPEG")
    empty(tmp_path / "train" / "n01440764.tar")
    empty(tmp_path / "ILSVRC2012_img_train.tar")
    dataset = look(tmp_path, "imagenet")
    whole, classes, loose = dataset.problems
    assert dataset.state == "absent"
    assert whole.startswith("Still packed: ILSVRC2012_img_train.tar; unpack it in ")
    assert classes.startswith("Still packed in train: n01440764.tar;")
    assert loose.startswith("3 images lie in val itself: ILSVRC2012_val_00000000.JPEG")
