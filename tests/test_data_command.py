"""triphase data: what is there, counted, and what is missing, named."""

import json
import os
import pickle
import sys
import tarfile
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from rich.console import Console
from rich.status import Status
from safetensors.torch import save_file

from triphase.bench.benchmarks import BENCHMARKS, DATASETS
from triphase.cli import main
from triphase.data.sources import cifar100, core50_classes, folder, imagenet
from triphase.data.sources.core50 import frames_of
from triphase.data.sources.inventory import About, Count, Inventory
from triphase.data.sources.overview import overview
from triphase.errors import BadData, few
from triphase.models import mobilenet_v1, resnet18

RECORD = 3074


@dataclass(frozen=True)
class Answer:
    status: int
    out: str
    err: str


Call = Callable[..., Answer]


@pytest.fixture
def triphase(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Call:
    """Calls the command in this process, in an empty folder."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.delenv("TRIPHASE_DATA", raising=False)

    def call(*arguments: object) -> Answer:
        monkeypatch.setattr(sys, "argv", ["triphase", "data", *map(str, arguments)])
        with pytest.raises(SystemExit) as end:
            main()
        out, err = capsys.readouterr()
        return Answer(int(end.value.code or 0), out, err)

    return call


def look(data: Path, name: str) -> Inventory:
    (found,) = (inventory for inventory in overview(data) if inventory.about.name == name)
    return found


def found(inventory: Inventory) -> dict[str, int]:
    return {count.what: count.found for count in inventory.counts}


def empty(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()


def sized(path: Path, size: int) -> None:
    """A file of that size that takes no room on the disk."""
    empty(path)
    os.truncate(path, size)


def photo(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (4, 4)).save(path)


# The command


def test_every_dataset_and_file_of_weights_is_told_of(triphase: Call) -> None:
    answer = triphase()
    assert answer.status == 0 and answer.err == ""
    assert "In data, which does not exist yet:" in answer.out
    paragraphs = {text.split()[0]: text for text in answer.out.split("\n\n")[1:]}
    wanted = {benchmark.weights for benchmark in BENCHMARKS.values()} - {""}
    assert set(paragraphs) == {*DATASETS, *wanted}
    for name, text in paragraphs.items():
        assert text.split()[1] == ("complete" if name == "digits" else "absent")
        assert "  expected  " in text and "  found     " in text
        assert "https://" in text or name == "folder"
    assert "for       core50-41, core50-nicv2-391" in paragraphs["core50"]
    assert "0 of 119,894 training frames, 0 of 44,972 test frames" in paragraphs["core50"]
    assert "0 of 1,281,167 training images" in paragraphs["imagenet"]


def test_one_document_for_programs(triphase: Call, tmp_path: Path) -> None:
    answer = triphase("--data", tmp_path, "--json")
    document: Any = json.loads(answer.out)
    assert answer.status == 0 and answer.err == "" and document["data"] == str(tmp_path)
    assert [entry["name"] for entry in document["datasets"]] == list(DATASETS)
    (places,) = (entry for entry in document["weights"] if entry["name"] == "resnet18_places365.pth.tar")
    assert places["state"] == "absent" and places["benchmarks"] == ["imagenet-100"]
    digits = document["datasets"][0]
    assert digits["state"] == "complete" and digits["problems"] == []
    assert digits["counts"] == [{"what": "images", "found": 1797, "expected": 1797}]


def test_the_environment_names_the_folder_too(
    triphase: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    photo(tmp_path / "mine" / "cat" / "1.jpg")
    monkeypatch.setenv("TRIPHASE_DATA", str(tmp_path / "mine"))
    assert "1 classes, 1 photos in them" in triphase().out


def test_a_folder_that_cannot_be_looked_into_is_refused(
    triphase: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = triphase("--data", tmp_path / "nowhere")
    assert answer.status == 1 and answer.out == ""
    assert "There is no folder" in answer.err and "nowhere; make it, or check --data." in answer.err
    (tmp_path / "file").touch()
    answer = triphase("--data", tmp_path / "file", "--json")
    assert answer.status == 1 and answer.out == "" and "is a file; --data is the folder" in answer.err

    def deny(path: object) -> None:
        raise PermissionError("Permission denied")

    monkeypatch.setattr(os, "scandir", deny)
    answer = triphase("--data", tmp_path)
    assert answer.status == 1 and "cannot be listed (Permission denied); allow reading it." in answer.err


def test_a_part_that_cannot_be_listed_does_not_hide_the_rest(
    triphase: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    empty(tmp_path / "s1" / "o1" / "C_01_01_000.png")
    listdir = os.listdir

    def deny(path: Path) -> list[str]:
        if Path(path).name == "o1":
            raise PermissionError("Permission denied")
        return listdir(path)

    monkeypatch.setattr(os, "listdir", deny)
    answer = triphase("--data", tmp_path)
    assert answer.status == 0 and "digits  complete" in answer.out
    (core50,) = (text for text in answer.out.split("\n\n") if text.startswith("core50"))
    assert "core50  incomplete" in core50 and "o1 cannot be listed (Permission denied)" in core50


def test_names_that_are_no_utf8_can_be_printed(triphase: Call, tmp_path: Path) -> None:
    root = tmp_path / os.fsdecode(b"caf\xe9")
    sized(root / "train.bin", 5)
    photo(root / os.fsdecode(b"\xff") / "1.jpg")
    answer = triphase("--data", root)
    assert answer.status == 0 and "caf\\xe9/train.bin ends in the middle of image 1" in answer.out
    assert "for testing: \\xff." in answer.out
    assert triphase("--data", root, "--json").status == 0


def test_progress_is_shown_in_a_terminal_once_it_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    command = import_module("triphase.cli.data")
    shown: list[str] = []

    class Terminal(Console):
        is_terminal = True

    def note(status: Status) -> None:
        shown.append(str(status.status))

    monkeypatch.setattr(Status, "start", note)
    monkeypatch.setattr(command, "Console", Terminal)
    clock = iter([0.0, 1.0, 2.5])
    monkeypatch.setattr(command.time, "monotonic", lambda: next(clock))
    with command._counting(quiet=True) as tick:
        tick(1000)
        assert shown == []
        tick(234)
    assert shown == ["Counting files: 1,234"]


# Inventories


@given(st.lists(st.tuples(st.integers(0, 3), st.none() | st.integers(1, 3)), min_size=1), st.booleans())
def test_complete_means_that_every_count_is_right_and_nothing_is_wrong(
    numbers: list[tuple[int, int | None]], problem: bool
) -> None:
    counts = tuple(Count("things", n, expected) for n, expected in numbers)
    state = Inventory(About("", "", "", ""), counts, ("Oh.",) if problem else ()).state
    assert (state == "absent") == all(n == 0 for n, _ in numbers)
    if state != "absent":
        right = all(expected in (None, n) for n, expected in numbers)
        assert (state == "complete") == (right and not problem)


@given(st.lists(st.from_regex(r"[a-z0-9]+", fullmatch=True), max_size=12))
@settings(max_examples=50)
def test_a_few_names_account_for_all(names: list[str]) -> None:
    listed, _, more = few(names).partition(" and ")
    shown = listed.split(", ") if listed else []
    assert shown == names[: len(shown)]
    assert len(shown) + int(more.split()[0] if more else 0) == len(names)


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


def write_core50(place: Path, session: int, obj: int, n: int) -> None:
    for frame in range(n):
        empty(place / f"s{session}" / f"o{obj}" / f"C_{session:02}_{obj:02}_{frame:03}.png")


def test_core50_names_missing_sessions_and_short_objects(tmp_path: Path) -> None:
    for session in (1, 2, 3):
        write_core50(tmp_path / "core50_128x128", session, 2, frames_of(session, 2))
    (tmp_path / "core50_128x128" / "s2" / "o2" / "C_02_02_000.png").unlink()
    empty(tmp_path / "core50_128x128" / "s2" / "o2" / ".C_02_02_000.png")
    inventory = look(tmp_path, "core50")
    assert inventory.state == "incomplete"
    assert found(inventory)["training frames"] == 296 + 300 - 1 and found(inventory)["test frames"] == 300
    sessions, objects = inventory.problems
    lacking = sum(frames_of(s, obj) for s in range(4, 12) for obj in range(1, 51))
    assert sessions == f"Missing: sessions s4, s5, s6, s7, s8 and 3 more ({lacking:,} frames)."
    assert "s1/o1 (0 of 300)" in objects and "s1/o2" not in objects and objects.endswith(" more.")
    train, test, _ = core50_classes(tmp_path, complete=False)
    assert [len(train), len(test)] == list(found(inventory).values())[:2]


def test_core50_with_every_frame_is_complete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def listed(folder: Path, sessions: tuple[int, ...], obj: int) -> list[str]:
        return [f"{i}.png" for session in sessions for i in range(frames_of(session, obj))]

    (tmp_path / "s1").mkdir()
    monkeypatch.setattr("triphase.data.sources.core50._listed", listed)
    inventory = look(tmp_path, "core50")
    assert [str(count) for count in inventory.counts] == [
        "119,894 of 119,894 training frames",
        "44,972 of 44,972 test frames",
        "0 of 3,920 lists of NICv2-391 in 10 runs",
    ]
    assert inventory.problems == () and inventory.state == "incomplete"
    write_lists(tmp_path)
    assert look(tmp_path, "core50").state == "complete"


def write_lists(place: Path) -> None:
    names = ["test_filelist.txt", *(f"train_batch_{batch:02}_filelist.txt" for batch in range(391))]
    for run in range(10):
        for name in names:
            empty(place / "NIC_v2_391" / f"run{run}" / name)


def test_lists_of_nicv2_are_counted_run_by_run_in_folders_and_in_the_archive(tmp_path: Path) -> None:
    folders, packed = tmp_path / "folders", tmp_path / "packed"
    write_lists(folders)
    (folders / "NIC_v2_391" / "run3" / "train_batch_17_filelist.txt").unlink()
    (folders / "NIC_v2_391" / "run7" / "test_filelist.txt").unlink()
    packed.mkdir()
    archive = packed / "core50_nicv2_filelists.tar.xz"
    with tarfile.open(archive, "w:xz", preset=0) as file:
        file.add(folders / "NIC_v2_391", arcname="./sIII_v2_391")
    for place in (folders, packed):
        inventory = look(place, "core50")
        assert found(inventory)["lists of NICv2-391 in 10 runs"] == 3918
        assert inventory.problems == ("NICv2-391 lacks lists of run3 (391 of 392), run7 (391 of 392).",)
    archive.write_bytes(archive.read_bytes()[:200])
    (problem,) = look(packed, "core50").problems
    assert "cannot be read" in problem and "batches_filelists_NICv2.zip" in problem


def write_imagenet(root: Path) -> Path:
    for split, n in (("train", 732), ("val", 50)):
        for wnid in ("n01440764", "n01443537"):
            for i in range(n):
                empty(root / split / wnid / f"{wnid}_{i}.JPEG")
    return root


def test_imagenet_names_classes_that_are_short_or_missing(tmp_path: Path) -> None:
    write_imagenet(tmp_path)
    inventory = look(tmp_path, "imagenet")
    assert list(found(inventory).values()) == [2, 1464, 2, 100]
    assert inventory.problems == () and inventory.state == "incomplete"
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
    inventory = look(tmp_path, "imagenet")
    whole, classes, loose = inventory.problems
    assert inventory.state == "absent"
    assert whole.startswith("Still packed: ILSVRC2012_img_train.tar; unpack it in ")
    assert classes.startswith("Still packed in train: n01440764.tar;")
    assert loose.startswith("3 images lie in val itself: ILSVRC2012_val_00000000.JPEG")


@pytest.mark.parametrize(
    ("name", "archive"),
    [
        ("cifar100", "cifar-100-python.tar.gz"),
        ("core50", "core50_128x128.zip"),
        ("core50", "batches_filelists_NICv2.zip"),
    ],
)
def test_downloads_that_nobody_unpacked_are_pointed_out(tmp_path: Path, name: str, archive: str) -> None:
    empty(tmp_path / archive)
    inventory = look(tmp_path, name)
    assert inventory.state == "absent" and inventory.problems[0].startswith(f"Still packed: {archive};")


def test_photos_are_counted_as_they_would_be_read(tmp_path: Path) -> None:
    for name in ("cat/1.jpg", "cat/deep/2.png", "dog/1.jpg", "dog/2.jpg", "train/1.jpg", "train/2.jpg"):
        photo(tmp_path / name)
    (tmp_path / "cat" / "notes.txt").write_text("no photo")
    (tmp_path / "none").mkdir()
    inventory = look(tmp_path, "folder")
    assert inventory.state == "complete" and found(inventory) == {"classes": 3, "photos in them": 6}
    loaded = folder(tmp_path, 4)
    assert (len(loaded.names), len(loaded.images)) == (3, 6)
    assert look(tmp_path, "imagenet").state == "absent"  # a train is also a vehicle
    photo(tmp_path / "bird" / "1.jpg")
    photo(tmp_path / "loose.png")
    single, loose = look(tmp_path, "folder").problems
    assert single.endswith("need another one for testing: bird.")
    assert loose.startswith("1 photos are in no class folder: loose.png; put the images of each class")


def test_published_datasets_are_not_taken_for_photos(tmp_path: Path) -> None:
    write_imagenet(tmp_path)
    write_core50(tmp_path, 1, 1, 3)
    assert look(tmp_path, "folder").state == "absent"
    photo(tmp_path / "cat" / "1.jpg")
    photo(tmp_path / "cat" / "2.jpg")
    mixed = look(tmp_path, "folder")
    assert found(mixed) == {"classes": 1, "photos in them": 2}
    assert mixed.problems == (
        "Other datasets lie beside them (s1, train, val); give photos a folder of their own.",
    )


def test_weights_count_if_they_fill_the_backbone(tmp_path: Path, triphase: Call) -> None:
    def states() -> dict[str, tuple[str, str]]:
        entries = json.loads(triphase("--data", tmp_path, "--json").out)["weights"]
        return {entry["name"]: (entry["state"], " ".join(entry["problems"])) for entry in entries}

    mobilenet, places = "mobilenet_v1_folded.safetensors", "resnet18_places365.pth.tar"
    assert {state for state, _ in states().values()} == {"absent"}
    folded: dict[str, torch.Tensor] = {}
    for key, value in mobilenet_v1(max_channels=1024).state_dict().items():
        _, layer, *leaf = key.split(".")
        if leaf in (["conv", "weight"], ["bn", "bias"]):
            folded[f"{layer}.{leaf[1]}"] = value.clone(memory_format=torch.contiguous_format)
    save_file(folded, tmp_path / mobilenet)
    body = {k.split(".", 1)[1]: v for k, v in resnet18().state_dict().items() if not k.startswith("head.")}
    torch.save({"state_dict": {f"module.{k}": v for k, v in body.items()}}, tmp_path / places)
    assert states() == {mobilenet: ("complete", ""), places: ("complete", "")}
    del folded["pw5.bias"]
    save_file(folded, tmp_path / mobilenet)
    (tmp_path / places).write_bytes((tmp_path / places).read_bytes()[:1000])
    found = states()
    assert found[mobilenet][0] == "incomplete" and "it lacks pw5.bias" in found[mobilenet][1]
    assert found[places][0] == "incomplete" and "cannot be read as a weight file" in found[places][1]
