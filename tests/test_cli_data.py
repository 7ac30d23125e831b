"""triphase data: what is there, counted, and what is missing, named."""

import json
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console
from rich.status import Status
from safetensors.torch import save_file

from dataset_folders import empty, photo, sized
from triphase.bench.benchmarks import BENCHMARKS, DATASETS
from triphase.cli import main
from triphase.models import mobilenet_v1, resnet18


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
    assert answer.status == 1 and "is a file; --data is the folder" in json.loads(answer.out)["error"]

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
    with command._counting(quiet=True) as progress:
        progress(1000)
        assert shown == []
        progress(234)
    assert shown == ["Counting files: 1,234"]


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
