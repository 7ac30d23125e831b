"""Lessons over HTTP: from a draft to answers, watched, stopped and resumed."""

from __future__ import annotations

from pathlib import Path

import pytest

from lessons import World
from serving import SMALL, serving
from triphase.app.predictor import Predictor
from triphase.server.api import ServeOptions


def test_the_first_lesson_makes_a_model_that_answers(world: World, tmp_path: Path) -> None:
    model = tmp_path / "new"
    with serving(ServeOptions(model)) as served:
        assert served.get("")["version"] is None
        served.draft(world.one)
        assert len(served.get("/drafts/next")["photos"]) == 30
        lesson = served.lesson(options=SMALL)
        assert lesson["state"] == "done" and lesson["outcome"]["learned"] == 30
        photo = world.test / "red" / "100.png"
        answer = served.upload("/predict", [photo])["answers"][0]
        [expected] = Predictor.open(model).answer_files([photo])
        assert not isinstance(expected, str)
        assert (answer["label"], answer["best"]) == (expected.label, expected.best)
        assert answer["probability"] == pytest.approx(expected.probability)
        assert [c["name"] for c in served.get("/classes")["classes"]] == ["blue", "green", "red"]
        assert served.get("/drafts/next")["photos"] == []
    assert not list((tmp_path / "new.serve").rglob("*.png"))


def test_events_can_be_read_again_from_any_of_them(world: World) -> None:
    with serving(ServeOptions(world.base)) as served:
        served.draft(world.two)
        lesson = served.lesson()
        events = served.events(lesson["id"])
        assert [event["id"] for event in events] == list(range(1, len(events) + 1))
        assert {"scan", "decode", "begin", "step", "state"} <= {event["event"] for event in events}
        assert served.events(lesson["id"], last=3) == events[3:]
        again = served.client.get(
            f"{served.model}/lessons/{lesson['id']}/events", headers={"Last-Event-ID": str(len(events))}
        )
        assert again.status_code == 204


def test_the_plan_of_a_lesson_says_what_is_new(world: World) -> None:
    with serving(ServeOptions(world.base)) as served:
        served.draft(world.one)
        served.draft(world.two)
        plan = served.post("/lessons/plan", {"draft": "next"})
        assert plan["learn"] == {"red": 5, "yellow": 10}
        assert plan["new_classes"] == ["yellow"] and plan["known_already"] == 30
        assert served.get("/lessons")["lessons"] == []
