"""Consolidation over HTTP: begun, watched, judged, and never lost."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from lessons import World, assert_same_state, done, paint
from serving import TOKEN, Served, serving
from triphase.app.consolidate import Judgement, consolidate
from triphase.server.lesson_records import LessonRecords, Record
from triphase.server.lesson_schemas import Lesson, Source
from triphase.server.options import ServeOptions


def test_a_consolidation_is_watched_and_judged(world: World) -> None:
    with serving(ServeOptions(world.base)) as served:
        begun = served.post("/consolidate", {"minutes": 1}, 202)
        assert (begun["kind"], begun["state"], begun["minutes"]) == ("consolidation", "running", 1)
        assert f"Lesson {begun['id']} of base is running" in served.post("/consolidate", None, 409)["detail"]
        lesson = served.finished(begun["id"])
        outcome = lesson["outcome"]
        assert lesson["state"] == "done" and outcome["samples"] == 24
        assert outcome["verdict"].endswith("in use.") and outcome["version"] == served.get("")["version"]
        events = served.events(begun["id"])
        steps = [event["data"] for event in events if event["event"] == "step"]
        assert {step["phase"] for step in steps} == {"consolidate"} and steps[-1]["seconds_left"] == 0


@pytest.mark.parametrize("minutes", [0, -1, 1e9])
def test_impossible_minutes_are_refused(world: World, minutes: float) -> None:
    with serving(ServeOptions(world.base)) as served:
        assert "minutes" in served.post("/consolidate", {"minutes": minutes}, 400)["detail"]


def test_a_model_without_anything_to_consolidate_says_so(world: World, tmp_path: Path) -> None:
    with serving(ServeOptions(tmp_path / "none")) as served:
        assert "holds no model" in served.post("/consolidate", None, 422)["detail"]
        assert served.get("/lessons")["lessons"] == []
    records = LessonRecords(world.base.parent / "base.serve" / "lessons")
    records.save(record("stopped", kind="lesson"))
    with serving(ServeOptions(world.base)) as served:
        assert "resume it or delete it first" in served.post("/consolidate", None, 409)["detail"]


def record(state: str, kind: str = "consolidation") -> Record:
    lesson = Lesson.model_validate(
        {"id": 1, "kind": kind, "state": state, "source": Source(), "created": "2026-01-01T00:00:00+00:00"}
        | {"quick": False, "force": False}
    )
    return Record(lesson=lesson, settings={"minutes": None}, options={}, folder=None, parent=1)


@pytest.mark.parametrize("published", [True, False], ids=["published", "not yet"])
def test_one_that_was_running_when_the_server_ended_is_done_once(
    world: World, monkeypatch: pytest.MonkeyPatch, published: bool
) -> None:
    LessonRecords(world.base.parent / "base.serve" / "lessons").save(record("running"))
    if published:
        monkeypatch.setattr(Judgement, "better_than", lambda self, other: True)
        consolidate(world.base)
    with serving(ServeOptions(world.base)) as served:
        lesson = served.finished(1)
        kinds = [event["event"] for event in served.get("/versions")["events"]]
        assert lesson["state"] == "done" and lesson["outcome"]["version"] == served.get("")["version"]
    assert kinds.count("consolidated") == lesson["outcome"]["published"] <= 1
    assert lesson["outcome"]["published"] or not published


@contextmanager
def server_process(model: Path) -> Iterator[tuple[subprocess.Popen[str], Served]]:
    token = model.with_name("token")
    token.write_text(TOKEN)
    command = [sys.executable, "-m", "triphase", "serve", str(model), "--port", "0", "--no-open"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(
        [*command, "--token-file", str(token)], stdout=subprocess.PIPE, env=environment, text=True
    ) as process:
        assert process.stdout is not None
        url = process.stdout.readline().split()[1].partition("/?")[0]
        headers, transport = {"Authorization": f"Bearer {TOKEN}"}, httpx.HTTPTransport(retries=5)
        try:
            with httpx.Client(base_url=url, headers=headers, timeout=60, transport=transport) as client:
                yield process, Served(url, client, f"/api/v1/models/{model.name}")
        finally:
            process.kill()


@pytest.mark.slow
def test_stopped_and_killed_it_goes_on_bit_for_bit(tmp_path: Path) -> None:
    for colour in ("red", "green"):
        paint(tmp_path / "photos" / colour, colour, range(60))
    size = ("--backbone", "small_cnn", "--image-size", "48", "--memory", "400")
    for name in ("killed", "whole"):
        done("teach", tmp_path / name, tmp_path / "photos", *size)
    with server_process(tmp_path / "whole") as (_, served):
        whole = served.finished(served.post("/consolidate", {"minutes": 60}, 202)["id"])
    with server_process(tmp_path / "killed") as (process, served):
        number = served.post("/consolidate", {"minutes": 60}, 202)["id"]
        wait_for_step(served, number)
        assert served.post(f"/lessons/{number}/stop")["state"] == "stopped"
        served.post(f"/lessons/{number}/resume")
        wait_for_step(served, number)
        process.kill()
        process.wait()
    with server_process(tmp_path / "killed") as (_, served):
        lesson = served.finished(number)
    assert lesson["state"] == "done" and whole["state"] == "done"
    for judged in ("before", "after", "published", "epochs"):
        assert lesson["outcome"][judged] == whole["outcome"][judged]
    assert_same_state(tmp_path / "killed", tmp_path / "whole")


def wait_for_step(served: Served, number: int) -> None:
    """Return when it has begun to train."""
    with served.client.stream("GET", f"{served.model}/lessons/{number}/events", timeout=60) as events:
        assert any(line == "event: step" for line in events.iter_lines())
