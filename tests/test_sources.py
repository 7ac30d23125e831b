"""Datasets and folders: miniatures made here, and the real ones where they are at hand."""

import os
import pickle
import shutil
import struct
import subprocess
import sys
import tarfile
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image

from triphase.data.batches import Batches
from triphase.data.images import Images
from triphase.data.prefetch import DEPTH
from triphase.data.recipe import Recipe
from triphase.data.sources import (
    cifar100,
    core50_41_order,
    core50_classes,
    core50_nicv2,
    digits,
    folder,
    imagenet,
    nicv2_lists,
    nicv2_test,
)
from triphase.data.sources.core50 import frames_of
from triphase.data.sources.listing import Listed
from triphase.data.sources.plain_pickle import read_plain
from triphase.data.streams import class_incremental, stream
from triphase.errors import BadData
from triphase.models import small_cnn

SHARED = Path(os.environ.get("TRIPHASE_SHARED", Path(__file__).parents[2] / "shared")) / "data"
LISTS = SHARED / "core50_nicv2_filelists.tar.xz"
needs_lists = pytest.mark.skipif(not LISTS.is_file(), reason=f"the CORe50 file lists are not in {SHARED}")
needs_cifar100 = pytest.mark.skipif(
    not (SHARED / "cifar100.npz").is_file(), reason=f"the real CIFAR-100 is not in {SHARED}"
)


def everything(images: Images) -> torch.Tensor:
    return images.read(torch.arange(len(images)))


def picture(path: Path, grey: int = 0, side: int = 6) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("L", (side, side), grey).save(path)
    return path


# digits


def test_digits_are_split_within_each_class() -> None:
    train, test, names = digits()
    assert names == [str(digit) for digit in range(10)]
    assert sorted([*train.ids.tolist(), *test.ids.tolist()]) == list(range(1797))
    share = test.labels.bincount() / (train.labels.bincount() + test.labels.bincount())
    assert share.sub(0.25).abs().max() < 0.005
    pixels = everything(train)
    assert pixels.shape[1:] == (1, 8, 8) and int(pixels.min()) == 0 and int(pixels.max()) == 255


def test_digits_depend_on_the_seed_alone() -> None:
    assert torch.equal(digits(3)[0].ids, digits(3)[0].ids)
    assert not torch.equal(digits(3)[0].ids, digits(4)[0].ids)


# CIFAR-100


def cifar_content(n: int, seed: int) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    rng = np.random.default_rng(seed)
    return rng.integers(0, 256, (n, 3072), dtype=np.uint8), rng.integers(0, 3, n, dtype=np.uint8)


def write_binary(root: Path) -> Path:
    place = root / "cifar-100-binary"
    place.mkdir(parents=True)
    for name, n, seed in (("train.bin", 5, 0), ("test.bin", 4, 1)):
        data, fine = cifar_content(n, seed)
        np.concatenate([np.full((n, 1), 9, np.uint8), fine[:, None], data], 1).tofile(place / name)
    (place / "fine_label_names.txt").write_text("apple\nbaby\nbear\n")
    return place


def python3_pickle(fields: dict[str, Any]) -> bytes:
    return pickle.dumps(fields, protocol=2)


def python2_pickle(fields: dict[str, Any]) -> bytes:
    """What Python 2 wrote: byte strings, and arrays with their content in one."""

    def string(value: bytes) -> bytes:
        short = len(value) < 256
        return b"U" + bytes([len(value)]) + value if short else b"T" + struct.pack("<i", len(value)) + value

    def write(value: Any) -> bytes:
        if isinstance(value, str):
            return string(value.encode())
        if isinstance(value, int):
            return b"M" + struct.pack("<H", value)
        if isinstance(value, list):
            return b"]q\x01(" + b"".join(map(write, value)) + b"e"
        shape = b"".join(map(write, value.shape)) + b"\x86"
        dtype = (
            b"cnumpy\ndtype\nq\x08U\x02u1K\x00K\x01\x87Rq\x09(K\x03U\x01|NNN"
            + b"J\xff\xff\xff\xff" * 2
            + b"K\x00tb"
        )
        array = b"cnumpy.core.multiarray\n_reconstruct\nq\x05cnumpy\nndarray\nq\x06K\x00\x85U\x01b\x87Rq\x07"
        return array + b"(K\x01" + shape + dtype + b"\x89" + string(value.tobytes()) + b"tb"

    return b"\x80\x02}q\x00(" + b"".join(string(k.encode()) + write(v) for k, v in fields.items()) + b"u."


def write_python(root: Path, dump: Callable[[dict[str, Any]], bytes]) -> Path:
    place = root / "cifar-100-python"
    place.mkdir(parents=True)
    for name, n, seed in (("train", 5, 0), ("test", 4, 1)):
        data, fine = cifar_content(n, seed)
        fields = {"filenames": ["a.png"] * n, "batch_label": "training batch 1 of 1", "data": data}
        (place / name).write_bytes(dump({**fields, "fine_labels": fine.tolist(), "coarse_labels": [9] * n}))
    (place / "meta").write_bytes(dump({"fine_label_names": ["apple", "baby", "bear"]}))
    return place


WRITERS: list[Callable[[Path], Path]] = [
    write_binary,
    lambda root: write_python(root, python3_pickle),
    lambda root: write_python(root, python2_pickle),
]


@pytest.mark.parametrize("write", WRITERS, ids=["binary", "python3", "python2"])
@pytest.mark.parametrize("inside", [False, True])
def test_cifar100_is_read_from_every_layout(tmp_path: Path, write: Callable[[Path], Path], inside: bool) -> None:
    place = write(tmp_path)
    train, test, names = cifar100(place if inside else tmp_path, complete=False)
    assert names == ["apple", "baby", "bear"]
    for images, (data, fine), first in ((train, cifar_content(5, 0), 0), (test, cifar_content(4, 1), 50_000)):
        assert np.array_equal(everything(images).numpy(), data.reshape(-1, 3, 32, 32))
        assert images.labels.tolist() == fine.tolist()
        assert images.ids.tolist() == list(range(first, first + len(fine)))


@pytest.mark.parametrize("write", WRITERS, ids=["binary", "python3", "python2"])
def test_a_part_of_cifar100_is_not_taken_for_the_whole(tmp_path: Path, write: Callable[[Path], Path]) -> None:
    write(tmp_path)
    with pytest.raises(BadData, match=r"names 3 classes instead of 100.*cs\.toronto\.edu"):
        cifar100(tmp_path)


def test_a_missing_file_of_cifar100_is_named_with_its_source(tmp_path: Path) -> None:
    with pytest.raises(BadData, match=r"no CIFAR-100 in .*https://www\.cs\.toronto\.edu/~kriz/cifar\.html"):
        cifar100(tmp_path)
    (write_binary(tmp_path) / "test.bin").unlink()
    with pytest.raises(BadData, match=r"test\.bin is missing.*cs\.toronto\.edu"):
        cifar100(tmp_path, complete=False)
    write_python(tmp_path, python2_pickle)
    assert len(cifar100(tmp_path, complete=False)[0]) == 5  # the other layout is whole


def test_a_short_file_of_cifar100_is_named(tmp_path: Path) -> None:
    path = write_binary(tmp_path) / "train.bin"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(BadData, match=r"train\.bin has 15,369 bytes.*records of 3,074"):
        cifar100(tmp_path, complete=False)
    path.write_bytes(b"")
    assert len(cifar100(tmp_path, complete=False)[0]) == 0
    (path.parent / "fine_label_names.txt").write_text("\n".join(map(str, range(100))))
    with pytest.raises(BadData, match=r"train\.bin holds 0 images instead of 50,000"):
        cifar100(tmp_path)


def test_labels_of_cifar100_must_fit(tmp_path: Path) -> None:
    place = write_binary(tmp_path)
    (place / "fine_label_names.txt").write_text("apple\n")
    with pytest.raises(BadData, match="labels that do not fit"):
        cifar100(tmp_path, complete=False)


@pytest.mark.parametrize(
    ("name", "fields", "words"),
    [
        ("meta", {"fine_label_names": [1]}, "fine_label_names"),
        ("meta", {}, "fine_label_names"),
        ("train", {"fine_labels": [0]}, "'data'"),
        ("train", {"data": np.zeros((1, 7), np.uint8), "fine_labels": [0]}, "'data'"),
        ("train", {"data": np.zeros((1, 3072), np.uint8), "fine_labels": ["0"]}, "whole numbers"),
        ("train", {"data": np.zeros((2, 3072), np.uint8), "fine_labels": [0]}, "do not fit"),
        ("train", {"data": np.zeros((1, 3072), np.float32), "fine_labels": [0]}, "arrays of bytes"),
    ],
)
def test_a_pickle_with_other_fields_is_refused(
    tmp_path: Path, name: str, fields: dict[str, Any], words: str
) -> None:
    (write_python(tmp_path, python3_pickle) / name).write_bytes(python3_pickle(fields))
    with pytest.raises(BadData, match=words):
        cifar100(tmp_path, complete=False)


class Command:
    """Unpickled in the usual way, this runs a command."""

    def __init__(self, command: str) -> None:
        self.command = command

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (self.command,)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_malicious_pickle_is_refused_and_not_run(tmp_path: Path, protocol: int) -> None:
    place, mark = write_python(tmp_path, python3_pickle), tmp_path / "mark"
    fields = {"data": Command(f"touch {mark}"), "fine_labels": [0]}
    (place / "train").write_bytes(pickle.dumps(fields, protocol=protocol))
    assert b"system" in (place / "train").read_bytes()
    with pytest.raises(BadData, match="nothing in it was run"):
        cifar100(tmp_path, complete=False)
    assert not mark.exists()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x80\x02",
        b"\x80\x02K\x01.",  # no dict
        b"\x80\x02}K\x01K\x02s.",  # a key that is a number
        b"\x80\x02}U\x01aU\x01b.",  # no dict on top
        b"\x80\x02}]K\x01bs.",  # changes a list from inside
        b"\x80\x02}(U\x01au.",  # a key without a value
        b"\x80\x02u.",  # an empty stack
        b"\x80\x02K\x01K\x02R.",  # calls a number
        b"\x80\x02c__builtin__\neval\nU\x011\x85R.",
        b"\x80\x02cnumpy\ndtype\nU\x02O8K\x00K\x01\x87R.",  # an array of objects
        b"\x80\x02cnumpy.core.multiarray\n_reconstruct\n)R(K\x01K\x01\x85cnumpy\ndtype\nU\x02u1\x85R\x89J\xff\xff\xff\x7ftb.",
        b"\x80\x02h\x07.",  # a memo that is not there
    ],
)
def test_anything_but_plain_data_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x").write_bytes(content)
    with pytest.raises(BadData, match="plain data"):
        read_plain(tmp_path / "x")


@given(st.data())
@settings(max_examples=200)
def test_damaged_pickles_give_plain_data_or_a_refusal(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    dump = data.draw(st.sampled_from([python2_pickle, python3_pickle]))
    content = bytearray(dump({"data": np.zeros((2, 3), np.uint8), "fine_labels": [1, 2], "batch": "x"}))
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path_factory.getbasetemp() / f"damaged-{os.getpid()}"
    path.write_bytes(content)
    try:
        found = read_plain(path)
    except BadData:
        return
    assert all(isinstance(key, str) for key in found)


@pytest.fixture(scope="module")
def real_cifar100(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    root = tmp_path_factory.mktemp("cifar100")
    subprocess.run([sys.executable, SHARED / "unpack_cifar100.py", root], check=True)
    yield root
    shutil.rmtree(root)  # 180 MB


@needs_cifar100
def test_the_real_cifar100_is_complete(real_cifar100: Path) -> None:
    train, test, names = cifar100(real_cifar100)
    assert (len(train), len(test), len(set(names))) == (50_000, 10_000, 100)
    assert names[:2] == ["apple", "aquarium_fish"] and names[-1] == "worm"
    assert train.labels.bincount().tolist() == [500] * 100
    assert test.labels.bincount().tolist() == [100] * 100
    batch = train.read(torch.randperm(50_000, generator=torch.Generator().manual_seed(0))[:1000]).float()
    # The dataset's well-known mean colour, here from a sample.
    assert (batch.mean((0, 2, 3)) / 255).sub(torch.tensor([0.507, 0.487, 0.441])).abs().max() < 0.02


# A person's folder


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
    monkeypatch.setattr(import_module("triphase.data.sources.folder"), "AT_ONCE", 3)
    for i in range(8):
        picture(tmp_path / "cat" / f"{i}.png", i)
    found = folder(tmp_path, 4)
    assert everything(found.images)[:, 0, 0, 0].tolist() == list(range(8))
    assert len(set(found.images.ids.tolist())) == 8


# CORe50


def write_core50(root: Path) -> Path:
    """Two objects in all eleven sessions, two frames each; NICv2 lists with twelve experiences."""
    frames = [
        (f"s{s}/o{o}/C_{s:02}_{o:02}_{f:03}.png", o - 1) for s in range(1, 12) for o in (1, 7) for f in range(2)
    ]
    for grey, (name, _) in enumerate(frames):
        picture(root / "core50_128x128" / name, grey)
    lists = root / "sIII_v2_12" / "run0"
    lists.mkdir(parents=True)
    train = [frame for frame in frames if frame[0].split("/")[0] not in ("s3", "s7", "s10")]
    for batch in range(12):
        lines = "".join(f"{name} {label}\n" for name, label in train[batch::12])
        (lists / f"train_batch_{batch}_filelist.txt").write_text(lines)  # 10 sorts before 2 as text
    test = [frame for frame in frames if frame not in train]
    (lists / "test_filelist.txt").write_text("".join(f"{name} {label}\n" for name, label in test))
    return root


def test_core50_experiences_come_in_numerical_order(tmp_path: Path) -> None:
    root = write_core50(tmp_path)
    experiences, test, names = core50_nicv2(root, 0, size=5, n=12)
    assert len(experiences) == 12 and len(test) == 12
    assert len(names) == 50 and (names[0], names[6], names[49]) == (
        "plug_adapter1",
        "mobile_phone2",
        "remote_control5",
    )
    _, every, _ = core50_classes(root, 5, complete=False)
    greys = [everything(experience)[:, 0, 0, 0].tolist() for experience in experiences]
    assert [first for first, *_ in greys] == [0, 1, 2, 3, 4, 5, 6, 7, 12, 13, 14, 15]
    assert sorted(test.ids.tolist()) == sorted(every.ids.tolist())
    assert {label for experience in experiences for label in experience.labels.tolist()} == {0, 6}


def test_core50_lists_are_read_from_the_archive_too(tmp_path: Path) -> None:
    root = write_core50(tmp_path / "a")
    archive = tmp_path / "core50_nicv2_filelists.tar.xz"
    with tarfile.open(archive, "w:xz") as file:
        file.add(root / "sIII_v2_12", arcname="./sIII_v2_12")
    assert nicv2_lists(archive, 12, 0) == nicv2_lists(root, 12, 0)
    assert nicv2_test(archive, 12, 0) == nicv2_test(root, 12, 0)
    shutil.rmtree(root / "sIII_v2_12")
    direct = core50_nicv2(root, 0, 5, n=12, lists=archive)
    shutil.copy(archive, root)
    found = core50_nicv2(root / "core50_128x128" / "..", 0, 5, n=12)
    assert torch.equal(direct[0][3].ids, found[0][3].ids)
    archive.write_bytes(archive.read_bytes()[:300])
    with pytest.raises(BadData, match="cannot be read"):
        nicv2_lists(archive, 12, 0)


def test_core50_by_session_has_training_and_test_frames(tmp_path: Path) -> None:
    train, test, names = core50_classes(write_core50(tmp_path) / "core50_128x128", 5, complete=False)
    assert (len(train), len(test), len(names)) == (32, 12, 50)
    assert train.labels.bincount(minlength=50)[[0, 6]].tolist() == [16, 16]
    assert not set(train.ids.tolist()) & set(test.ids.tolist())
    with pytest.raises(BadData, match=r"32 frames instead of 119,894.*core50_128x128\.zip"):
        core50_classes(tmp_path)


def test_missing_core50_images_are_counted_and_named(tmp_path: Path) -> None:
    with pytest.raises(BadData, match=r"no CORe50 images in .*core50_128x128\.zip"):
        core50_nicv2(tmp_path, 0)
    root = write_core50(tmp_path)
    for name in ("s1/o7/C_01_07_001.png", "s3/o1/C_03_01_000.png"):
        (root / "core50_128x128" / name).unlink()
    with pytest.raises(BadData, match=r"2 of 44 CORe50 images are missing.* s1/o7/C_01_07_001\.png"):
        core50_nicv2(root, 0, n=12)


def test_missing_or_strange_core50_lists_are_refused(tmp_path: Path) -> None:
    root = write_core50(tmp_path)
    with pytest.raises(BadData, match=r"0 of 391 training lists for run 0.*batches_filelists_NICv2\.zip"):
        core50_nicv2(root, 0)
    with pytest.raises(BadData, match="no test_filelist"):
        nicv2_test(root, 12, 5)
    path = root / "sIII_v2_12" / "run0" / "train_batch_3_filelist.txt"
    path.write_text("../../secret.png 0\n")
    with pytest.raises(BadData, match="train_batch_3_filelist"):
        nicv2_lists(root, 12, 0)
    path.unlink()
    with pytest.raises(BadData, match="11 of 12"):
        nicv2_lists(root, 12, 0)


@given(st.integers(0, 2**31))
def test_core50_41_starts_with_one_object_of_each_category(seed: int) -> None:
    order = core50_41_order(seed)
    assert sorted(order) == list(range(50))
    assert sorted(label // 5 for label in order[:10]) == list(range(10))
    assert order == core50_41_order(seed)


def test_core50_41_orders_differ_by_seed() -> None:
    assert len({tuple(core50_41_order(seed)) for seed in range(4)}) == 4


@needs_lists
def test_the_real_nicv2_lists_have_the_published_counts() -> None:
    batches, test = nicv2_lists(LISTS, 391, 0), nicv2_test(LISTS)
    assert len(batches) == 391 and sum(map(len, batches)) == 119_894 and len(test) == 44_972
    assert len(batches[0]) == 2999 and {label for _, label in batches[0]} == set(range(0, 50, 5))
    assert all(293 <= len(batch) <= 300 and len({label for _, label in batch}) == 1 for batch in batches[1:])
    seen = {label for _, label in batches[0]}
    introductions = 0
    for batch in batches[1:]:
        introductions += not {label for _, label in batch} <= seen
        seen |= {label for _, label in batch}
    assert introductions == 40 and seen == set(range(50))
    frames = [name for batch in batches for name, _ in batch]
    assert len(set(frames)) == len(frames) and not set(frames) & {name for name, _ in test}


@needs_lists
def test_a_stream_of_the_real_nicv2_lists_has_the_published_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "core50_128x128" / "s1").mkdir(parents=True)
    (tmp_path / LISTS.name).symlink_to(LISTS)
    monkeypatch.setattr("triphase.data.sources.core50._check_present", lambda folder, wanted: None)
    lessons, test, names = core50_nicv2(tmp_path, 3)
    nicv2 = stream(lessons, test, names, n_classes=50, evaluation="all")
    sizes = [len(experience.images) for experience in nicv2.experiences]
    assert len(sizes) == 391 and sizes[0] == 2999 and all(293 <= size <= 300 for size in sizes[1:])
    assert sum(sizes) == 119_894 and len(nicv2.test) == 44_972
    assert [experience.index for experience in nicv2.experiences] == list(range(1, 392))
    assert nicv2.experiences[0].classes == tuple(range(10))
    assert list(nicv2.names[:10]) == names[::5] and sorted(nicv2.names) == sorted(names)
    assert all(len(experience.classes) == 1 for experience in nicv2.experiences[1:])


@needs_lists
def test_the_table_of_core50_frames_agrees_with_the_real_lists() -> None:
    frames = [name for batch in [*nicv2_lists(LISTS, 391, 0), nicv2_test(LISTS)] for name, _ in batch]
    found = Counter(name.rpartition("/")[0] for name in frames)
    assert found == {f"s{s}/o{obj}": frames_of(s, obj) for s in range(1, 12) for obj in range(1, 51)}


@needs_lists
@pytest.mark.parametrize("n", [79, 196])
def test_the_other_real_nicv2_lists_have_all_images(n: int) -> None:
    batches = nicv2_lists(LISTS, n, 9)
    assert len(batches) == n and sum(map(len, batches)) == 119_894


# ImageNet


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


def test_listed_files_behave_like_a_list_of_paths() -> None:
    files = Listed(Path("root"), ["a/1.png", "b/2.png", "b/3.png"])
    assert list(files[1:]) == [Path("root/b/2.png"), Path("root/b/3.png")]
    assert list(files) == [Path("root/a/1.png"), *files[1:]]
