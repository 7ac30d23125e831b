"""Photos in `_unlabelled/`: left out, or learned from where the model is sure; never stored, never held out."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from lessons import SMALL, World, assert_same_state, content, done, model_of, paint, triphase
from triphase.app.plan import LessonSettings
from triphase.app.teach import teach
from triphase.data.sources.files import file_id
from triphase.learners.tpc import TPC

PSEUDO = ("--unlabelled", "pseudo")


@pytest.fixture
def photos(world: World, tmp_path: Path) -> Path:
    """The second lesson with 6 photos that nobody has labelled."""
    shutil.copytree(world.two, tmp_path / "photos")
    paint(tmp_path / "photos" / "_unlabelled", "yellow", range(30, 33))
    paint(tmp_path / "photos" / "_unlabelled" / "deep", "blue", range(30, 33))
    return tmp_path / "photos"


@pytest.fixture(autouse=True)
def sure_of_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    """A network that has hardly learned is sure of nothing."""
    original = TPC.__init__

    def init(self: TPC, *arguments: Any, **options: Any) -> None:
        original(self, *arguments, **(options | {"confidence": 0.0}))

    monkeypatch.setattr(TPC, "__init__", init)


def copied(world: World, to: Path) -> Path:
    shutil.copytree(world.base, to)
    return to


def test_ignored_they_change_nothing_and_a_sentence_says_how_to_use_them(
    world: World, photos: Path, tmp_path: Path
) -> None:
    with_them, without = copied(world, tmp_path / "a"), copied(world, tmp_path / "b")
    answer = done("teach", with_them, photos)
    assert "6 photos in _unlabelled were left out; --unlabelled pseudo learns from" in answer.out
    done("teach", without, world.two)
    assert_same_state(with_them, without)


def test_used_they_change_the_network_and_nothing_is_counted(world: World, photos: Path, tmp_path: Path) -> None:
    ignoring, using = copied(world, tmp_path / "a"), copied(world, tmp_path / "b")
    done("teach", ignoring, photos)
    answer = done("teach", using, photos, *PSEUDO)
    assert answer.err.count("Decoding new photos") == answer.err.count("Decoding photos without labels") == 1
    assert (
        "6 photos in _unlabelled: " in answer.out
        and "learned with the class that the model was sure of" in answer.out
    )
    a, b = model_of(ignoring), model_of(using)
    assert not torch.equal(a.network.head.weight, b.network.head.weight)
    assert a.names == b.names and a.taught == b.taught and a.counts() == b.counts()
    assert a.learner.closed_form is not None and b.learner.closed_form is not None
    assert torch.equal(a.learner.closed_form.counts, b.learner.closed_form.counts)
    ids = {file_id(path) for path in (photos / "_unlabelled").rglob("*.png")}
    assert b.memory is not None and not ids & set(b.memory["id"].tolist())


def test_photos_that_are_taught_or_look_like_held_out_ones_are_not_used_as_unlabelled(
    world: World, photos: Path, tmp_path: Path
) -> None:
    model = copied(world, tmp_path / "model")
    shutil.rmtree(photos / "_unlabelled")
    shutil.copytree(world.one / "red", photos / "_unlabelled")  # taught before, some of them held out
    shutil.copy(photos / "yellow" / "1.png", photos / "_unlabelled" / "copy.png")  # labelled in this lesson
    plan = json.loads(done("teach", model, photos, *PSEUDO, "--dry-run", "--json").out)
    assert plan["unlabelled"] == 0 and content(model) == content(world.base)


def test_learners_without_gradient_say_that_they_leave_them_out(world: World, photos: Path, tmp_path: Path) -> None:
    answer = done("teach", tmp_path / "new", photos, *SMALL, "--learner", "slda", *PSEUDO)
    assert "6 photos in _unlabelled were left out: slda learns from labelled photos alone." in answer.out


def test_without_a_new_label_there_is_nothing_to_learn(world: World, tmp_path: Path) -> None:
    model, photos = copied(world, tmp_path / "model"), tmp_path / "photos"
    shutil.copytree(world.one, photos)
    paint(photos / "_unlabelled", "red", range(50, 52))
    answer = done("teach", model, photos, *PSEUDO)
    assert "2 photos in _unlabelled were left out: there is no labelled photo to learn with them." in answer.out
    assert content(model) == content(world.base)


def test_a_folder_of_nothing_but_unlabelled_photos_is_refused(tmp_path: Path) -> None:
    paint(tmp_path / "photos" / "_unlabelled", "red", range(2))
    answer = triphase("teach", tmp_path / "new", tmp_path / "photos", *SMALL, *PSEUDO)
    assert answer.status == 1 and "holds nothing but _unlabelled, and classes need labels" in answer.err
    assert not (tmp_path / "new").exists()


def test_no_class_can_be_called_so(world: World, tmp_path: Path) -> None:
    model = copied(world, tmp_path / "model")
    answer = triphase("rename", model, "red", "_unlabelled")
    assert answer.status == 1 and "that is the folder of photos without a class" in answer.err


def test_a_broken_unlabelled_photo_is_named_or_skipped(world: World, photos: Path, tmp_path: Path) -> None:
    (photos / "_unlabelled" / "broken.png").write_bytes(b"no picture")
    model = copied(world, tmp_path / "model")
    answer = triphase("teach", model, photos, *PSEUDO)
    assert answer.status == 1 and "broken.png" in answer.err and "--skip-bad" in answer.err
    skipping = ("teach", model, photos, *PSEUDO, "--skip-bad")
    planned = done(*skipping, "--dry-run").out
    taught = done(*skipping).out
    assert "6 photos in _unlabelled: " in taught
    assert all("Skipped 1 photo:" in out and "broken.png cannot be read" in out for out in (planned, taught))


@pytest.mark.slow
def test_a_killed_lesson_goes_on_and_ends_the_same(
    world: World, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, killed = copied(world, tmp_path / "whole"), copied(world, tmp_path / "killed")
    settings = LessonSettings(unlabelled="pseudo")
    teach(whole, photos, settings=settings)
    monkeypatch.setattr("triphase.app.lesson_checkpoint.SAVE_EVERY", 0.0)

    def stop(event: dict[str, Any]) -> None:
        if event["event"] == "step" and event["phase"] == "III":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        teach(killed, photos, settings=settings, on_event=stop)
    outcome = teach(killed, photos, settings=settings)
    assert "An interrupted lesson was continued." in outcome.notes
    assert any(note.startswith("6 photos in _unlabelled: ") for note in outcome.notes)
    assert_same_state(killed, whole)
