"""The life of a model on the command line: taught, asked, corrected, interrupted, taken back."""

import contextlib
import io
import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import torch
from PIL import Image
from torch.nn import functional as F

from triphase.app import evaluation, lesson_checkpoint, predictor
from triphase.app import teach as lesson
from triphase.app.evaluation import Baseline
from triphase.app.hold_out import Lesson
from triphase.app.model import Model
from triphase.app.plan import LessonSettings
from triphase.app.scan import scan
from triphase.app.store.versions import Store
from triphase.budget import Budget
from triphase.checkpoint import Checkpoint
from triphase.cli import main
from triphase.cli.lesson_view import LessonView
from triphase.data.feature_cache import features
from triphase.data.memory import HELD_OUT
from triphase.data.streams import Experience
from triphase.errors import CannotWrite, CorruptState
from triphase.learners import SLDA
from triphase.randomness import generator

SMALL = ("--backbone", "small_cnn", "--image-size", "8", "--memory", "120")
COLOURS = {"red": (200, 40, 40), "green": (40, 200, 40), "blue": (40, 40, 200), "yellow": (200, 200, 40)}


@dataclass(frozen=True)
class Answer:
    status: int
    out: str
    err: str

    def document(self) -> Any:
        """Stdout as one JSON document without NaN; text before or after it would not parse."""

        def refuse(constant: str) -> None:
            raise AssertionError(f"{constant} is not JSON")

        return json.loads(self.out, parse_constant=refuse)


def triphase(*arguments: object) -> Answer:
    """Call the command in this process, with no terminal but a wide page."""
    out, err = io.StringIO(), io.StringIO()
    argv, page = ["triphase", *map(str, arguments)], {"COLUMNS": "200"}
    with (
        patch.object(sys, "argv", argv),
        patch.dict(os.environ, page),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        pytest.raises(SystemExit) as end,
    ):
        main()
    assert "Traceback" not in err.getvalue()
    return Answer(int(end.value.code or 0), out.getvalue(), err.getvalue())


def done(*arguments: object) -> Answer:
    answer = triphase(*arguments)
    assert answer.status == 0, answer.err
    return answer


def paint(folder: Path, colour: str, numbers: range) -> None:
    """Pictures of one colour, no two alike in shape."""
    folder.mkdir(parents=True, exist_ok=True)
    for number in numbers:
        draw = generator(number, "picture", list(COLOURS).index(colour))
        shape = F.interpolate(torch.rand(1, 1, 4, 4, generator=draw), (12, 12), mode="bicubic")[0, 0]
        pixels = torch.tensor(COLOURS[colour]).view(1, 1, 3) + 100 * (shape.unsqueeze(2) - 0.5)
        Image.fromarray(pixels.clamp(0, 255).byte().numpy().astype(np.uint8)).save(folder / f"{number}.png")


@dataclass(frozen=True)
class World:
    one: Path  # three classes of 10 photos
    two: Path  # a new class, and 5 more photos of red
    test: Path  # never taught
    base: Path  # a model that was taught `one`


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> World:
    root = tmp_path_factory.mktemp("world")
    world = World(root / "one", root / "two", root / "test", root / "base")
    for colour in ("red", "green", "blue"):
        paint(world.one / colour, colour, range(10))
    paint(world.two / "yellow", "yellow", range(10))
    paint(world.two / "red", "red", range(10, 15))
    for colour in COLOURS:
        paint(world.test / colour, colour, range(100, 105))
    done("teach", world.base, world.one, *SMALL)
    return world


@pytest.fixture
def world(original: World, tmp_path: Path) -> World:
    """A copy that a test may change."""
    shutil.copytree(original.one.parent, tmp_path / "world")
    return World(*(tmp_path / "world" / name for name in ("one", "two", "test", "base")))


def content(model: Path) -> dict[str, bytes]:
    """Every file of a model but its lock."""
    return {
        str(file.relative_to(model)): file.read_bytes()
        for file in model.rglob("*")
        if file.is_file() and file.name != "LOCK"
    }


def flat(value: Any, name: str = "") -> dict[str, Any]:
    """The leaves of a state by their path."""
    if isinstance(value, dict):
        return {path: leaf for key, item in value.items() for path, leaf in flat(item, f"{name}/{key}").items()}
    if isinstance(value, list):
        return flat(dict(enumerate(value)), name)
    return {name: value}


def assert_same_state(model: Path, other: Path) -> None:
    found, expected = (flat(Store(path).load()[0]) for path in (model, other))
    assert found.keys() == expected.keys()
    for name, leaf in expected.items():
        same = torch.equal(found[name], leaf) if isinstance(leaf, torch.Tensor) else found[name] == leaf
        assert same, name


def versions(model: Path) -> list[int]:
    return Store(model).version_numbers()


# --- lessons ----------------------------------------------------------------------------------------------------


def test_a_first_lesson_makes_a_model(world: World, tmp_path: Path) -> None:
    answer = done("teach", tmp_path / "new", world.one, *SMALL)
    assert re.search(r"red +10 +new +[\d.]+ % +2 held out", answer.out)
    assert "Learned 30 photos; 0 had been taught before." in answer.out
    assert re.search(r"Version 1 is in use after [\d.]+ s\.", answer.out)
    for stage in ("Looking at the photos", "Phase I:", "Phase II:", "Phase III:"):
        assert stage in answer.err
    assert_same_state(tmp_path / "new", world.base)
    names = {file.name for file in (tmp_path / "new").rglob("*") if file.is_file()}
    assert all(name in ("CURRENT", "LOCK") or name.endswith((".safetensors", ".json", ".jsonl")) for name in names)


def test_the_same_photos_again_teach_nothing(world: World) -> None:
    before = content(world.base)
    answer = done("teach", world.base, world.one)
    assert "All 30 photos have been taught before: there is nothing to learn." in answer.out
    document = done("teach", world.base, world.one, "--json").document()
    assert (document["learned"], document["known_already"], document["version"]) == (0, 30, 1)
    assert content(world.base) == before


def test_a_folder_that_grew_brings_new_classes_and_more_of_the_old(world: World) -> None:
    shutil.copytree(world.two, world.one, dirs_exist_ok=True)
    document = done("teach", world.base, world.one, "--force", "--json").document()
    assert document["published"] and document["version"] == 2
    assert (document["learned"], document["known_already"], document["corrected"]) == (15, 30, 0)
    assert {c["name"]: (c["images"], c["new"]) for c in document["classes"]} == {
        "blue": (0, False),
        "green": (0, False),
        "red": (5, False),
        "yellow": (10, True),
    }
    status = done("status", world.base, "--json").document()
    assert status["classes"] == ["blue", "green", "red", "yellow"]
    assert (status["version"], status["backbone"], status["taught"]) == (2, "small_cnn", 45)
    assert status["memory"]["samples"] == 45 and status["memory"]["capacity"] == 120
    counts = {c["name"]: c for c in done("classes", world.base, "--json").document()["classes"]}
    assert counts["red"]["taught"] == 15 == counts["red"]["stored"] + counts["red"]["exemplars"]

    evaluation = done("evaluate", world.base, world.test, "--json").document()
    assert evaluation["accuracy"] >= 0.9 and evaluation["per_class"]["yellow"] >= 0.8
    assert evaluation["images"] == 20 and evaluation["taught"] == 0 and 0 <= evaluation["unknown_rate"] <= 1
    assert sum(map(sum, evaluation["confusion"])) == 20


def test_a_photo_in_another_folder_is_a_correction(world: World) -> None:
    (world.one / "red" / "3.png").rename(world.one / "green" / "was-red.png")
    plan = done("teach", world.base, world.one, "--dry-run", "--json").document()
    assert (plan["learn"], plan["corrected"], plan["known_already"]) == ({"green": 1}, 1, 29)
    answer = done("teach", world.base, world.one, "--force")
    assert "29 had been taught before, 1 moved from another class." in answer.out
    counts = {c["name"]: c["taught"] for c in done("classes", world.base, "--json").document()["classes"]}
    assert counts == {"blue": 10, "green": 11, "red": 9}
    assert "nothing to learn" in done("teach", world.base, world.one).out


@pytest.mark.parametrize("left", [0, 1])
def test_corrections_that_take_most_of_a_class_must_be_meant(world: World, left: int) -> None:
    """Nothing that is held out could tell what they do to it."""
    for photo in sorted((world.one / "red").iterdir())[left:]:
        photo.rename(world.one / "blue" / f"was-red-{photo.name}")
    if left == 0:
        for photo in sorted((world.one / "green").iterdir())[:3]:
            photo.rename(world.one / "red" / f"was-green-{photo.name}")
    before = Store(world.base).load()
    for words in ([], ["--dry-run"], ["--quick"]):
        answer = triphase("teach", world.base, world.one, *words)
        assert answer.status == 1 and f"{10 - left} of the 10 photos that red was learned from lie in" in answer.err
        assert "teach with --force" in answer.err
    assert Store(world.base).load()[1] == before[1]
    document = done("teach", world.base, world.one, "--force", "--json").document()
    assert document["published"] and document["corrected"] == (9 if left else 13)


def test_a_class_whose_photos_all_moved_is_gone(world: World) -> None:
    (world.one / "red").rename(world.one / "crimson")
    answer = done("teach", world.base, world.one)
    assert "red has no photo left that it was learned from, so the class is forgotten." in answer.out
    assert done("status", world.base, "--json").document()["classes"] == ["blue", "green", "crimson"]
    (answers,) = [
        done("predict", world.base, *sorted((world.test / "red").iterdir()), "--json").document()["answers"]
    ]
    assert {a["best"] for a in answers} == {"crimson"}


def exemplars(model: Path) -> torch.Tensor:
    """Ids of the photos that are kept for measuring."""
    columns = Store(model).load()[0]["memory"]["columns"]
    ids: torch.Tensor = columns["id"][columns["split"] == HELD_OUT]
    return ids


def test_a_class_of_which_only_a_photo_for_measuring_stays_in_its_folder_is_gone(world: World) -> None:
    held, red = exemplars(world.base).tolist(), scan(world.one, 8)
    ids = dict(zip(map(str, red.paths), red.ids.tolist(), strict=True))
    for photo in sorted((world.one / "red").iterdir()):
        if ids[str(photo)] not in held:
            photo.rename(world.one / "green" / f"red{photo.name}")
    answer = done("teach", world.base, world.one, "--force")
    assert "red has no photo left that it was learned from" in answer.out
    assert done("status", world.base, "--json").document()["classes"] == ["blue", "green"]
    done("teach", world.base, world.one, "--force")  # what is still in its folder makes the class anew
    assert done("status", world.base, "--json").document()["classes"] == ["blue", "green", "red"]


def test_near_duplicates_of_an_exemplar_are_not_trained_on_even_alone(world: World, tmp_path: Path) -> None:
    photos, held = scan(world.one, 8), exemplars(world.base).tolist()
    copied = [path for path, id_ in zip(photos.paths, photos.ids.tolist(), strict=True) if id_ in held]
    for path in copied:
        near = tmp_path / "near" / path.parent.name / f"{path.stem}.png"
        near.parent.mkdir(parents=True, exist_ok=True)
        pixels = np.asarray(Image.open(path)).copy()
        pixels[0, 0] ^= 1
        Image.fromarray(pixels).save(near)
    before = Store(world.base).load()[0]["memory"]["columns"]
    outcome = done("teach", world.base, tmp_path / "near", "--json").document()
    after = Store(world.base).load()[0]["memory"]["columns"]
    assert outcome["published"] and outcome["learned"] == len(copied) > 1
    assert torch.equal(before["id"][before["split"] == 0], after["id"][after["split"] == 0])
    assert "nothing to learn" in done("teach", world.base, tmp_path / "near").out


def test_a_small_memory_keeps_photos_to_measure_with(world: World, tmp_path: Path) -> None:
    for colour in COLOURS:
        paint(tmp_path / "many" / colour, colour, range(200, 240))
    for memory in (16, 40):
        model = tmp_path / f"m{memory}"
        done("teach", model, tmp_path / "many", "--image-size", 32, "--memory", memory)
        kept = {c["name"]: c["exemplars"] for c in done("classes", model, "--json").document()["classes"]}
        assert min(kept.values()) >= memory // 16 and len(kept) == 4
        paint(tmp_path / f"more{memory}" / "red", "red", range(300, 330))
        done("teach", model, tmp_path / f"more{memory}", "--force")
        assert len(exemplars(model)) >= 4


def test_a_dry_run_writes_nothing(world: World, tmp_path: Path) -> None:
    answer = done("teach", tmp_path / "new", world.one, "--dry-run")
    assert re.search(r"blue +10 \(new\)", answer.out)
    assert "30 photos would be learned; 0 had been taught before. Nothing was written." in answer.out
    assert not (tmp_path / "new").exists()
    before = content(world.base)
    plan = done("teach", world.base, world.two, "--dry-run", "--json").document()
    assert plan["learn"] == {"red": 5, "yellow": 10} and plan["new_classes"] == ["yellow"]
    assert "Nothing to learn; 30 had" in done("teach", world.base, world.one, "--dry-run").out
    assert content(world.base) == before


@pytest.fixture
def strict(monkeypatch: pytest.MonkeyPatch) -> None:
    """A guard that no lesson passes."""
    real = evaluation.guard

    def guard(
        before: torch.Tensor, after: torch.Tensor, y: torch.Tensor, max_drop: float = 0.02
    ) -> evaluation.Verdict:
        after = after.clone()
        after[: (len(after) + 1) // 2] = False
        return replace(real(before, after, y, max_drop), refused=True)

    monkeypatch.setattr(evaluation, "guard", guard)


def test_a_lesson_whose_labels_are_mixed_up_is_refused(world: World, tmp_path: Path) -> None:
    for colour in COLOURS:
        for number in range(20, 40):
            folder = tmp_path / "photos" / list(COLOURS)[number % 4]
            paint(folder, colour, range(number, number + 1))
            (folder / f"{number}.png").rename(folder / f"{colour}{number}.png")
    for quick in ([], ["--quick"]):
        answer = triphase("teach", world.base, tmp_path / "photos", *quick)
        assert answer.status == 1 and "as if labels were mixed up" in " ".join(answer.err.split())
        assert done("status", world.base, "--json").document()["version"] == 1
    assert not done("teach", world.base, world.two, "--json").document()["labels_mixed_up"]
    forced = done("teach", world.base, tmp_path / "photos", "--force")
    assert "its own labels were not learned" in forced.out


@pytest.mark.usefixtures("strict")
def test_a_lesson_that_makes_it_forget_is_refused_and_force_publishes_it(world: World) -> None:
    before = content(world.base)
    answer = triphase("teach", world.base, world.two)
    assert answer.status == 1 and re.search(r"yellow +10 +new", answer.out)
    assert answer.err.splitlines()[-1].startswith(
        "error: Not published: the classes known before fell from 100.0 % to"
    )
    for part in (
        "allows 2 points",
        "Those that suffered: blue 100.0 % -> 0.0 %",
        "Version 1 stays in use",
        "--force",
    ):
        assert part in answer.err
    assert content(world.base) == before and not (world.base / "work").exists()
    refused = triphase("teach", world.base, world.two, "--max-drop", "0", "--json")
    assert refused.status == 1 and refused.err.startswith("error: Not published")
    document = refused.document()
    assert document["refused"] and not document["published"] and document["version"] == 1 and document["drop"] > 0
    assert content(world.base) == before

    assert "Version 2 is in use" in (forced := done("teach", world.base, world.two, "--force").out)
    assert "by force" in forced
    events = done("history", world.base, "--json").document()["events"]
    assert [event["event"] for event in events] == ["taught", "taught"] and events[1]["forced"]
    assert "(by force)" in done("history", world.base).out


def test_a_quick_lesson_publishes_twice_and_ends_the_same(world: World, tmp_path: Path) -> None:
    shutil.copytree(world.base, tmp_path / "slow")
    done("teach", tmp_path / "slow", world.two, "--force")
    answer = done("teach", world.base, world.two, "--quick", "--force")
    assert "Version 2 is in use already" in answer.err and "Version 3 is in use" in answer.out
    events = done("history", world.base, "--json").document()["events"]
    assert [event["event"] for event in events] == ["taught", "taught_quick", "taught"]
    assert_same_state(world.base, tmp_path / "slow")


def test_a_lesson_that_is_refused_after_its_quick_half_takes_that_back(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    verdicts = []
    guard = evaluation.guard

    def second_thoughts(*arguments: Any) -> evaluation.Verdict:
        verdicts.append(guard(*arguments))
        return replace(verdicts[-1], refused=len(verdicts) > 1)

    monkeypatch.setattr(evaluation, "guard", second_thoughts)
    outcome = lesson.teach(world.base, world.two, settings=LessonSettings(quick=True))
    assert len(verdicts) == 2 and not outcome.published and outcome.version == 1
    assert Store(world.base).load()[1].number == 1
    assert [event["event"] for event in Store(world.base).history()] == ["taught", "taught_quick", "undone"]


def test_a_lesson_that_was_published_does_not_fail_for_what_it_leaves_behind(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: object, *_: object) -> None:
        raise CannotWrite("Cannot write there.")

    monkeypatch.setattr(
        lesson_checkpoint, "SAVE_EVERY", math.inf
    )  # where a machine is slow, a save would close, too
    monkeypatch.setattr(Checkpoint, "close", full)
    monkeypatch.setattr(Store, "prune", full)
    outcome = lesson.teach(world.base, world.two, settings=LessonSettings(force=True))
    assert outcome.published and outcome.version == 2
    assert "cannot be cleared away: Cannot write there." in outcome.notes[-1]


def test_few_versions_are_kept(world: World) -> None:
    done("teach", world.base, world.two, "--force", "--keep", "1")
    assert versions(world.base) == [2]
    answer = triphase("undo", world.base)
    assert answer.status == 1 and "is no longer kept" in answer.err
    assert "no longer kept" in done("history", world.base).out


@pytest.mark.parametrize("replay", ["none", "latent", "raw"])
def test_no_more_is_stored_than_was_allowed(replay: str, world: World, tmp_path: Path) -> None:
    model = tmp_path / "new"
    first = done("teach", model, world.one, *SMALL, "--replay", replay)
    second = done("teach", model, world.two, "--force", "--replay", replay)
    state, _ = Store(model).load()
    columns = state["memory"]["columns"] if replay != "none" else {}
    assert ("x" in columns, "z" in columns) == (replay == "raw", replay == "latent")
    status = done("status", model, "--json").document()
    assert status["replay"] == replay and status["memory"]["samples"] == (0 if replay == "none" else 45)
    if replay == "none":
        assert "memory" not in state
        assert first.out.count("not checked") == 3 and second.out.count("not checked") == 3 + 4
        assert "nothing of any photo is stored" in done("status", model).out
        per_photo = [
            name for name, leaf in flat(state).items() if isinstance(leaf, torch.Tensor) and 45 in leaf.shape
        ]
        assert per_photo == ["/taught/ids", "/taught/labels"], "what is kept of a photo is that it was taught"
    assert done("evaluate", model, world.test, "--json").document()["accuracy"] >= 0.7


@pytest.mark.parametrize("learner", ["tpc", "slda", "ncm"])
def test_other_learners_live_as_well(learner: str, world: World, tmp_path: Path) -> None:
    model = tmp_path / "new"
    done("teach", model, world.one, *SMALL, "--learner", learner)
    done("teach", model, world.two, "--force")
    assert done("evaluate", model, world.test, "--json").document()["accuracy"] >= 0.6
    done("forget", model, "red")
    done("unteach", model, world.two)  # yellow is gone with its photos
    assert done("status", model, "--json").document()["classes"] == ["blue", "green"]
    done("predict", model, world.test / "blue" / "100.png")


@pytest.mark.parametrize(
    ("options", "part"),
    [
        (["--memory", "200MB"], "made with memory 120, not 200MB"),
        (["--seed", "1"], "made with seed 0, not 1"),
        (["--backbone", "efficientnet_lite0"], "made with backbone small_cnn, not efficientnet_lite0"),
        (["--image-size", "128"], "made with image-size 8, not 128"),
        (["--learner", "slda"], "made with learner anchored, not slda"),
        (["--replay", "raw"], "made with replay latent, not raw"),
    ],
)
def test_options_of_a_model_cannot_be_changed_even_to_the_defaults(
    options: list[str], part: str, world: World
) -> None:
    before = content(world.base)
    answer = triphase("teach", world.base, world.two, *options)
    assert answer.status == 1 and part in answer.err and "leave the option out" in answer.err
    assert content(world.base) == before


def test_options_that_agree_are_accepted(world: World) -> None:
    done("teach", world.base, world.one, *SMALL, "--replay", "latent", "--learner", "anchored", "--seed", "0")


# --- questions --------------------------------------------------------------------------------------------------


def test_predict_names_a_class_or_says_unknown(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    photos = [world.test / "red" / "100.png", world.test / "blue" / "101.png"]
    answers = done("predict", world.base, *photos, "--json").document()["answers"]
    assert [(a["file"], a["best"]) for a in answers] == [(str(photos[0]), "red"), (str(photos[1]), "blue")]
    assert all(0.4 < a["probability"] <= 1 and a["label"] in (a["best"], "unknown") for a in answers)

    monkeypatch.setattr(predictor, "ood_scores", lambda logits, distances: torch.full((len(logits), 2), torch.inf))
    assert re.search(r"100\.png +red +[\d.]+ %\n", done("predict", world.base, photos[0]).out)
    monkeypatch.setattr(predictor, "ood_scores", lambda logits, distances: torch.full((len(logits), 2), -1e30))
    assert re.search(
        r"100\.png +unknown +\(best guess: red, [\d.]+ %\)", done("predict", world.base, photos[0]).out
    )
    assert done("evaluate", world.base, world.one, "--json").document()["unknown_rate"] == 1


def test_evaluate_says_when_it_flatters(world: World) -> None:
    answer = done("evaluate", world.base, world.one)
    assert "30 photos of these had been taught to the model" in answer.out
    assert re.search(r"Right: [\d.]+ % of 30 photos\.", answer.out)
    stranger = triphase("evaluate", world.base, world.test)
    assert stranger.status == 1 and "never taught yellow" in stranger.err


def test_people_read_tables(world: World) -> None:
    done("rename", world.base, "red", "[bold]red")
    for command in ("status", "history", "classes"):
        assert "[bold]red" in done(command, world.base).out
    assert re.search(r"1 +\d{4}-\d\d-\d\d \d\d:\d\d +taught blue, green, red +30", done("history", world.base).out)
    assert "in use" in done("history", world.base).out.splitlines()[-1]
    assert "30 photos in 1 lesson" in done("status", world.base).out


# --- changes ----------------------------------------------------------------------------------------------------


def test_every_document_says_of_which_model_it_is(world: World) -> None:
    model, photo = world.base, world.one / "red" / "1.png"
    for deed, *more in (
        ("teach", world.one, "--dry-run"),
        ("teach", world.one),
        ("predict", photo),
        ("evaluate", world.one),
        ("status",),
        ("history",),
        ("classes",),
        ("rename", "red", "rouge"),
        ("undo",),
        ("unteach", photo),
        ("forget", "red"),
    ):
        assert done(deed, model, *more, "--json").document()["model"] == str(model), deed


def test_a_file_that_a_writer_takes_away_meanwhile_does_not_disturb_status(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = done("status", world.base, "--json").document()["bytes"]
    vanished, real = next((world.base / "parts").iterdir()), Path.stat
    size = vanished.stat().st_size

    def stat(path: Path, **options: Any) -> os.stat_result:
        if path == vanished:
            raise FileNotFoundError(2, "No such file or directory", str(path))
        return real(path, **options)

    monkeypatch.setattr(Path, "stat", stat)
    monkeypatch.setattr(Path, "is_file", lambda path: True)  # it was there a moment ago
    assert done("status", world.base, "--json").document()["bytes"] == whole - size


def test_undo_goes_back_bit_for_bit_as_often_as_there_are_versions(world: World, tmp_path: Path) -> None:
    shutil.copytree(world.base, tmp_path / "first")
    done("rename", world.base, "red", "rot")
    shutil.copytree(world.base, tmp_path / "second")
    done("teach", world.base, world.two, "--force")
    answer = done("undo", world.base)
    assert "Back at version 2 of" in answer.out and "knows 3 classes: blue, green, rot." in answer.out
    assert_same_state(world.base, tmp_path / "second")
    document = done("undo", world.base, "--json").document()
    assert document == {"model": str(world.base), "version": 1, "classes": ["blue", "green", "red"]}
    assert_same_state(world.base, tmp_path / "first")
    answer = triphase("undo", world.base)
    assert answer.status == 1 and "nothing to undo" in answer.err
    done("rename", world.base, "red", "rouge")
    assert done("status", world.base, "--json").document()["version"] == 4, "numbers are never reused"


def traces(model: Path, name: str) -> list[str]:
    """The files of a model in which a word occurs."""
    return [file for file, blob in content(model).items() if name.encode() in blob]


def assert_unknown(model: Path, gone: str, number: int | None = None) -> None:
    """Nothing of a class in a version: as many rows as classes, no more photos than those of the others."""
    state, version = Store(model).load(number)
    names = state["app"]["names"]
    assert gone not in names and f'"{gone}"' not in json.dumps(version.info)
    n = len(names)
    assert len(state["closed_form_statistics"]["counts"]) == len(state["closed_form_statistics"]["sums"]) == n
    assert len(state["head"]["weight"]) <= n
    assert set(state["memory"]["columns"]["y"].tolist()) <= set(range(n))
    assert set(state["memory"]["columns"]["id"].tolist()) <= set(state["taught"]["ids"].tolist())
    assert len(state["taught"]["ids"]) == version.info["taught"]


@pytest.mark.parametrize("quick", [False, True])
def test_a_lesson_may_push_the_last_exemplar_out_of_a_small_memory(
    world: World, tmp_path: Path, quick: bool
) -> None:
    small = ("--backbone", "small_cnn", "--image-size", "8", "--memory", "4")
    shutil.move(world.one / "blue", world.two)
    done("teach", tmp_path / "m", world.one, *small)
    before = Store(tmp_path / "m").current()
    outcome = done("teach", tmp_path / "m", world.two, *(["--quick"] if quick else []), "--json").document()
    after = Store(tmp_path / "m").current()
    assert before is not None and after is not None
    assert before.info["memory"]["exemplars"] > after.info["memory"]["exemplars"] == 0
    assert outcome["published"] and outcome["verdict"]["n"] == before.info["memory"]["exemplars"]


def test_forget_leaves_nothing_of_a_class_in_the_version_in_use(world: World) -> None:
    state, _ = Store(world.base).load()
    lost = state["taught"]["ids"][state["taught"]["labels"] == state["app"]["names"].index("red")]
    assert len(lost) == 10
    answer = done("forget", world.base, "red")
    assert "has learned from its photos stays" in answer.out and "Older versions still hold the class" in answer.out
    assert_unknown(world.base, "red")
    state, version = Store(world.base).load()
    held = torch.cat([state["taught"]["ids"], state["memory"]["columns"]["id"]])
    assert not torch.isin(lost, held).any() and len(state["taught"]["ids"]) == 20
    assert set(traces(world.base, '"red"')) & {f"versions/{version.number:06d}.json", "CURRENT"} == set()
    shutil.rmtree(world.one / "red")
    assert done("evaluate", world.base, world.one, "--json").document()["accuracy"] >= 0.9


def test_the_accuracy_of_more_is_not_told_of_what_is_left(world: World) -> None:
    def told() -> tuple[float | None, str]:
        return done("status", world.base, "--json").document()["accuracy"], done("status", world.base).out

    done("teach", world.base, world.two, "--force")
    accuracy, text = told()
    assert accuracy is not None and "on held-out photos of the classes before" in text
    for deed in (("unteach", world.one / "red" / "1.png"), ("forget", "red"), ("forget", "red", "--everywhere")):
        done(deed[0], world.base, *deed[1:])
        accuracy, text = told()
        assert accuracy is None and "not measured in this version" in text
        if deed[-1] != "--everywhere":
            done("undo", world.base)
            assert told()[0] is not None
    done("teach", world.base, world.one, "--force")
    assert told()[0] is not None


def test_forget_everywhere_leaves_nothing_of_a_class_under_any_of_its_names(world: World) -> None:
    done("teach", world.base, world.two, "--quick", "--force")
    done("rename", world.base, "red", "scarlet")
    done("rename", world.base, "blue", "red")  # another class under a name that is free again
    answer = done("forget", world.base, "scarlet", "--everywhere")
    assert "is forgotten in all versions" in answer.out and "Older versions" not in answer.out
    assert traces(world.base, "scarlet") == []
    names = {number: Store(world.base).load(number)[1].info["classes"] for number in versions(world.base)}
    assert names == {
        1: ["blue", "green"],
        3: ["blue", "green", "yellow"],
        4: ["blue", "green", "yellow"],
        5: ["red", "green", "yellow"],
    }
    for number in versions(world.base):
        assert_unknown(world.base, "scarlet", number)
    for _ in range(3):
        done("undo", world.base)
    shutil.rmtree(world.test / "red")
    shutil.rmtree(world.test / "yellow")
    assert done("evaluate", world.base, world.test, "--json").document()["accuracy"] >= 0.9


def test_forget_everywhere_removes_versions_that_knew_nothing_else(world: World, tmp_path: Path) -> None:
    model, alone, both = tmp_path / "grown", tmp_path / "alone", tmp_path / "both"
    shutil.copytree(world.one / "red", alone / "vermilion")
    shutil.copytree(world.one / "blue", both / "blue")
    shutil.copytree(world.one / "green", both / "green")
    done("teach", model, alone, *SMALL)
    done("teach", model, both, "--force")
    done("forget", model, "vermilion", "--everywhere")
    assert traces(model, "vermilion") == [] and versions(model) == [2]
    assert_unknown(model, "vermilion", 2)
    answer = triphase("undo", model)
    assert answer.status == 1 and "no longer kept" in answer.err
    done("teach", model, world.two, "--force")
    assert versions(model) == [2, 3]


def test_forget_everywhere_never_removes_the_version_in_use(world: World, tmp_path: Path) -> None:
    model, alone = tmp_path / "single", tmp_path / "alone"
    shutil.copytree(world.one / "red", alone / "red")
    done("teach", model, alone, *SMALL)
    done("rename", model, "red", "vermilion")
    done("undo", model)
    before = content(model)
    answer = triphase("forget", model, "vermilion", "--everywhere")
    assert answer.status == 1 and "vermilion is called red now: give that name" in answer.err
    answer = triphase("forget", model, "red", "--everywhere")
    assert answer.status == 1 and "is the only class: to forget everything, delete" in answer.err
    assert content(model) == before


@pytest.mark.parametrize("learner", ["tpc", "slda", "ncm"])
def test_a_quick_lesson_that_is_not_possible_leaves_nothing_behind(
    learner: str, world: World, tmp_path: Path
) -> None:
    answer = triphase("teach", tmp_path / "new", world.one, *SMALL, "--quick", "--learner", learner)
    assert answer.status == 1 and "has one speed; --quick needs anchored" in answer.err
    assert not (tmp_path / "new").exists()


def test_forget_everywhere_also_cleans_a_history_whose_versions_are_gone(world: World) -> None:
    done("forget", world.base, "red")
    shutil.rmtree(world.two / "red")
    done("teach", world.base, world.two, "--force", "--keep", 1)
    assert "red" in (world.base / "history.jsonl").read_text()
    done("forget", world.base, "red", "--everywhere")
    assert "red" not in re.findall(r"[a-z]+", (world.base / "history.jsonl").read_text())


def test_a_class_is_looked_up_in_old_versions_without_reading_them(world: World) -> None:
    done("teach", world.base, world.two, "--force")
    store = Store(world.base)
    old = {part.sha256 for part in store.version(1).parts.values()}
    for lost in old - {part.sha256 for part in store.version().parts.values()}:
        (world.base / "parts" / f"{lost}.safetensors").unlink()
    answer = triphase("forget", world.base, "purple", "--everywhere")
    assert answer.status == 1 and "No class is called 'purple'" in answer.err


def test_photos_can_be_untaught_after_a_class_was_forgotten(world: World, tmp_path: Path) -> None:
    some = world.one / "green"
    for learner in ("slda", "anchored"):
        for replay in ("none", "latent"):
            model = tmp_path / f"{learner}-{replay}"
            done("teach", model, world.one, *SMALL, "--replay", replay, "--learner", learner)
            done("forget", model, "red")
            shutil.copytree(some, tmp_path / "some" / model.name / "green")
            for photo in sorted((tmp_path / "some" / model.name / "green").iterdir())[5:]:
                photo.unlink()
            done("unteach", model, tmp_path / "some" / model.name)
            closed = Model.from_state(Store(model).load()[0]).learner.closed_form
            assert isinstance(closed, SLDA)
            between = float((closed.means.square().sum(1) * closed.counts).sum())
            assert float(closed.products.trace()) >= between * (1 - 1e-9), "a spread is never negative"
            done("predict", model, some / "9.png")  # it hung once


def test_what_the_untouched_network_sees_in_exemplars_is_computed_once(world: World) -> None:
    def kept() -> dict[int, torch.Tensor]:
        part = Store(world.base).load()[0]["exemplars"]
        assert part["ids"].tolist() == exemplars(world.base).tolist()
        return dict(zip(part["ids"].tolist(), part["features"], strict=True))

    before = kept()
    with patch("triphase.app.model.features", wraps=features) as computed:
        done("teach", world.base, world.two, "--force")
    after = kept()
    fresh = after.keys() - before.keys()
    assert fresh and before.keys() & after.keys()
    assert len(fresh) in [len(call.args[1]) for call in computed.call_args_list]
    assert all(torch.equal(after[id_], before[id_]) for id_ in before.keys() & after.keys())
    model = Model.from_state(Store(world.base).load()[0])
    _, _, stored = model.exemplars()
    anew = model.closed_form_features(model.latents_of(stored)).half()
    assert torch.equal(torch.stack(list(after.values())), anew)
    red = {id_ for id_, label in model.taught.items() if model.names[label] == "red"}
    done("forget", world.base, "red")
    assert kept().keys() == after.keys() - red


def test_parts_that_do_not_belong_together_make_no_model(world: World) -> None:
    state, _ = Store(world.base).load()
    app, taught = state["app"], state["taught"]
    for wrong in (
        {"app": app | {"names": ["blue", "green"]}},
        {"app": app | {"names": ["blue", "green", "green"]}},
        {"app": app | {"names": [*app["names"], "pink"]}},
        {"app": app | {"exemplar_correct": app["exemplar_correct"][1:]}},
        {"taught": taught | {"labels": taught["labels"][1:]}},
        {"taught": taught | {"labels": taught["labels"] + 1}},
        {"head": {"weight": state["head"]["weight"][:, 1:]}},
        {"known": [0, 1]},
        {"exemplars": {name: part[1:] for name, part in state["exemplars"].items()}},
        {"exemplars": state["exemplars"] | {"features": state["exemplars"]["features"][1:]}},
    ):
        with pytest.raises(CorruptState):
            Model.from_state(state | wrong)


def test_forget_refuses_what_it_cannot_do(world: World) -> None:
    before = content(world.base)
    answer = triphase("forget", world.base, "pink")
    assert answer.status == 1 and "No class is called 'pink'; there are blue, green, red." in answer.err
    assert content(world.base) == before
    done("forget", world.base, "red")
    done("forget", world.base, "blue")
    answer = triphase("forget", world.base, "green", "--everywhere")
    assert answer.status == 1 and "is the only class" in answer.err


def test_a_model_that_stores_no_sample_still_knows_fresh_photos_of_its_classes(
    world: World, tmp_path: Path
) -> None:
    shutil.rmtree(world.test / "yellow")
    for learner in ("anchored", "slda"):
        done("teach", tmp_path / learner, world.one, *SMALL, "--replay", "none", "--learner", learner)
        document = done("evaluate", tmp_path / learner, world.test, "--json").document()
        assert document["taught"] == 0 and document["unknown_rate"] <= 0.5  # it was 1 once
    assert done("status", tmp_path / "slda", "--json").document()["unknown"]
    answer = done("forget", tmp_path / "slda", "red")  # nothing is left to judge by until the next lesson
    assert "From now on, no answer is unknown until there is a lesson again." in answer.out
    assert "no answer is unknown" in done("status", tmp_path / "slda").out
    shutil.rmtree(world.test / "red")
    assert done("evaluate", tmp_path / "slda", world.test, "--json").document()["unknown_rate"] == 0


def test_unteach_forgets_a_class_of_which_only_photos_for_measuring_are_left(world: World, tmp_path: Path) -> None:
    apart = set(Store(world.base).load()[0]["taught"]["held_out"].tolist())
    photos = scan(world.one, 8)
    for file, id_ in zip(photos.paths, photos.ids.tolist(), strict=True):
        if file.parent.name == "red" and id_ not in apart:
            (tmp_path / "wrong" / "red").mkdir(parents=True, exist_ok=True)
            shutil.copy(file, tmp_path / "wrong" / "red")
    said = " ".join(done("unteach", world.base, tmp_path / "wrong").out.split())
    assert "red has no photo left that it was learned from, so the class is forgotten" in said
    assert done("status", world.base, "--json").document()["classes"] == ["blue", "green"]
    again = done("teach", world.base, world.one, "--json").document()
    assert again["learned"] == 10 and again["known_already"] == 20


def test_all_but_the_photos_for_measuring_cannot_be_untaught(world: World, tmp_path: Path) -> None:
    apart = set(Store(world.base).load()[0]["taught"]["held_out"].tolist())
    photos = scan(world.one, 8)
    for file, id_ in zip(photos.paths, photos.ids.tolist(), strict=True):
        if id_ in apart:
            file.unlink()
    answer = triphase("unteach", world.base, world.one)
    assert answer.status == 1 and "all the photos that it was taught" in answer.err


def test_unteach_also_thins_the_aggregates_of_a_model_that_stores_no_sample(world: World, tmp_path: Path) -> None:
    model, some = tmp_path / "new", tmp_path / "some"
    done("teach", model, world.one, *SMALL, "--replay", "none")
    before = Model.from_state(Store(model).load()[0]).calibration.moments
    photos = sorted((world.one / "red").iterdir())[:3]
    (some / "red").mkdir(parents=True)
    for photo in photos:
        shutil.copy(photo, some / "red")
    done("unteach", model, some)
    after = Model.from_state(Store(model).load()[0])
    red = after.names.index("red")
    for was, now in zip(before, after.calibration.moments, strict=True):
        gone = was.n - now.n
        assert gone[red] == 3 and gone.sum() == 3
        torch.testing.assert_close(now.mean, was.mean)


@pytest.mark.parametrize("command", [("forget", "red"), ("unteach", "one/red/1.png")])
def test_what_is_taken_back_is_not_kept_by_an_interrupted_lesson(
    command: tuple[str, str], world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(world.one.parent)
    (world.base / "work").mkdir()
    (world.base / "work" / "lesson.json").write_text("{}")
    done(command[0], world.base, command[1])
    assert not (world.base / "work").exists()


def test_a_renamed_class_keeps_what_it_learned(world: World) -> None:
    answer = done("rename", world.base, "red", "rouge")
    assert "red is called rouge in version 2" in answer.out
    (world.test / "red").rename(world.test / "rouge")
    shutil.rmtree(world.test / "yellow")
    assert done("evaluate", world.base, world.test, "--json").document()["per_class"]["rouge"] >= 0.8
    for new, part in (
        ("blue", "There is a class 'blue' already"),
        ("Unknown", "cannot be called"),
        ("ｕｎｋｎｏｗｎ", "unlike any class"),
        (" ", "cannot"),
        (os.fsdecode(b"\xff"), "not valid UTF-8"),
        ("a/b", "no folder can have a /"),
    ):
        refused = triphase("rename", world.base, "green", new)
        assert refused.status == 1 and part in refused.err


@pytest.mark.parametrize("command", [("rename", "café", "tea"), ("forget", "café")])
def test_a_class_is_found_however_its_accents_are_written(command: tuple[str, ...], world: World) -> None:
    done("rename", world.base, "red", unicodedata.normalize("NFD", "café"))
    deed, *names = (unicodedata.normalize("NFD", word) for word in command)
    classes = done(deed, world.base, *names, "--json").document()["classes"]
    assert classes == ["blue", "green", *names[1:]]


def test_photos_are_taken_back_by_their_content(world: World) -> None:
    wrong = world.one.parent / "wrong" / "whatever"
    wrong.mkdir(parents=True)
    for number in (1, 2, 3):
        shutil.copy(world.one / "red" / f"{number}.png", wrong / f"copy{number}.png")
    document = done("unteach", world.base, wrong.parent, "--json").document()
    assert (document["version"], document["images"]) == (2, 3)
    counts = {c["name"]: c["taught"] for c in done("classes", world.base, "--json").document()["classes"]}
    assert counts == {"blue": 10, "green": 10, "red": 7}
    state, _ = Store(world.base).load()
    assert len(state["memory"]["columns"]["id"]) == 27
    held_out = int((state["memory"]["columns"]["split"] == 1).sum())
    assert float(state["closed_form_statistics"]["counts"].sum()) == 27 - held_out, "exemplars are in no statistic"
    again = triphase("unteach", world.base, wrong)  # also a folder without class folders
    assert again.status == 1 and "nothing to take back" in again.err
    single, torn = world.one / "blue" / "1.png", wrong / "torn.png"
    torn.write_bytes(b"\xff\xd8\xff and no more")  # never taught: it matters to nobody
    assert done("unteach", world.base, single, torn, single, "--json").document()["images"] == 1
    done("undo", world.base)
    everything = triphase("unteach", world.base, world.one)
    assert everything.status == 1 and "all the photos that it was taught" in everything.err
    assert done("teach", world.base, world.one, "--force", "--json").document()["learned"] == 3


# --- mistakes ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["teach", "new", "nowhere"], "There is no folder nowhere"),
        (["teach", "new", "one/red/1.png"], "is a file; give the folder"),
        (["teach", "new", "one/red"], "is not in a class folder"),
        (["teach", "new", "one", "--backbone", "lenet"], "No backbone is called 'lenet'"),
        (["teach", "new", "one", "--learner", "ranpac"], "none could be forgotten"),
        (["teach", "new", "one", "--memory", "lots"], "memory is a number of samples"),
        (
            ["teach", "new", "one", "--memory", "9" * 400],
            "memory is at most 1,000,000,000,000,000 samples or bytes",
        ),
        (["teach", "new", "one", "--memory", "9" * 5000], "memory is at most"),
        (["teach", "new", "one", "--memory", "9" * 400 + "GB"], "memory is at most"),
        (["teach", "new", "one", "--image-size", "60000"], "An image is 1 to 1024 pixels wide and high, not 60000"),
        (["teach", "new", "one", "--max-drop", "2"], "max_drop must be in [0, 1)"),
        (
            ["teach", "new", "one", "--backbone", "small_cnn", "--memory", "2"],
            "A memory of 2 cannot hold 3 classes",
        ),
        (["teach", "one", "two"], "is not a model, it holds"),
        (["predict", "base", "nofile.png"], "There is no file nofile.png"),
        (["predict", "base", "one"], "one is a folder"),
        (["predict", "base", "broken.png"], "broken.png cannot be read as an image"),
        (["predict", "new", "one/red/1.png"], "new holds no model; teach one with: triphase teach new PHOTOS"),
        (["evaluate", "base", "nowhere"], "There is no folder nowhere"),
        (["status", "new"], "new holds no model"),
        (["history", "new"], "new holds no model"),
        (["classes", "new"], "new holds no model"),
        (["undo", "new"], "new holds no model"),
        (["rename", "new", "a", "b"], "new holds no model"),
        (["forget", "new", "a"], "new holds no model"),
        (["unteach", "new", "one"], "new holds no model"),
        (["unteach", "base", "one", "nowhere"], "There is no file nowhere"),
        (["unteach", "base", "pipe"], "pipe is neither a file nor a folder"),
        (["unteach", "base", "two", "test"], "No photo in two and 1 other place was taught to this model"),
    ],
)
def test_a_mistake_gets_a_sentence_and_leaves_nothing_behind(
    words: list[str], part: str, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(world.one.parent)
    Path("broken.png").write_bytes(b"\x89PNG\r\n\x1a\n and no more")
    os.mkfifo("pipe")
    before = content(world.base)
    answer = triphase(*words)
    assert answer.status == 1 and part in answer.err and answer.out == ""
    assert answer.err.splitlines()[-1].startswith("error: ")
    assert not Path("new").exists() and content(world.base) == before
    assert not list(world.one.glob("LOCK"))


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["new", "one", "--backbone", "lenet"], "No backbone is called 'lenet'"),
        (["new", "one", "--learner", "ranpac"], "none could be forgotten"),
        (["new", "one", "--learner", "slda", "--quick"], "has one speed"),
        (["new", "one", "--memory", "lots"], "memory is a number of samples"),
        (["new", "one", "--max-drop", "2"], "max_drop must be in [0, 1)"),
        (["new", "one", "--backbone", "small_cnn", "--memory", "2"], "A memory of 2 cannot hold 3 classes"),
        (["base", "two", "--replay", "none"], "made with replay latent, not none"),
        (["one", "two"], "is not a model, it holds"),
        (["one/red/1.png", "two"], "is a file, and a model is a folder"),
    ],
)
def test_a_dry_run_refuses_what_the_lesson_would_refuse(
    words: list[str], part: str, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(world.one.parent)
    before = content(world.one.parent)
    for more in ([], ["--dry-run"]):
        answer = triphase("teach", *words, *more)
        assert answer.status == 1 and part in answer.err and answer.out == ""
    assert content(world.one.parent) == before


def test_a_folder_that_was_renamed_needs_no_more_room(world: World, tmp_path: Path) -> None:
    model = tmp_path / "new"
    done("teach", model, world.one, *SMALL[:-1], 3)
    (world.one / "red").rename(world.one / "crimson")
    plan = done("teach", model, world.one, "--dry-run", "--json").document()
    assert plan["corrected"] == 10 and plan["new_classes"] == ["crimson"]
    assert done("teach", model, world.one, "--force", "--json").document()["published"]


def test_a_full_disk_gets_a_sentence(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(folder: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "walk", refuse)
    answer = triphase("status", world.base)
    assert (answer.status, answer.err) == (1, "error: No space left on device.\n")


def test_a_file_that_may_not_be_read_gets_a_sentence(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(folder: Path) -> None:
        raise PermissionError(13, "Permission denied", str(folder / "parts"))

    monkeypatch.setattr(os, "walk", refuse)
    answer = triphase("status", world.base)
    assert answer.status == 1 and answer.err == f"error: {world.base / 'parts'}: Permission denied.\n"


@pytest.mark.parametrize("words", [["teach"], ["predict", "m"], ["teach", "m", "p", "--replay", "x"], ["forgett"]])
def test_wrong_usage_has_a_status_of_its_own(words: list[str]) -> None:
    assert triphase(*words).status == 2


def test_a_lesson_with_mostly_wrong_labels_is_refused_though_guessing_would_do_worse(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def right(share: int) -> Any:
        def correct_among(logits: torch.Tensor, y: torch.Tensor, classes: Sequence[int]) -> torch.Tensor:
            asked.append(len(y))
            return torch.arange(500) < share

        return correct_among

    model = Model.from_state(Store(world.base).load()[0])
    baseline = replace(Baseline.of(model), correct=torch.arange(100) < 80)
    images = scan(world.one, model.size, Budget(1 << 30)).images
    lesson_of_own = Lesson(Experience(2, images, torch.ones(len(images), dtype=torch.bool)), model.names)
    monkeypatch.setattr(evaluation, "correct_among", right(150))  # of 10 classes: three times what guessing does
    assert evaluation._labels_mixed_up(model, lesson_of_own, baseline) and len(asked) == 1, "the few say enough"
    monkeypatch.setattr(evaluation, "correct_among", right(400))
    assert not evaluation._labels_mixed_up(model, lesson_of_own, baseline)


def test_one_photo_of_each_class_is_enough_to_begin_with(world: World, tmp_path: Path) -> None:
    for colour in COLOURS:
        paint(tmp_path / "one" / colour, colour, range(1))
    answer = done("teach", tmp_path / "new", tmp_path / "one", *SMALL)
    assert answer.out.count("not checked") == 4 and "Learned 4 photos" in answer.out
    assert done("evaluate", tmp_path / "new", world.test, "--json").document()["accuracy"] >= 0.5
    more = done("teach", tmp_path / "new", world.one, "--json").document()
    assert more["published"] and more["learned"] == 27, "the photos with number 0 had been taught"


def test_classes_may_be_of_very_different_size(world: World, tmp_path: Path) -> None:
    place = tmp_path / "uneven"
    paint(place / "red", "red", range(1000, 1200))
    paint(place / "blue", "blue", range(1))
    document = done("teach", tmp_path / "new", place, *SMALL, "--json").document()
    assert document["published"] and document["learned"] == 201
    for colour in ("green", "yellow"):
        shutil.rmtree(world.test / colour)
    per_class = done("evaluate", tmp_path / "new", world.test, "--json").document()["per_class"]
    assert min(per_class.values()) >= 0.8, "one photo is not drowned by 200"


@pytest.mark.slow
def test_ten_thousand_photos_are_one_lesson(world: World, tmp_path: Path) -> None:
    for colour, n in {"red": 5000, "green": 4998, "blue": 1, "yellow": 1}.items():
        paint(tmp_path / "many" / colour, colour, range(1000, 1000 + n))
    document = done("teach", tmp_path / "new", tmp_path / "many", *SMALL, "--json").document()
    assert document["published"] and document["learned"] == 10_000
    assert done("status", tmp_path / "new", "--json").document()["memory"]["samples"] <= 120
    per_class = done("evaluate", tmp_path / "new", world.test, "--json").document()["per_class"]
    assert min(per_class["red"], per_class["green"]) >= 0.8 and len(per_class) == 4


def test_broken_photos_are_refused_by_name_or_skipped_and_counted(world: World, tmp_path: Path) -> None:
    (world.two / "red" / "torn.png").write_bytes((world.two / "red" / "10.png").read_bytes()[:60])
    answer = triphase("teach", world.base, world.two)
    assert answer.status == 1 and "torn.png" in answer.err and "--skip-bad" in answer.err
    document = done("teach", world.base, world.two, "--skip-bad", "--force", "--json").document()
    assert document["learned"] == 15 and len(document["skipped"]) == 1 and "torn.png" in document["skipped"][0]
    (world.test / "red" / "torn.png").write_bytes(b"\xff\xd8\xff")
    assert "Skipped 1 photo:" in done("evaluate", world.base, world.test, "--skip-bad").out
    assert "Skipped 1 photo:" in done("teach", world.base, world.two, "--skip-bad").out


def test_a_second_writer_is_refused_and_readers_are_not(world: World) -> None:
    with Store(world.base).lock():
        for command in (("teach", world.two), ("undo",), ("forget", "red"), ("rename", "red", "x")):
            answer = triphase(command[0], world.base, *command[1:])
            assert answer.status == 1 and "is at work in" in answer.err
        done("predict", world.base, world.test / "red" / "100.png")
        done("status", world.base)


def test_ctrl_c_says_how_to_go_on(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*arguments: object) -> None:
        raise KeyboardInterrupt

    before = content(world.base)
    monkeypatch.setattr(lesson, "learn", interrupted)
    answer = triphase("teach", world.base, world.two)
    assert answer.status == 1 and "Stopped; the same command goes on from here." in answer.err
    left = {name: blob for name, blob in content(world.base).items() if not name.startswith("work/")}
    assert left == before


def test_help_begins_with_what_most_people_need() -> None:
    text = done("--help").out
    order = ["teach", "predict", "evaluate", "status", "history", "undo", "forget", "demo", "bench"]
    places = [re.search(rf"^│ {name} ", text, re.MULTILINE) for name in order]
    assert all(places) and [p.start() for p in places if p] == sorted(p.start() for p in places if p)
    for command in ("teach", "predict", "evaluate", "classes", "rename", "unteach"):
        assert "MODEL" in done(command, "--help").out
    for command in ("forget", "unteach"):
        assert "a later `teach` of it learns" in done(command, "--help").out


def test_the_terminal_shows_how_far_a_lesson_is() -> None:
    progress = LessonView(quiet=True)
    assert "Preparing" in str(progress.draw())
    progress.watch({"event": "scan", "done": 32, "total": 64})
    assert "32 of 64 photos" in str(progress.draw()) and str(progress.draw()).count("█") == 12
    progress.watch({"event": "step", "phase": "II", "epoch": 2, "epochs": 4, "step": 1, "steps": 1})
    assert "Phase II: learning all classes" in str(progress.draw()) and "epoch 2 of 4" in str(progress.draw())


# --- interruptions ----------------------------------------------------------------------------------------------


class Nursery:
    """Runs commands in processes forked from one that has imported torch already, and kills them as told."""

    def __init__(self) -> None:
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        pipe = subprocess.PIPE
        self.process = subprocess.Popen([sys.executable, __file__], stdin=pipe, stdout=pipe, env=environment)

    def run(self, *arguments: object, deed: str = "", name: str = "", n: int = 1) -> str:
        """What the command told, once it has ended well or was killed at the n-th deed to a file of that name."""
        assert self.process.stdin is not None and self.process.stdout is not None
        job = {"argv": [str(argument) for argument in arguments], "death": [deed, name, n]}
        self.process.stdin.write((json.dumps(job) + "\n").encode())
        self.process.stdin.flush()
        status, told = json.loads(self.process.stdout.readline())
        assert status == (-signal.SIGKILL if deed else 0), told
        return str(told)

    def close(self) -> None:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait()


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    one = Nursery()
    yield one
    one.close()


@pytest.fixture(scope="module")
def uninterrupted(original: World, nursery: Nursery, tmp_path_factory: pytest.TempPathFactory) -> Path:
    model = tmp_path_factory.mktemp("uninterrupted") / "model"
    shutil.copytree(original.base, model)
    nursery.run("teach", model, original.two, "--force")
    return model


@pytest.mark.parametrize(
    ("options", "deaths"),
    [
        ([], [("replaced", "index.json", 2), ("half", "csf", 3), ("replaced", "index.json", 5)]),
        ([], [("open", "lesson.json", 1), ("replace", "index.json", 1), ("half", "memory", 2)]),
        ([], [("replace", "000002.json", 1), ("half", "CURRENT", 1), ("replaced", "CURRENT", 1)]),
        (["--quick"], [("replaced", "CURRENT", 1), ("replaced", "index.json", 3), ("replaced", "CURRENT", 1)]),
    ],
    ids=["in training", "at the start", "in publishing", "between the two speeds"],
)
def test_killed_at_any_instant_the_same_command_ends_the_same(
    options: Sequence[str],
    deaths: Sequence[tuple[str, str, int]],
    world: World,
    nursery: Nursery,
    uninterrupted: Path,
) -> None:
    command = ("teach", world.base, world.two, "--force", *options)
    for deed, name, n in deaths:
        nursery.run(*command, deed=deed, name=name, n=n)
        done("status", world.base)
    nursery.run(*command)
    assert_same_state(world.base, uninterrupted)
    assert not (world.base / "work").exists()
    assert [event["event"] for event in Store(world.base).history()].count("taught") == 2


def test_the_first_lesson_may_be_quick_and_goes_on_after_a_crash_with_the_options_it_had(
    world: World, nursery: Nursery, tmp_path: Path
) -> None:
    model, folder = tmp_path / "new", world.one
    told = nursery.run("teach", model, folder, *SMALL, "--quick", deed="replaced", name="index.json", n=2)
    assert versions(model) == [1], told
    assert done("evaluate", model, folder, "--json").document()["accuracy"] >= 0.9
    answer = triphase("undo", model)
    assert answer.status == 1 and "is the first: nothing to undo" in answer.err
    other = triphase("teach", model, world.two)
    assert other.status == 1 and "not all its photos are in" in other.err and "start again: delete" in other.err
    refused = triphase("teach", model, folder, "--memory", "60")
    assert refused.status == 1 and "made with memory 120" in refused.err
    done("teach", model, folder)
    assert [event["event"] for event in Store(model).history()] == ["taught_quick", "taught"]
    assert_same_state(model, world.base)


def test_a_quick_lesson_that_grew_takes_the_place_of_its_first_half(world: World, nursery: Nursery) -> None:
    command = ("teach", world.base, world.two, "--quick", "--force", "--keep", "2")
    nursery.run(*command, deed="replaced", name="index.json", n=2)
    assert versions(world.base) == [1, 2]
    shutil.copy(next((world.test / "yellow").iterdir()), world.two / "yellow" / "one-more.png")
    done(*command)
    assert "Back at version 1" in done("undo", world.base).out, "never at half a lesson"


def test_half_a_lesson_answers_and_must_be_finished_or_taken_back(
    world: World, nursery: Nursery, uninterrupted: Path
) -> None:
    command = ("teach", world.base, world.two, "--quick", "--force")
    nursery.run(*command, deed="replaced", name="index.json", n=2)
    assert versions(world.base) == [1, 2]
    assert done("evaluate", world.base, world.test, "--json").document()["per_class"]["yellow"] >= 0.8
    for words in (("forget", "red"), ("rename", "red", "rot"), ("unteach", world.two)):
        answer = triphase(words[0], world.base, *words[1:])
        assert answer.status == 1 and "in part (--quick): finish it" in answer.err and "triphase undo" in answer.err
    other = triphase("teach", world.base, world.one)
    assert other.status == 1 and "not all its photos are in" in other.err and "triphase undo" in other.err
    done(*command)
    assert_same_state(world.base, uninterrupted)
    assert done("history", world.base, "--json").document()["events"][-1]["event"] == "taught"
    assert versions(world.base) == [1, 3], "the half is in nobody's way"
    assert "Back at version 1" in done("undo", world.base).out


def test_photos_that_changed_meanwhile_start_the_lesson_again(world: World, nursery: Nursery) -> None:
    fresh = world.base.with_name("fresh")
    shutil.copytree(world.base, fresh)
    nursery.run("teach", world.base, world.two, "--force", deed="replaced", name="index.json", n=3)
    paint(world.two / "yellow", "yellow", range(10, 12))
    told = nursery.run("teach", world.base, world.two, "--force")
    assert "The photos or the model changed since a lesson was interrupted: it was started again." in told
    nursery.run("teach", fresh, world.two, "--force")
    assert_same_state(world.base, fresh)


def test_a_lesson_that_was_killed_says_that_it_goes_on(world: World, nursery: Nursery) -> None:
    nursery.run("teach", world.base, world.two, deed="replaced", name="index.json", n=3)
    assert "A lesson was interrupted" in done("status", world.base).out
    assert "Continuing the lesson" in nursery.run("teach", world.base, world.two, "--force")


# What runs in the other process


def _child(job: dict[str, Any], out: int) -> int:
    from test_kill import Death, _Mortal

    for descriptor in (1, 2):
        os.dup2(out, descriptor)
    lesson_checkpoint.SAVE_EVERY, save = 0.0, Checkpoint.save
    patch.object(Checkpoint, "save", lambda self, state, wait: save(self, state)).start()  # none is left out
    _Mortal(Death(*job["death"]))
    sys.argv = ["triphase", *job["argv"]]
    try:
        main()
    except SystemExit as end:
        return int(end.code or 0)
    return 0


def _nursery() -> None:
    """Fork a process for each job; answer its end and what it told."""
    import torch._dynamo  # noqa: F401

    torch.set_num_threads(1)
    while line := sys.stdin.readline():
        reader, writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                status = _child(json.loads(line), writer)
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(status)
        os.close(writer)
        with open(reader, encoding="utf-8") as pipe:
            told = pipe.read()
        print(json.dumps([os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), told]), flush=True)


if __name__ == "__main__":
    _nursery()
