"""A watched folder: new photos are answered once, unsure ones are kept."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lessons import World, triphase
from serving import Served, serving
from triphase.server import watch
from triphase.server.answering import Answering, Upload
from triphase.server.options import ServeOptions


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "POLL_SECONDS", 0.02)


@pytest.fixture
def folder(world: World, tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "camera"
    (place / "before").mkdir(parents=True)
    shutil.copy(world.test / "red" / "101.png", place / "before" / "old.png")
    yield place


def answers(served: Served, n: int) -> list[dict[str, Any]]:
    """The first n answers, once they are there."""
    seen = (served.get("/watched")["answers"] for _ in range(20_000))
    return next(found for found in seen if len(found) >= n)


def test_new_photos_are_answered_and_old_ones_are_not(world: World, folder: Path) -> None:
    options = ServeOptions(world.base, watch=folder, keep_unsure=1_000_000)
    with serving(options) as served:
        while not (world.base.parent / "base.serve" / "watched.json").exists():
            served.get("/watched")
        (folder / "porch").mkdir()
        shutil.copy(world.test / "red" / "100.png", folder / "porch" / "red.png")
        (folder / "notes.txt").write_text("no photo")
        [answer] = answers(served, 1)
        assert answer["name"] == "porch/red.png" and answer["best"] == "red" and answer["version"] == 1
        (folder / "broken.jpg").write_bytes(b"nonsense")
        broken = answers(served, 2)[0]
        assert broken["name"] == "broken.jpg" and "cannot be read" in broken["error"]
        shutil.copy(world.test / "yellow" / "100.png", folder / "yellow.png")
        yellow = answers(served, 3)[0]
        kept = served.get("/inbox")["photos"]
        if not yellow["known"]:
            assert [photo["id"] for photo in kept] == [yellow["id"]] and kept[0]["name"] == "yellow.png"
    shutil.copy(world.test / "blue" / "100.png", folder / "while-away.png")
    with serving(options) as served:
        assert [answer["name"] for answer in answers(served, 1)] == ["while-away.png"]


def test_watching_needs_a_folder_and_one_model(world: World, tmp_path: Path) -> None:
    answer = triphase("serve", world.base, "--watch", tmp_path / "nowhere", "--no-open", "--port", "0")
    assert answer.status == 1 and "no folder" in answer.err
    answer = triphase("serve", "--models", world.base.parent, "--watch", tmp_path, "--no-open", "--port", "0")
    assert answer.status == 1 and "one model" in answer.err


def test_nothing_is_watched_unless_asked(world: World) -> None:
    with serving(ServeOptions(world.base)) as served:
        assert "--watch DIR" in served.get("/watched", 404)["detail"]


def test_a_photo_that_fails_unexpectedly_is_logged_and_the_others_are_answered(
    world: World, folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    decode = Answering._decode

    def fail(answering: Answering, upload: Upload, size: int) -> object:
        if upload.name == "bad.png":
            raise RuntimeError("nobody expected this")
        return decode(answering, upload, size)

    monkeypatch.setattr(Answering, "_decode", fail)
    with serving(ServeOptions(world.base, watch=folder)) as served:
        while not (world.base.parent / "base.serve" / "watched.json").exists():
            served.get("/watched")
        for name in ("bad", "good"):
            shutil.copy(world.test / "red" / "100.png", folder / f"{name}.png")
        assert [answer["name"] for answer in answers(served, 1)] == ["good.png"]
        shutil.copy(world.test / "red" / "102.png", folder / "later.png")
        assert answers(served, 2)[0]["name"] == "later.png"
    assert "bad.png could not be answered" in caplog.text and "nobody expected this" in caplog.text
