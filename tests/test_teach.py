"""Lessons on the command line: what is learned, held out, judged and published."""

import math
import re
import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from lessons import (
    COLOURS,
    SMALL,
    World,
    assert_same_state,
    content,
    done,
    exemplars,
    flat,
    paint,
    triphase,
    versions,
)
from triphase.app import evaluation, lesson_checkpoint
from triphase.app import teach as lesson
from triphase.app.plan import LessonSettings
from triphase.app.scan import scan
from triphase.app.store.versions import Store
from triphase.checkpoint import Checkpoint
from triphase.errors import CannotWrite


def test_a_first_lesson_makes_a_model(world: World, tmp_path: Path) -> None:
    answer = done("teach", tmp_path / "new", world.one, *SMALL)
    assert re.search(r"red +10 +new +[\d.]+ % +2 *\n", answer.out)
    assert "Learned 30 photos." in answer.out
    assert re.search(r"[0-6] of 6 held-out photos are recognised\. The accuracy of a class says little", answer.out)
    assert re.search(r"Version 1 is in use\. The lesson took [\d.]+ s\.", answer.out)
    stages = ("Scanning photos", "Computing features", "Phase I:", "Phase II:", "Phase III:")
    assert sorted(stages, key=answer.err.index) == list(stages)
    assert_same_state(tmp_path / "new", world.base)
    names = {file.name for file in (tmp_path / "new").rglob("*") if file.is_file()}
    assert all(name in ("CURRENT", "LOCK") or name.endswith((".safetensors", ".json", ".jsonl")) for name in names)


def test_a_lesson_too_small_to_tell_what_is_unknown_says_so_without_memory_too(
    world: World, tmp_path: Path
) -> None:
    paint(tmp_path / "few" / "red", "red", range(3))
    answer = done("teach", tmp_path / "new", tmp_path / "few", *SMALL, "--replay", "none", "--learner", "slda")
    assert 'No answer is "unknown" yet, whatever a photo shows: that takes 4 photos.' in answer.out
    paint(tmp_path / "few" / "blue", "blue", range(3))
    assert 'is "unknown" yet' not in done("teach", tmp_path / "new", tmp_path / "few").out


def test_a_class_of_one_photo_is_learned_and_said_to_be_unchecked(world: World, tmp_path: Path) -> None:
    paint(world.one / "yellow", "yellow", range(1))
    answer = done("teach", tmp_path / "new", world.one, *SMALL)
    assert re.search(r"yellow +1 +new +not checked", answer.out)
    assert "No photo of yellow could be held out: teach more photos" in answer.out


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
    assert "Learned 1 photo; 1 moved from another class; 29 had been taught before." in answer.out
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


def copy_exemplars(world: World, to: Path, classes: set[str]) -> int:
    """Save near-duplicates of the exemplars of classes; how many."""
    photos, held_out = scan(world.one, 8), exemplars(world.base).tolist()
    copied = [path for path, id_ in zip(photos.paths, photos.ids.tolist(), strict=True) if id_ in held_out]
    copied = [path for path in copied if path.parent.name in classes]
    for path in copied:
        near = to / path.parent.name / f"{path.stem}.png"
        near.parent.mkdir(parents=True, exist_ok=True)
        pixels = np.asarray(Image.open(path)).copy()
        pixels[0, 0] ^= 1
        Image.fromarray(pixels).save(near)
    return len(copied)


def test_near_duplicates_of_an_exemplar_are_not_trained_on_even_alone(world: World, tmp_path: Path) -> None:
    copied = copy_exemplars(world, tmp_path / "near", {"red", "green", "blue"})
    before = Store(world.base).load()[0]["memory"]["columns"]
    outcome = done("teach", world.base, tmp_path / "near", "--json").document()
    after = Store(world.base).load()[0]["memory"]["columns"]
    assert outcome["published"] and outcome["learned"] == copied > 1
    assert torch.equal(before["id"][before["split"] == 0], after["id"][after["split"] == 0])
    assert "nothing to learn" in done("teach", world.base, tmp_path / "near").out


def test_a_known_class_whose_photos_are_all_held_out_is_judged_beside_those_that_are_learned(
    world: World, tmp_path: Path
) -> None:
    assert copy_exemplars(world, tmp_path / "lesson", {"red"}) == 2
    shutil.copytree(world.two / "yellow", tmp_path / "lesson" / "yellow")
    shutil.copytree(world.test / "green", tmp_path / "lesson" / "green")
    document = done("teach", world.base, tmp_path / "lesson", "--force", "--json").document()
    counts = {c["name"]: c for c in done("classes", world.base, "--json").document()["classes"]}
    assert document["published"] and not document["labels_mixed_up"]
    assert counts["red"]["stored"] == 8 and counts["red"]["exemplars"] == 4 and counts["yellow"]["taught"] == 10


def test_a_small_memory_keeps_photos_to_measure_with(world: World, tmp_path: Path) -> None:
    for colour in COLOURS:
        paint(tmp_path / "many" / colour, colour, range(200, 240))
    for memory in (16, 40):
        model = tmp_path / f"m{memory}"
        done("teach", model, tmp_path / "many", *SMALL[:4], "--memory", memory)
        kept = {c["name"]: c["exemplars"] for c in done("classes", model, "--json").document()["classes"]}
        assert min(kept.values()) >= memory // 16 and len(kept) == 4
        paint(tmp_path / f"more{memory}" / "red", "red", range(300, 330))
        done("teach", model, tmp_path / f"more{memory}", "--force")
        assert len(exemplars(model)) >= 4


def test_a_dry_run_writes_nothing(world: World, tmp_path: Path) -> None:
    answer = done("teach", tmp_path / "new", world.one, "--dry-run")
    assert re.search(r"blue +10 \(new\)", answer.out)
    assert "30 photos would be learned. Nothing was written." in answer.out
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
    assert "its labels look mixed up" in forced.out


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
        "Classes that lost accuracy: blue 100.0 % -> 0.0 %",
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
    assert "Version 2 is already in use" in answer.err and "Version 3 is in use" in answer.out
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
    assert "cannot be removed: Cannot write there." in outcome.notes[-1]


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
        assert "nothing is stored of any photo" in done("status", model).out
        per_photo = [
            name for name, leaf in flat(state).items() if isinstance(leaf, torch.Tensor) and 45 in leaf.shape
        ]
        assert per_photo == ["/taught/ids", "/taught/labels"], "what is kept of a photo is that it was taught"
    assert done("evaluate", model, world.test, "--json").document()["accuracy"] >= 0.7


def test_half_precision_teaches_another_model_and_an_unfinished_lesson_keeps_its_own(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, half = tmp_path / "whole", tmp_path / "half"
    small = {"backbone": "small_cnn", "image_size": 8, "memory": 120}
    lesson.teach(whole, world.one, small)
    monkeypatch.setattr("triphase.app.lesson_checkpoint.SAVE_EVERY", 0.0)

    def stop(event: dict[str, Any]) -> None:
        if event["event"] == "step" and event["phase"] == "II":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        lesson.teach(half, world.one, small, LessonSettings(precision="bfloat16"), on_event=stop)
    outcome = lesson.teach(half, world.one, small)
    assert "The photos or the model changed since a lesson was interrupted: it was started again." in outcome.notes
    assert_same_state(half, whole)


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


def test_two_lessons_at_once_are_those_one_after_the_other(world: World, tmp_path: Path) -> None:
    """In two threads of one process, on two models: nothing of one is seen by the other."""
    copies = {name: tmp_path / name for name in ("a", "b", "alone-a", "alone-b")}
    for copy in copies.values():
        shutil.copytree(world.base, copy)
    settings = LessonSettings(force=True)
    photos = {"a": world.two, "b": world.test}
    for name, folder in photos.items():
        lesson.teach(copies[f"alone-{name}"], folder, settings=settings)
    with ThreadPoolExecutor(2) as pool:
        lessons = [
            pool.submit(lesson.teach, copies[name], folder, settings=settings) for name, folder in photos.items()
        ]
        assert all(one.result().published for one in lessons)
    for name in photos:
        assert_same_state(copies[name], copies[f"alone-{name}"])
