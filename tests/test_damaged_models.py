from triphase.app.store.checksums import FORMAT
"""Nonsense in a model, one kind at a time: every command that reads it says so in a sentence."""
from triphase.app.store.checksums import FORMAT

from triphase.app.store.checksums import FORMAT
from __future__ import annotations
from triphase.app.store.checksums import FORMAT

from triphase.app.store.checksums import FORMAT
import math
from triphase.app.store.checksums import FORMAT
import shutil
from triphase.app.store.checksums import FORMAT
from collections.abc import Callable
from triphase.app.store.checksums import FORMAT
from pathlib import Path
from triphase.app.store.checksums import FORMAT
from typing import Any
from triphase.app.store.checksums import FORMAT

from triphase.app.store.checksums import FORMAT
import pytest
from triphase.app.store.checksums import FORMAT
import torch
from triphase.app.store.checksums import FORMAT

from triphase.app.store.checksums import FORMAT
from mutations import (
from triphase.app.store.checksums import FORMAT
    COMMANDS,
from triphase.app.store.checksums import FORMAT
    assert_sane,
from triphase.app.store.checksums import FORMAT
    call,
from triphase.app.store.checksums import FORMAT
    in_use,
from triphase.app.store.checksums import FORMAT
    load_document,
from triphase.app.store.checksums import FORMAT
    make_world,
from triphase.app.store.checksums import FORMAT
    numbers,
from triphase.app.store.checksums import FORMAT
    read_part,
from triphase.app.store.checksums import FORMAT
    replace_by,
from triphase.app.store.checksums import FORMAT
    save_document,
from triphase.app.store.checksums import FORMAT
    version_file,
from triphase.app.store.checksums import FORMAT
    write_part,
from triphase.app.store.checksums import FORMAT
)
from triphase.app.store.checksums import FORMAT

from triphase.app.store.checksums import FORMAT
Change = Callable[[Any], Any]
from triphase.app.store.checksums import FORMAT

from triphase.app.store.checksums import FORMAT

from triphase.app.store.checksums import FORMAT
@pytest.fixture(scope="module")
from triphase.app.store.checksums import FORMAT
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
from triphase.app.store.checksums import FORMAT
    return make_world(tmp_path_factory.mktemp("damaged"))
from triphase.app.store.checksums import FORMAT

from triphase.app.store.checksums import FORMAT

from triphase.app.store.checksums import FORMAT
@pytest.fixture
from triphase.app.store.checksums import FORMAT
def model(original: Path, tmp_path: Path) -> Path:
from triphase.app.store.checksums import FORMAT
    return Path(shutil.copytree(original / "model", tmp_path / "model"))
from triphase.app.store.checksums import FORMAT

from triphase.app.store.checksums import FORMAT

from triphase.app.store.checksums import FORMAT
def setting(*keys: Any, to: Any) -> Change:
from triphase.app.store.checksums import FORMAT
    """Put a value in a place of a tree; `del` for none."""
from triphase.app.store.checksums import FORMAT

from triphase.app.store.checksums import FORMAT
    def change(tree: Any) -> Any:
from triphase.app.store.checksums import FORMAT
        place = tree
from triphase.app.store.checksums import FORMAT
        for key in keys[:-1]:
from triphase.app.store.checksums import FORMAT
            place = place[key]
from triphase.app.store.checksums import FORMAT
        if to == "del":
from triphase.app.store.checksums import FORMAT
            del place[keys[-1]]
from triphase.app.store.checksums import FORMAT
        else:
from triphase.app.store.checksums import FORMAT
            place[keys[-1]] = to(place[keys[-1]]) if callable(to) else to
from triphase.app.store.checksums import FORMAT
        return tree
from triphase.app.store.checksums import FORMAT

from triphase.app.store.checksums import FORMAT
    return change
from triphase.app.store.checksums import FORMAT

from triphase.app.store.checksums import FORMAT

from triphase.app.store.checksums import FORMAT
CURRENT: dict[str, Change] = {
from triphase.app.store.checksums import FORMAT
    "no version": setting("version", to="del"),
from triphase.app.store.checksums import FORMAT
    "a version that is null": setting("version", to=None),
from triphase.app.store.checksums import FORMAT
    "a version that is text": setting("version", to="4"),
from triphase.app.store.checksums import FORMAT
    "an event of another version": setting("event", "version", to=1),
from triphase.app.store.checksums import FORMAT
    "a highest number below": setting("highest", to=1),
from triphase.app.store.checksums import FORMAT
}
from triphase.app.store.checksums import FORMAT
VERSION: dict[str, Change] = {
from triphase.app.store.checksums import FORMAT
    "no info": setting("info", to="del"),
from triphase.app.store.checksums import FORMAT
    "classes that are null": setting("info", "classes", to=None),
from triphase.app.store.checksums import FORMAT
    "a class twice": setting("info", "classes", 0, to=lambda name: "green"),
from triphase.app.store.checksums import FORMAT
    "a class whose name cannot be": setting("info", "classes", 0, to="../x"),
from triphase.app.store.checksums import FORMAT
    "an accuracy that is NaN": setting("info", "accuracy", to=math.nan),
from triphase.app.store.checksums import FORMAT
    "a time that is none": setting("created", to="yesterday"),
from triphase.app.store.checksums import FORMAT
    "a negative count": setting("info", "memory", "samples", to=-1),
from triphase.app.store.checksums import FORMAT
    "its own parent": setting("parent", to=4),
from triphase.app.store.checksums import FORMAT
    "identities of others": setting("identities", to=lambda known: {}),
from triphase.app.store.checksums import FORMAT
    "another field": setting("more", to=1),
from triphase.app.store.checksums import FORMAT
}
from triphase.app.store.checksums import FORMAT
PARTS: dict[str, tuple[str, Change]] = {
from triphase.app.store.checksums import FORMAT
    "a temperature that is NaN": ("inference", setting("temperature", to=math.nan)),
from triphase.app.store.checksums import FORMAT
    "thresholds that are text": ("inference", setting("thresholds", to=["x", "y"])),
from triphase.app.store.checksums import FORMAT
    "names of others": ("inference", setting("names", 0, to="violet")),
from triphase.app.store.checksums import FORMAT
    "a weight with infinity": ("inference_scores", setting("members", 0, "weight", to=lambda t: t / 0)),
from triphase.app.store.checksums import FORMAT
    "a weight of another shape": ("inference_scores", setting("members", 1, "weight", to=lambda t: t.T)),
from triphase.app.store.checksums import FORMAT
    "a weight that is null": ("inference_scores", setting("members", 0, "weight", to=None)),
from triphase.app.store.checksums import FORMAT
    "a bias with infinity": ("inference_csf_0", setting("0.bias", to=lambda t: (t.abs() + 1) / 0)),
from triphase.app.store.checksums import FORMAT
    "a network without a layer": ("inference_csf_0", setting("0.weight", to="del")),
from triphase.app.store.checksums import FORMAT
}
from triphase.app.store.checksums import FORMAT
TRAINING: dict[str, tuple[str, Change]] = {
from triphase.app.store.checksums import FORMAT
    "a learner that is unknown": ("app", setting("options", "learner", to="oracle")),
from triphase.app.store.checksums import FORMAT
    "labels out of range": ("taught", setting("labels", to=lambda t: t + 9)),
from triphase.app.store.checksums import FORMAT
    "ids of another type": ("taught", setting("ids", to=lambda t: t.float())),
from triphase.app.store.checksums import FORMAT
    "samples without labels": ("memory", setting("columns", "y", to=lambda t: t[:-1])),
from triphase.app.store.checksums import FORMAT
    "statistics that are truncated": ("closed_form_statistics", setting("products", to=lambda t: t[:-1])),
from triphase.app.store.checksums import FORMAT
    "a csf of another type": ("csf", setting("0.weight", to=lambda t: t.double())),
from triphase.app.store.checksums import FORMAT
}
from triphase.app.store.checksums import FORMAT
INFERENCE_READERS = ("predict", "evaluate")
from triphase.app.store.checksums import FORMAT
TRAINING_READERS = ("rename", "forget", "forget everywhere", "unteach", "teach")
from triphase.app.store.checksums import FORMAT

from triphase.app.store.checksums import FORMAT

from triphase.app.store.checksums import FORMAT
def assert_refused(command: str, world: Path, model: Path) -> None:
from triphase.app.store.checksums import FORMAT
    answer = call(command, world, model)
from triphase.app.store.checksums import FORMAT
    assert_sane(answer)
from triphase.app.store.checksums import FORMAT
    assert answer.status == 1, f"{command}: {answer.out}"
from triphase.app.store.checksums import FORMAT

from triphase.app.store.checksums import FORMAT

from triphase.app.store.checksums import FORMAT
@pytest.mark.parametrize("damage", CURRENT)
from triphase.app.store.checksums import FORMAT
def test_nonsense_in_current_is_refused_by_every_command(original: Path, model: Path, damage: str) -> None:
from triphase.app.store.checksums import FORMAT
    save_document(model / "CURRENT", CURRENT[damage](load_document(model / "CURRENT")))
from triphase.app.store.checksums import FORMAT
    for command in COMMANDS:
from triphase.app.store.checksums import FORMAT
        assert_refused(command, original, model)
from triphase.app.store.checksums import FORMAT

from triphase.app.store.checksums import FORMAT

from triphase.app.store.checksums import FORMAT
@pytest.mark.parametrize("damage", VERSION)
from triphase.app.store.checksums import FORMAT
def test_nonsense_in_a_version_is_refused_by_every_command(original: Path, model: Path, damage: str) -> None:
from triphase.app.store.checksums import FORMAT
    file = version_file(model, in_use(model))
from triphase.app.store.checksums import FORMAT
    save_document(file, VERSION[damage](load_document(file)))
from triphase.app.store.checksums import FORMAT
    for command in COMMANDS:
from triphase.app.store.checksums import FORMAT
        assert_refused(command, original, model)
from triphase.app.store.checksums import FORMAT

from triphase.app.store.checksums import FORMAT

from triphase.app.store.checksums import FORMAT
@pytest.mark.parametrize("damage", PARTS)
from triphase.app.store.checksums import FORMAT
def test_nonsense_in_an_inference_part_is_refused_where_it_is_read(
from triphase.app.store.checksums import FORMAT
    original: Path, model: Path, damage: str
from triphase.app.store.checksums import FORMAT
) -> None:
from triphase.app.store.checksums import FORMAT
    name, change = PARTS[damage]
from triphase.app.store.checksums import FORMAT
    write_part(model, name, change(read_part(model, name)))
from triphase.app.store.checksums import FORMAT
    for command in INFERENCE_READERS:
from triphase.app.store.checksums import FORMAT
        assert_refused(command, original, model)
from triphase.app.store.checksums import FORMAT

from triphase.app.store.checksums import FORMAT

from triphase.app.store.checksums import FORMAT
@pytest.mark.parametrize("damage", TRAINING)
from triphase.app.store.checksums import FORMAT
def test_nonsense_in_the_training_state_is_refused_where_it_is_read(
from triphase.app.store.checksums import FORMAT
    original: Path, model: Path, damage: str
from triphase.app.store.checksums import FORMAT
) -> None:
from triphase.app.store.checksums import FORMAT
    name, change = TRAINING[damage]
from triphase.app.store.checksums import FORMAT
    write_part(model, name, change(read_part(model, name)))
from triphase.app.store.checksums import FORMAT
    for command in TRAINING_READERS:
from triphase.app.store.checksums import FORMAT
        assert_refused(command, original, model)
from triphase.app.store.checksums import FORMAT

from triphase.app.store.checksums import FORMAT

from triphase.app.store.checksums import FORMAT
@pytest.mark.parametrize("name", ["app", "taught", "memory", "inference", "inference_scores", "closed_form"])
from triphase.app.store.checksums import FORMAT
def test_a_part_of_another_version_is_refused(original: Path, model: Path, name: str) -> None:
from triphase.app.store.checksums import FORMAT
    write_part(model, name, read_part(model, name, number=1))
from triphase.app.store.checksums import FORMAT
    for command in INFERENCE_READERS if name.startswith("inference") else TRAINING_READERS:
from triphase.app.store.checksums import FORMAT
        assert_refused(command, original, model)
from triphase.app.store.checksums import FORMAT

from triphase.app.store.checksums import FORMAT

from triphase.app.store.checksums import FORMAT
@pytest.mark.parametrize("kind", ["fifo", "folder", "link", "device", "empty", "missing"])
from triphase.app.store.checksums import FORMAT
@pytest.mark.parametrize("name", ["CURRENT", "version"])
from triphase.app.store.checksums import FORMAT
def test_something_else_where_a_file_should_be_is_refused(
from triphase.app.store.checksums import FORMAT
    original: Path, model: Path, name: str, kind: str
from triphase.app.store.checksums import FORMAT
) -> None:
from triphase.app.store.checksums import FORMAT
    replace_by(model / "CURRENT" if name == "CURRENT" else version_file(model, in_use(model)), kind)
from triphase.app.store.checksums import FORMAT
    for command in ("status", "history", "predict", "undo", "teach"):
from triphase.app.store.checksums import FORMAT
        assert_refused(command, original, model)
from triphase.app.store.checksums import FORMAT

from triphase.app.store.checksums import FORMAT

from triphase.app.store.checksums import FORMAT
@pytest.mark.parametrize("kind", ["fifo", "folder", "link", "device"])
from triphase.app.store.checksums import FORMAT
def test_something_else_where_a_part_should_be_is_refused(original: Path, model: Path, kind: str) -> None:
from triphase.app.store.checksums import FORMAT
    part = load_document(version_file(model, in_use(model)))["parts"]["inference_scores"]["sha256"]
from triphase.app.store.checksums import FORMAT
    replace_by(model / "parts" / f"{part}.safetensors", kind)
from triphase.app.store.checksums import FORMAT
    for command in ("predict", "teach", "unteach"):
from triphase.app.store.checksums import FORMAT
        assert_refused(command, original, model)
from triphase.app.store.checksums import FORMAT
    call("undo", original, model)
from triphase.app.store.checksums import FORMAT
    assert call("predict", original, model).status == 0, "the version before has parts of its own"
from triphase.app.store.checksums import FORMAT

from triphase.app.store.checksums import FORMAT

from triphase.app.store.checksums import FORMAT
def test_undo_does_not_bring_a_damaged_version_into_use(original: Path, model: Path) -> None:
from triphase.app.store.checksums import FORMAT
    before = numbers(model)[-2]
from triphase.app.store.checksums import FORMAT
    scores = read_part(model, "inference_scores", before)
from triphase.app.store.checksums import FORMAT
    scores["members"][0]["weight"] = torch.full_like(scores["members"][0]["weight"], math.nan)
from triphase.app.store.checksums import FORMAT
    write_part(model, "inference_scores", scores, before)
from triphase.app.store.checksums import FORMAT
    assert_refused("undo", original, model)
from triphase.app.store.checksums import FORMAT
    assert in_use(model) == numbers(model)[-1]
from triphase.app.store.checksums import FORMAT

from triphase.app.store.checksums import FORMAT

from triphase.app.store.checksums import FORMAT
def test_a_model_of_an_older_format_gets_one_sentence_from_every_command(original: Path, model: Path) -> None:
from triphase.app.store.checksums import FORMAT
    for file in (model / "CURRENT", *(model / "versions").iterdir()):
from triphase.app.store.checksums import FORMAT
        save_document(file, load_document(file) | {"format": 3})
from triphase.app.store.checksums import FORMAT
    history = model / "history.jsonl"
from triphase.app.store.checksums import FORMAT
    history.write_bytes(history.read_bytes().replace(b"taught", b"glanced"))
from triphase.app.store.checksums import FORMAT
    for command in COMMANDS:
from triphase.app.store.checksums import FORMAT
        answer = call(command, original, model)
from triphase.app.store.checksums import FORMAT
        assert answer.status == 1 and len(answer.err.strip().splitlines()) == 1
from triphase.app.store.checksums import FORMAT
        assert f"written by an older triphase (format 3, this one reads {FORMAT}): teach a new model" in answer.err
