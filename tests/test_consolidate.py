"""Consolidation: published if held-out photos say so, resumed after a crash, nothing lost otherwise."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from lessons import SMALL, World, content, done, paint, triphase
from triphase.app import consolidate as module
from triphase.app.consolidate import Judgement, consolidate, verdict
from triphase.app.lesson_checkpoint import LessonCheckpoint
from triphase.app.predictor import Predictor
from triphase.app.store.versions import Store
from triphase.errors import CannotWrite


@pytest.fixture
def path(world: World, tmp_path: Path) -> Path:
    return shutil.copytree(world.base, tmp_path / "model")


def always(better: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Judgement, "better_than", lambda self, other: better)


def test_a_better_model_is_published_and_can_be_undone(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    always(True, monkeypatch)
    events: list[dict[str, Any]] = []
    outcome = consolidate(path, on_event=events.append)
    assert outcome.published and outcome.version == 2 and outcome.epochs == module.EPOCHS
    assert {event["phase"] for event in events if event["event"] == "step"} == {"consolidate"}
    assert Predictor.open(path).names == ("blue", "green", "red")
    assert Store(path).history()[-1]["event"] == "consolidated"
    shown = done("status", path).out
    assert f"on {outcome.after.n} held-out photos" in shown and "known before" not in shown
    done("undo", path)
    assert json.loads(done("status", path, "--json").out)["version"] == 1


def test_a_model_that_is_no_better_leaves_everything_as_it_was(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    always(False, monkeypatch)
    before = content(path)
    outcome = consolidate(path)
    assert not outcome.published and outcome.version == 1
    assert content(path) == before


def test_a_consolidation_that_was_published_does_not_fail_for_what_it_leaves_behind(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: object, *_: object) -> None:
        raise CannotWrite("Cannot write there.")

    always(True, monkeypatch)
    monkeypatch.setattr(Store, "prune", full)
    outcome = consolidate(path)
    assert outcome.published and outcome.version == 2
    assert "cannot be removed: Cannot write there." in outcome.notes[-1]


@pytest.mark.parametrize(
    ("correct", "log_likelihood", "better"), [(9, -0.2, True), (8, -0.1, False), (9, -0.4, False), (10, -0.2, True)]
)
def test_better_is_more_likely_and_none_fewer_right(correct: int, log_likelihood: float, better: bool) -> None:
    assert Judgement(correct, 12, log_likelihood).better_than(Judgement(9, 12, -0.3)) is better


@pytest.mark.parametrize(
    ("published", "before", "after", "sentence"),
    [
        (
            True,
            0.8,
            0.9,
            "Better: 90.0 % of the held-out photos are recognised, 80.0 % were before. Version 4 is in use.",
        ),
        (True, 0.8, 0.8, "the right class is more probable. Version 4 is in use."),
        (False, 0.8, 0.7, "No better: 70.0 % of the held-out photos would be recognised, 80.0 % are now."),
        (False, 0.8, 0.9, "but the right class is less probable. Version 4 stays in use."),
    ],
    ids=["more right", "as many right", "fewer right", "less probable"],
)
def test_the_verdict_says_what_decided(published: bool, before: float, after: float, sentence: str) -> None:
    assert sentence in verdict(published, 4, before, after)


def test_killed_at_any_step_the_same_call_ends_with_the_same_model(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    always(True, monkeypatch)
    monkeypatch.setattr("triphase.app.lesson_checkpoint.SAVE_EVERY", 0.0)
    whole = shutil.copytree(path, tmp_path / "whole")
    consolidate(whole)
    seen = 0

    def stop(event: dict[str, Any]) -> None:
        nonlocal seen
        seen += event["event"] == "step"
        if seen == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        consolidate(path, on_event=stop)
    outcome = consolidate(path)
    assert outcome.notes == ["An interrupted consolidation was continued."]
    states = [Store(model).load()[0] for model in (whole, path)]
    for name in ("csf", "head"):
        assert all(bool((states[0][name][key] == value).all()) for key, value in states[1][name].items())


def test_minutes_decide_how_often_it_trains(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    always(False, monkeypatch)
    assert consolidate(path, 1e-9).epochs == 1
    assert consolidate(path, 1e6).epochs == module.MAX_EPOCHS


@pytest.mark.parametrize("minutes", ["0", "-1", "nan", "inf"])
def test_impossible_minutes_get_a_sentence(path: Path, minutes: str) -> None:
    answer = triphase("consolidate", path, "--minutes", minutes)
    assert answer.status == 1 and "minutes must be above 0" in answer.err


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--replay", "none"), "Nothing is stored"),
        (("--learner", "slda"), "The learner slda has nothing to consolidate"),
    ],
)
def test_models_without_anything_to_consolidate_say_so(
    world: World, tmp_path: Path, options: tuple[str, ...], sentence: str
) -> None:
    model = tmp_path / "model"
    done("teach", model, world.one, *SMALL, *options)
    answer = triphase("consolidate", model)
    assert answer.status == 1 and sentence in answer.err


def test_the_command_says_what_it_brought(path: Path) -> None:
    text = done("consolidate", path).out
    assert "24 stored photos" in text and ("Version 2 is in use" in text or "Version 1 stays in use" in text)
    found = json.loads(done("consolidate", path, "--json").out)
    assert 0 <= found["before"]["accuracy"] <= 1 and found["samples"] == 24


def test_a_thorough_lesson_consolidates_at_once_and_keeps_the_versions_asked_for(
    world: World, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    always(True, monkeypatch)
    found = json.loads(done("teach", path, world.two, "--thorough", "--force", "--keep", "1", "--json").out)
    assert found["published"] and found["consolidation"]["epochs"] == module.EPOCHS
    assert Store(path).version_numbers() == [3]


def test_a_thorough_lesson_that_was_stopped_is_shown_and_goes_on_by_the_same_command(
    world: World, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    always(True, monkeypatch)
    with monkeypatch.context() as stopped:
        stopped.setattr(module, "judge", _stop)
        answer = triphase("teach", path, world.two, "--thorough", "--force")
    assert answer.status == 1 and "run the same command to continue" in answer.err
    assert "Version 2 is in use." in answer.out, "the lesson itself is done"
    again = done("teach", path, world.two, "--thorough").out
    assert "All 15 photos have been taught before" in again and "Version 3 is in use." in again


def test_status_names_what_was_interrupted(world: World, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as stopped:
        stopped.setattr(LessonCheckpoint, "saving", _stop)
        assert triphase("consolidate", path).status == 1
    assert "A consolidation is running or was interrupted" in done("status", path).out
    done("rename", path, "red", "rot")  # the interrupted work began with another version
    assert "interrupted" not in done("status", path).out


def _stop(*_: object) -> None:
    raise KeyboardInterrupt


def test_a_thorough_lesson_without_anything_to_consolidate_is_published_with_a_note(tmp_path: Path) -> None:
    paint(tmp_path / "photos" / "red", "red", range(10))
    words = (tmp_path / "model", tmp_path / "photos", *SMALL, "--thorough", "--json")
    found = json.loads(done("teach", *words).out)
    assert found["published"] and found["consolidation"] is None
    assert "Not consolidated: With a single class" in found["notes"][-1]


@pytest.mark.parametrize("options", [("--learner", "slda"), ("--replay", "none")])
def test_a_thorough_lesson_that_cannot_be_consolidated_is_refused_at_once(
    world: World, tmp_path: Path, options: tuple[str, str]
) -> None:
    answer = triphase("teach", tmp_path / "model", world.one, *SMALL, "--thorough", *options)
    assert answer.status == 1 and "consolidate" in answer.err
    assert not (tmp_path / "model").exists()


def test_consolidation_keeps_the_versions_asked_for(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    always(True, monkeypatch)
    done("consolidate", path, "--keep", "1")
    assert Store(path).version_numbers() == [2]
