"""A model that is moved, deleted or unlocked during a lesson is noticed: nothing is recreated or overwritten."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lessons import SMALL, World, triphase
from triphase.app import lesson_checkpoint, publishing
from triphase.app.evaluation import evaluate as real
from triphase.app.plan import LessonSettings
from triphase.app.teach import teach
from triphase.errors import LockLost


def move(model: Path) -> None:
    model.rename(model.with_name("moved"))


def replace_by_another(model: Path) -> None:
    """Somebody moves the model away and puts a copy in its place, with a lesson of its own under way."""
    shutil.copytree(model, model.with_name("copy"))
    move(model)
    model.with_name("copy").rename(model)


def unlock(model: Path) -> None:
    (model / "LOCK").unlink()


THEFTS: list[Callable[[Path], None]] = [move, shutil.rmtree, unlock, replace_by_another]


def everything(folder: Path) -> dict[str, bytes | None]:
    return {str(p.relative_to(folder)): p.read_bytes() if p.is_file() else None for p in folder.rglob("*")}


@pytest.mark.parametrize("quick", [False, True], ids=["whole lesson", "quick lesson"])
@pytest.mark.parametrize("first", [False, True], ids=["next lesson", "first lesson"])
@pytest.mark.parametrize("theft", THEFTS, ids=lambda theft: theft.__name__)
def test_a_model_that_is_taken_away_is_noticed_at_publishing(
    world: World, monkeypatch: pytest.MonkeyPatch, theft: Callable[[Path], None], first: bool, quick: bool
) -> None:
    """The last moment before anything is published; checkpoints are not due yet."""
    model = world.base.with_name("new") if first else world.base
    seen: dict[str, bytes | None] = {}

    def evaluate(*arguments: Any) -> Any:
        if not seen:
            theft(model)
            seen.update(everything(model.parent))
        return real(*arguments)

    monkeypatch.setattr("triphase.app.teach.evaluate", evaluate)
    photos, options = (world.one, [*SMALL]) if first else (world.two, [])
    answer = triphase("teach", model, photos, "--force", *options, *["--quick"] * quick)
    assert answer.status == 1 and "was moved, deleted or unlocked while" in answer.err
    assert everything(model.parent) == seen


@pytest.mark.parametrize("theft", THEFTS, ids=lambda theft: theft.__name__)
def test_no_checkpoint_is_written_into_what_takes_its_place(
    world: World, monkeypatch: pytest.MonkeyPatch, theft: Callable[[Path], None]
) -> None:
    monkeypatch.setattr(lesson_checkpoint, "SAVE_EVERY", 0.0)
    seen: dict[str, bytes | None] = {}

    def on_event(event: dict[str, Any]) -> None:
        if event["event"] == "step" and not seen:
            theft(world.base)
            seen.update(everything(world.base.parent))

    with pytest.raises(LockLost, match="was moved, deleted or unlocked"):
        teach(world.base, world.two, settings=LessonSettings(force=True), on_event=on_event)
    assert everything(world.base.parent) == seen


@pytest.mark.parametrize("theft", [move, unlock], ids=lambda theft: theft.__name__)
def test_a_model_that_was_brought_back_goes_on(
    world: World, monkeypatch: pytest.MonkeyPatch, theft: Callable[[Path], None]
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(publishing, "_publish", lambda *arguments, **options: theft(world.base))
        triphase("teach", world.base, world.two, "--force")
    if theft is move:
        world.base.with_name("moved").rename(world.base)
    answer = triphase("teach", world.base, world.two, "--force", "--json")
    assert answer.status == 0 and answer.document()["published"]
