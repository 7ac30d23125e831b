"""CIFAR-100: miniatures of every layout, hostile pickles, and the real one where it is at hand."""

import os
import pickle
import shutil
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from dataset_folders import found, look, sized
from triphase.data.images import Images
from triphase.data.sources import (
    cifar100,
)
from triphase.data.sources.cifar100 import read_pickle
from triphase.errors import BadData

SHARED = Path(os.environ.get("TRIPHASE_SHARED", Path(__file__).parents[2] / "shared")) / "data"
needs_cifar100 = pytest.mark.skipif(
    not (SHARED / "cifar100.npz").is_file(), reason=f"the real CIFAR-100 is not in {SHARED}"
)
RECORD = 3074


def everything(images: Images) -> torch.Tensor:
    return images.read(torch.arange(len(images)))


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
        b"\x80\x02cnumpy\nload\nU\x01x\x85R.",
        b"\x80\x02cnumpy.core.multiarray\n_reconstruct\n)R(K\x01K\x01cnumpy\ndtype\nU\x02u1\x85R\x89J\xff\xff\xff\x7ftb.",
    ],
)
def test_anything_but_plain_data_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x").write_bytes(content)
    with pytest.raises(BadData, match="plain data"):
        read_pickle(tmp_path / "x")


def test_a_damaged_index_of_a_pickle_allocates_nothing(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"\x80\x02}r\xff\xff\xff\x7f.")
    assert read_pickle(tmp_path / "x") == {}


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
        found = read_pickle(path)
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
@pytest.mark.slow
def test_the_real_cifar100_is_complete(real_cifar100: Path) -> None:
    train, test, names = cifar100(real_cifar100)
    assert (len(train), len(test), len(set(names))) == (50_000, 10_000, 100)
    assert names[:2] == ["apple", "aquarium_fish"] and names[-1] == "worm"
    assert train.labels.bincount().tolist() == [500] * 100
    assert test.labels.bincount().tolist() == [100] * 100
    batch = train.read(torch.randperm(50_000, generator=torch.Generator().manual_seed(0))[:1000]).float()
    # The dataset's well-known mean colour, here from a sample.
    assert (batch.mean((0, 2, 3)) / 255).sub(torch.tensor([0.507, 0.487, 0.441])).abs().max() < 0.02


# Whether it is complete


def write_cifar(place: Path) -> None:
    sized(place / "train.bin", 50_000 * RECORD)
    sized(place / "test.bin", 10_000 * RECORD)
    (place / "fine_label_names.txt").write_text("\n".join(f"class{i}" for i in range(100)))


@pytest.mark.parametrize("inside", [False, True])
def test_cifar100_is_counted_by_its_records(tmp_path: Path, inside: bool) -> None:
    place = tmp_path if inside else tmp_path / "cifar-100-binary"
    write_cifar(place)
    whole = look(tmp_path, "cifar100")
    assert whole.state == "complete" and whole.problems == ()
    assert found(whole) == {"training images": 50_000, "test images": 10_000, "class names": 100}
    os.truncate(place / "test.bin", 9_000 * RECORD + 5)
    (place / "fine_label_names.txt").unlink()
    part = look(tmp_path, "cifar100")
    assert part.state == "incomplete" and found(part)["test images"] == 9_000
    assert "test.bin ends in the middle of image 9,001" in part.problems[0]
    assert part.problems[1].endswith("fine_label_names.txt.") and part.problems[1].startswith("Missing: ")


def test_unreadable_names_of_cifar100_are_a_problem_and_no_crash(tmp_path: Path) -> None:
    write_cifar(tmp_path)
    (tmp_path / "fine_label_names.txt").write_bytes(b"\xff\xfe\xfd")
    assert "fine_label_names.txt cannot be read" in look(tmp_path, "cifar100").problems[0]
    with pytest.raises(BadData, match=r"fine_label_names\.txt cannot be read"):
        cifar100(tmp_path)


def test_the_python_version_of_cifar100_is_known_by_its_checksum(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "cifar-100-python"
    place.mkdir()
    for name, n in (("train", 3), ("test", 2)):
        fields = {"data": np.zeros((n, 3072), np.uint8), "fine_labels": [0] * n}
        (place / name).write_bytes(pickle.dumps(fields, protocol=2))
    (place / "meta").write_bytes(pickle.dumps({"fine_label_names": [f"c{i}" for i in range(100)]}, protocol=2))
    other = look(tmp_path, "cifar100")
    assert found(other) == {"training images": 3, "test images": 2, "class names": 100}
    assert "train is not the official file, whose MD5 is 16019d7e3df5f24257cddd939b257f8d" in other.problems[0]
    module = import_module("triphase.data.sources.cifar100")
    for name in ("train", "test"):
        monkeypatch.setitem(module.MD5, name, module._md5(place / name))
    assert look(tmp_path, "cifar100").state == "complete"
