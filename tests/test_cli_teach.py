"""Mistakes get a sentence, and nothing is left behind."""

import json
import os
import re
import shutil
from collections.abc import Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch

from lessons import COLOURS, SMALL, World, content, done, paint, triphase
from triphase.app import evaluation
from triphase.app import teach as lesson
from triphase.app.evaluation import Baseline
from triphase.app.hold_out import Lesson
from triphase.app.model import Model
from triphase.app.scan import scan
from triphase.app.store.versions import Store
from triphase.budget import Budget
from triphase.cli import COMMANDS
from triphase.cli.lesson_view import LessonView
from triphase.data.streams import Experience


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
        (["teach", "new", "one", "--max-drop", "2"], "max_drop must be from 0 to below 1"),
        (
            ["teach", "new", "one", "--backbone", "small_cnn", "--memory", "2"],
            "A memory of 2 cannot hold 3 classes",
        ),
        (["teach", "one", "two"], "is not a model, it holds"),
        (["teach", "base/inner", "one"], "lies in the model"),
        (["teach", "new", "one", "--weights", "nofile"], "efficientnet_lite0 takes no file of weights"),
        (["predict", "base", "nofile.png"], "There is no file nofile.png"),
        (["predict", "base", "broken.png"], "broken.png cannot be read as an image"),
        (["predict", "new", "one/red/1.png"], "new holds no model; teach one with: triphase teach new PHOTOS"),
        (["predict", "one/red/1.png", "one/red/1.png"], "1.png is a file, and a model is a folder"),
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
        (["new", "one", "--max-drop", "2"], "max_drop must be from 0 to below 1"),
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


def test_a_folder_of_folders_of_classes_is_taught_only_by_force(world: World, tmp_path: Path) -> None:
    photos, model = tmp_path / "all", tmp_path / "new"
    photos.mkdir()
    world.one.rename(photos / "one")
    answer = triphase("teach", model, photos, *SMALL)
    assert answer.status == 1 and not model.exists()
    assert f"(blue, green, red) count as class one. If those are the classes, give {photos / 'one'}" in answer.err
    forced = done("teach", model, photos, *SMALL, "--force", "--dry-run", "--json").document()
    assert forced["learn"] == {"one": 30} and "count as class one" in forced["doubtful"][0]
    assert "count as class one" in done("teach", model, photos, *SMALL, "--force", "--dry-run").out


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
    assert 'No answer is "unknown" yet, whatever a photo shows: that takes 4 held-out photos in all.' in answer.out
    assert 'no answer is "unknown" until more photos are taught' in done("status", tmp_path / "new").out
    assert done("evaluate", tmp_path / "new", world.test, "--json").document()["accuracy"] >= 0.5
    more = done("teach", tmp_path / "new", world.one, "--json").document()
    assert more["published"] and more["learned"] == 27, "the photos with number 0 had been taught"
    assert more["notes"] == [] and done("status", tmp_path / "new", "--json").document()["unknown"]


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
    assert answer.status == 1 and "Stopped; run the same command to continue." in answer.err
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
        assert "a later `teach` would learn" in done(command, "--help").out


@pytest.mark.parametrize("name", [name for name in COMMANDS if name not in ("bench", "data")])
def test_examples_in_the_help_fit_a_terminal_of_80_columns(name: str) -> None:
    text = str(getattr(import_module(f"triphase.cli.{COMMANDS[name]}"), name).__doc__)
    examples = text.partition("Examples:")[2].splitlines()
    assert all(len(line.removeprefix("    ")) < 78 for line in examples)


def test_the_terminal_shows_how_far_a_lesson_is() -> None:
    progress = LessonView(quiet=True)
    assert "Preparing" in str(progress.draw())
    progress.on_event({"event": "scan", "done": 32, "total": 64})
    assert "32 of 64 photos" in str(progress.draw()) and str(progress.draw()).count("█") == 12
    progress.on_event({"event": "step", "phase": "II", "epoch": 2, "epochs": 4, "step": 1, "steps": 1})
    assert "Phase II: learning all classes" in str(progress.draw()) and "epoch 2 of 4" in str(progress.draw())


def test_a_backbone_without_weights_says_that_it_is_untrained(world: World, tmp_path: Path) -> None:
    answer = done("teach", tmp_path / "new", world.one, *SMALL, "--json")
    assert "small_cnn comes without pre-trained weights" in answer.err and answer.document()["published"]
    assert "pre-trained" not in done("teach", tmp_path / "new", world.two, "--force").err, "said when it is made"


def test_predict_lists_the_doubtful_ones_first_if_asked(world: World) -> None:
    files = sorted(world.test.rglob("*.png"))
    given, ranked = (
        json.loads(done("predict", world.base, *files, *option, "--json").out)["answers"]
        for option in ((), ("--doubtful-first",))
    )
    assert [answer["file"] for answer in given] == [str(file) for file in files]
    doubt = [answer["doubt"] for answer in ranked]
    assert doubt == sorted(doubt, reverse=True) and len(set(doubt)) > 1
    assert all((answer["doubt"] >= 1) >= (not answer["known"]) for answer in ranked)


def test_predict_answers_every_photo_in_a_folder(world: World, tmp_path: Path) -> None:
    files = sorted(world.test.rglob("*.png"))
    one_by_one, at_once = (
        done("predict", world.base, *paths, "--json").document()["answers"] for paths in (files, [world.test])
    )
    assert at_once == one_by_one
    (tmp_path / "empty").mkdir()
    answer = triphase("predict", world.base, tmp_path / "empty", files[0])
    assert answer.status == 1 and f"{tmp_path / 'empty'} holds no photo" in answer.err
    assert str(files[0]) in answer.out, "the others are answered"


def test_predict_shows_how_far_it_is_where_there_are_many_photos(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "Classifying photos" not in done("predict", world.base, world.test).err
    monkeypatch.setattr("triphase.app.predictor.PIXELS", 1)
    assert done("predict", world.base, world.test).err.count("Classifying photos") == 1
    assert done("predict", world.base, world.test, "--json").err == ""
