"""Data on nodes: found by the fingerprint of their content, or shipped."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from triphase.bench.benchmarks import find
from triphase.bench.run.options import RunOptions
from triphase.bench.sweep.cluster.inputs import Input, data_input, weights_input
from triphase.bench.sweep.cluster.storage import Storage
from triphase.errors import CorruptState, Unreachable


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data folder with a dataset, another one, and weights."""
    for name in ("train/a/1.JPEG", "val/a/2.JPEG", "cifar-100-binary/train.bin", "resnet18_places365.pth.tar"):
        (tmp_path / "data" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "data" / name).write_text(name)
    return tmp_path / "data"


def imagenet(data: Path, scratch: Path) -> Input:
    found = data_input(find("imagenet-100"), RunOptions(), data, scratch)
    assert found is not None
    return found


def test_files_are_found_by_content_and_shipped_where_they_are_not(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage, scratch = Storage(str(tmp_path / "storage")), tmp_path / "scratch"
    wanted = imagenet(data, tmp_path / "driver")
    assert wanted.names == ("train", "val", "resnet18_places365.pth.tar")
    assert wanted.find(storage, scratch) == data
    shutil.copytree(data, tmp_path / "other")
    monkeypatch.setenv("TRIPHASE_DATA", str(tmp_path / "other"))
    (data / "train/a/1.JPEG").write_text("train/a/9.JPEG")  # as long as before
    assert wanted.find(storage, scratch) == tmp_path / "other"
    monkeypatch.delenv("TRIPHASE_DATA")
    assert wanted.find(storage, scratch) is None
    Input(str(tmp_path / "other"), wanted.names, wanted.fingerprint).ship(storage)
    unpacked = wanted.find(storage, scratch)
    assert unpacked is not None and scratch in unpacked.parents
    assert (unpacked / "train/a/1.JPEG").read_text() == "train/a/1.JPEG"
    assert not (unpacked / "cifar-100-binary").exists()
    (unpacked / "val/a/2.JPEG").unlink()
    assert wanted.find(storage, scratch) == unpacked and (unpacked / "val/a/2.JPEG").exists(), "unpacked anew"


def test_an_archive_with_other_content_is_refused(data: Path, tmp_path: Path) -> None:
    storage = Storage(str(tmp_path / "storage"))
    wanted = imagenet(data, tmp_path / "driver")
    (data / "val/a/2.JPEG").write_text("other")
    wanted.ship(storage)
    with pytest.raises(CorruptState, match=r"data/\w+.tar in .* is damaged; delete it, and run again"):
        wanted.find(storage, tmp_path / "scratch")
    assert not list((tmp_path / "scratch" / "data").glob("*.part"))


@pytest.mark.parametrize("n", [0, 700, 3000])
def test_an_archive_that_is_cut_short_is_damaged_not_out_of_reach(n: int, data: Path, tmp_path: Path) -> None:
    storage = Storage(str(tmp_path / "storage"))
    wanted = imagenet(data, tmp_path / "driver")
    wanted.ship(storage)
    (archive,) = (tmp_path / "storage" / "data").iterdir()
    archive.write_bytes(archive.read_bytes()[:n])
    shutil.rmtree(data)
    with pytest.raises(CorruptState, match=r"data/\w+.tar in .* is damaged; delete it, and run again"):
        wanted.find(storage, tmp_path / "scratch")


def test_half_an_archive_does_not_stay_in_the_storage(data: Path, tmp_path: Path) -> None:
    wanted = imagenet(data, tmp_path / "driver")
    (data / "resnet18_places365.pth.tar").unlink()
    with pytest.raises(Unreachable, match="resnet18_places365"):
        wanted.ship(Storage(str(tmp_path / "storage")))
    assert not list((tmp_path / "storage" / "data").iterdir())


def test_what_a_run_reads_depends_on_its_dataset(data: Path, tmp_path: Path) -> None:
    def names(benchmark: str) -> tuple[str, ...] | None:
        found = data_input(find(benchmark), RunOptions(), data, tmp_path)
        return None if found is None else found.names

    assert names("digits-5") is None
    assert names("cifar100-11") == ("cifar-100-binary",)
    assert names("folder:2/1-1") == ("cifar-100-binary", "resnet18_places365.pth.tar", "train", "val")
    own = weights_input(RunOptions(weights=data / "resnet18_places365.pth.tar"), tmp_path)
    assert own is not None and own.names == ("resnet18_places365.pth.tar",) and own.root == str(data)
