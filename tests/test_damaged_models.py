"""Nonsense in a model, one kind at a time: every command that reads it says so in a sentence."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from mutations import (
    COMMANDS,
    assert_sane,
    call,
    in_use,
    load_document,
    make_world,
    numbers,
    read_part,
    replace_by,
    save_document,
    version_file,
    write_part,
)
from triphase.app.store.checksums import FORMAT

Change = Callable[[Any], Any]


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_world(tmp_path_factory.mktemp("damaged"))


@pytest.fixture
def model(original: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(original / "model", tmp_path / "model"))


def setting(*keys: Any, to: Any) -> Change:
    """Put a value in a place of a tree; `del` for none."""

    def change(tree: Any) -> Any:
        place = tree
        for key in keys[:-1]:
            place = place[key]
        if to == "del":
            del place[keys[-1]]
        else:
            place[keys[-1]] = to(place[keys[-1]]) if callable(to) else to
        return tree

    return change


CURRENT: dict[str, Change] = {
    "no version": setting("version", to="del"),
    "a version that is null": setting("version", to=None),
    "a version that is text": setting("version", to="4"),
    "an event of another version": setting("event", "version", to=1),
    "a highest number below": setting("highest", to=1),
}
VERSION: dict[str, Change] = {
    "no info": setting("info", to="del"),
    "classes that are null": setting("info", "classes", to=None),
    "a class twice": setting("info", "classes", 0, to=lambda name: "green"),
    "a class whose name cannot be": setting("info", "classes", 0, to="../x"),
    "an accuracy that is NaN": setting("info", "accuracy", to=math.nan),
    "a time that is none": setting("created", to="yesterday"),
    "a negative count": setting("info", "memory", "samples", to=-1),
    "its own parent": setting("parent", to=4),
    "identities of others": setting("identities", to=lambda known: {}),
    "another field": setting("more", to=1),
}
PARTS: dict[str, tuple[str, Change]] = {
    "a temperature that is NaN": ("inference", setting("temperature", to=math.nan)),
    "thresholds that are text": ("inference", setting("thresholds", to=["x", "y"])),
    "names of others": ("inference", setting("names", 0, to="violet")),
    "a weight with infinity": ("inference_scores", setting("members", 0, "weight", to=lambda t: t / 0)),
    "a weight of another shape": ("inference_scores", setting("members", 1, "weight", to=lambda t: t.T)),
    "a weight that is null": ("inference_scores", setting("members", 0, "weight", to=None)),
    "a bias with infinity": ("inference_csf_0", setting("0.bias", to=lambda t: (t.abs() + 1) / 0)),
    "a network without a layer": ("inference_csf_0", setting("0.weight", to="del")),
}
TRAINING: dict[str, tuple[str, Change]] = {
    "a learner that is unknown": ("app", setting("options", "learner", to="oracle")),
    "labels out of range": ("taught", setting("labels", to=lambda t: t + 9)),
    "ids of another type": ("taught", setting("ids", to=lambda t: t.float())),
    "samples without labels": ("memory", setting("columns", "y", to=lambda t: t[:-1])),
    "statistics that are truncated": ("closed_form_statistics", setting("products", to=lambda t: t[:-1])),
    "a csf of another type": ("csf", setting("0.weight", to=lambda t: t.double())),
}
INFERENCE_READERS = ("predict", "evaluate")
TRAINING_READERS = ("rename", "forget", "forget everywhere", "unteach", "teach")


def assert_refused(command: str, world: Path, model: Path) -> None:
    answer = call(command, world, model)
    assert_sane(answer)
    assert answer.status == 1, f"{command}: {answer.out}"


@pytest.mark.parametrize("damage", CURRENT)
def test_nonsense_in_current_is_refused_by_every_command(original: Path, model: Path, damage: str) -> None:
    save_document(model / "CURRENT", CURRENT[damage](load_document(model / "CURRENT")))
    for command in COMMANDS:
        assert_refused(command, original, model)


@pytest.mark.parametrize("damage", VERSION)
def test_nonsense_in_a_version_is_refused_by_every_command(original: Path, model: Path, damage: str) -> None:
    file = version_file(model, in_use(model))
    save_document(file, VERSION[damage](load_document(file)))
    for command in COMMANDS:
        assert_refused(command, original, model)


@pytest.mark.parametrize("damage", PARTS)
def test_nonsense_in_an_inference_part_is_refused_where_it_is_read(
    original: Path, model: Path, damage: str
) -> None:
    name, change = PARTS[damage]
    write_part(model, name, change(read_part(model, name)))
    for command in INFERENCE_READERS:
        assert_refused(command, original, model)


@pytest.mark.parametrize("damage", TRAINING)
def test_nonsense_in_the_training_state_is_refused_where_it_is_read(
    original: Path, model: Path, damage: str
) -> None:
    name, change = TRAINING[damage]
    write_part(model, name, change(read_part(model, name)))
    for command in TRAINING_READERS:
        assert_refused(command, original, model)


@pytest.mark.parametrize("name", ["app", "taught", "memory", "inference", "inference_scores", "closed_form"])
def test_a_part_of_another_version_is_refused(original: Path, model: Path, name: str) -> None:
    write_part(model, name, read_part(model, name, number=1))
    for command in INFERENCE_READERS if name.startswith("inference") else TRAINING_READERS:
        assert_refused(command, original, model)


@pytest.mark.parametrize("kind", ["fifo", "folder", "link", "device", "empty", "missing"])
@pytest.mark.parametrize("name", ["CURRENT", "version"])
def test_something_else_where_a_file_should_be_is_refused(
    original: Path, model: Path, name: str, kind: str
) -> None:
    replace_by(model / "CURRENT" if name == "CURRENT" else version_file(model, in_use(model)), kind)
    for command in ("status", "history", "predict", "undo", "teach"):
        assert_refused(command, original, model)


@pytest.mark.parametrize("kind", ["fifo", "folder", "link", "device"])
def test_something_else_where_a_part_should_be_is_refused(original: Path, model: Path, kind: str) -> None:
    part = load_document(version_file(model, in_use(model)))["parts"]["inference_scores"]["sha256"]
    replace_by(model / "parts" / f"{part}.safetensors", kind)
    for command in ("predict", "teach", "unteach"):
        assert_refused(command, original, model)
    call("undo", original, model)
    assert call("predict", original, model).status == 0, "the version before has parts of its own"


def test_undo_does_not_bring_a_damaged_version_into_use(original: Path, model: Path) -> None:
    before = numbers(model)[-2]
    scores = read_part(model, "inference_scores", before)
    scores["members"][0]["weight"] = torch.full_like(scores["members"][0]["weight"], math.nan)
    write_part(model, "inference_scores", scores, before)
    assert_refused("undo", original, model)
    assert in_use(model) == numbers(model)[-1]


def test_a_model_of_an_older_format_gets_one_sentence_from_every_command(original: Path, model: Path) -> None:
    for file in (model / "CURRENT", *(model / "versions").iterdir()):
        save_document(file, load_document(file) | {"format": 3})
    history = model / "history.jsonl"
    history.write_bytes(history.read_bytes().replace(b"taught", b"glanced"))
    for command in COMMANDS:
        answer = call(command, original, model)
        assert answer.status == 1 and len(answer.err.strip().splitlines()) == 1
        assert f"written by an older triphase (format 3, this one reads {FORMAT}): teach a new model" in answer.err
