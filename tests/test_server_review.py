"""Reviewing what was taught, over HTTP."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from lessons import World, content, done, triphase
from serving import Served, serving
from triphase.app.photo_keys import photo_key
from triphase.app.review import Review
from triphase.app.store.versions import Store
from triphase.data.sources.files import file_id
from triphase.server.options import ServeOptions


@pytest.fixture
def served(world: World) -> Iterator[Served]:
    with serving(ServeOptions(world.base)) as served:
        yield served


def test_an_answer_names_the_taught_photos_that_look_like_it(served: Served, world: World) -> None:
    [answer] = served.upload("/predict?nearest=3", [world.test / "green" / "100.png"])["answers"]
    assert len(answer["nearest"]) == 3
    assert {photo["label"] for photo in answer["nearest"]} == {"green"}
    similarities = [photo["similarity"] for photo in answer["nearest"]]
    assert similarities == sorted(similarities, reverse=True)


def test_a_taught_photo_is_not_its_own_neighbour(served: Served, world: World) -> None:
    [answer] = served.upload("/predict?nearest=5", [world.one / "red" / "0.png"])["answers"]
    assert answer["id"] not in [photo["id"] for photo in answer["nearest"]]


def test_the_reports_are_those_of_the_review(served: Served, world: World) -> None:
    review = Review(world.base)
    classes = served.get("/review/classes")
    assert classes["version"] == 1
    assert [(c["name"], c["advice"]) for c in classes["classes"]] == [(c.name, c.advice) for c in review.classes()]
    held_out = served.get("/review/held-out")
    assert held_out["accuracy"]["n"] == len(review.held_out.ids)
    assert sum(map(sum, held_out["matrix"])) == len(review.held_out.ids)
    assert len(held_out["reliability"]) == 10


def test_a_photo_is_moved_and_taken_back_by_id(served: Served, world: World) -> None:
    [red] = served.upload("/predict", [world.one / "red" / "0.png"])["answers"]
    moved = served.post("/move", {"photos": [red["id"]], "label": "blue"})
    assert moved["images"] == 1 and moved["version"] == 2
    assert {c["name"]: c["taught"] for c in served.get("/classes")["classes"]} == {
        "blue": 11,
        "green": 10,
        "red": 9,
    }
    taken = served.post("/take-back", {"photos": [red["id"]]})
    assert taken["images"] == 1
    assert {c["name"]: c["taught"] for c in served.get("/classes")["classes"]} == {
        "blue": 10,
        "green": 10,
        "red": 9,
    }


def test_a_photo_that_was_never_taught_cannot_be_taken_back(served: Served) -> None:
    problem = served.post("/take-back", {"photos": ["0" * 16]}, 422)
    assert "None of these photos was taught" in problem["detail"]


def test_a_confirmed_label_is_no_longer_suspect(world: World, tmp_path: Path) -> None:
    model, photos = tmp_path / "m", tmp_path / "photos"
    for name in ("red", "green"):
        (photos / name).mkdir(parents=True)
        for file in (world.one / name).iterdir():
            (photos / name / file.name).write_bytes(file.read_bytes())
    (photos / "red" / "wrong.png").write_bytes((world.test / "green" / "100.png").read_bytes())
    done("teach", model, photos, "--backbone", "small_cnn", "--image-size", "8", "--memory", "120")
    with serving(ServeOptions(model)) as served:
        found = served.get("/review/suspects")["suspects"]
        assert found and found[0]["label"] == "red" and found[0]["looks_like"] == "green"
        served.post("/review/confirm", {"photos": [found[0]["id"]]}, 204)
        assert found[0]["id"] not in [s["id"] for s in served.get("/review/suspects")["suspects"]]


def test_an_export_is_a_model_that_every_command_works_on(served: Served, world: World, tmp_path: Path) -> None:
    answer = served.client.get(f"{served.model}/export")
    assert answer.headers["content-type"] == "application/zip"
    zipfile.ZipFile(io.BytesIO(answer.content)).extractall(tmp_path)
    assert content(tmp_path / "base") == {
        name: data for name, data in content(world.base).items() if not name.startswith("work/")
    }
    assert Store(tmp_path / "base").version().number == 1
    assert triphase("predict", tmp_path / "base", world.test / "red" / "100.png").status == 0


def test_undo_rename_forget_and_unteach(served: Served, world: World) -> None:
    assert served.get("/versions")["undo_to"] is None
    assert served.post("/rename", {"old": "red", "new": "crimson"})["classes"] == ["blue", "green", "crimson"]
    assert served.get("/versions")["undo_to"] == 1
    assert served.upload("/predict", [world.test / "red" / "100.png"])["answers"][0]["best"] == "crimson"
    assert served.post("/undo")["classes"] == ["blue", "green", "red"]
    assert served.get("/versions")["undo_to"] is None
    assert served.upload("/predict", [world.test / "red" / "100.png"])["answers"][0]["best"] == "red"
    assert served.post("/forget", {"label": "green"})["classes"] == ["blue", "red"]
    assert served.upload("/unteach", [world.one / "red" / "1.png", world.test / "red" / "100.png"])["images"] == 1
    events = [event["event"] for event in served.get("/versions")["events"]]
    assert events == ["taught", "renamed", "undone", "forgot", "untaught"]
    assert "No class is called 'green'" in served.post("/forget", {"label": "green"}, 422)["detail"]
    assert "already" in served.post("/rename", {"old": "red", "new": "blue"}, 422)["detail"]


def test_photos_that_were_never_taught_are_not_taken_back(served: Served, world: World) -> None:
    problem = served.upload("/unteach", [world.test / "red" / "100.png"], 422)
    assert problem["detail"] == "None of these photos was taught to this model: nothing to take back."


def test_all_photos_of_a_class_are_listed_a_page_at_a_time(served: Served, world: World) -> None:
    pages = [served.get("/photos", params={"label": "red", "offset": n, "limit": 4}) for n in (0, 4, 8, 12)]
    assert [len(page["photos"]) for page in pages] == [4, 4, 2, 0] and {page["total"] for page in pages} == {10}
    listed = {photo["id"] for page in pages for photo in page["photos"]}
    assert listed == {photo_key(file_id(file)) for file in (world.one / "red").iterdir()}
    assert "No class is called 'pink'" in served.get("/photos", 422, params={"label": "pink"})["detail"]
