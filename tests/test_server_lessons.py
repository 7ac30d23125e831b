"""Lessons over HTTP: from a draft to answers, watched, stopped and resumed."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from lessons import World, assert_same_state, done, paint
from serving import SMALL, TOKEN, Served, serving
from triphase.app import manage
from triphase.app.predictor import Predictor
from triphase.app.store.schema import Version
from triphase.errors import CannotWrite
from triphase.server import lesson_records, lessons, workers
from triphase.server.drafts import Drafts
from triphase.server.lesson_records import LessonRecords, Record
from triphase.server.lesson_schemas import Lesson, Source
from triphase.server.options import ServeOptions
from triphase.server.served_model import ServedModel


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
        [begin] = [event["data"] for event in events if event["event"] == "begin"]
        steps = [event["data"] for event in events if event["event"] == "step"]
        last = {step["phase"]: step["epochs"] * step["steps"] for step in steps}
        assert begin["images"] == 15 and begin["steps"] == last and begin["minibatch"] > 0
        assert steps[-1]["seconds_left"] == 0 and steps[-1]["images_per_second"] > 0
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
        assert served.get("/lessons")["lessons"] == [] and plan["doubtful"] == []


def test_a_plan_that_is_forced_says_what_is_doubtful(world: World) -> None:
    with serving(ServeOptions(world.base)) as served:
        served.upload("/drafts/next/photos", sorted((world.one / "red").iterdir()), label="blue")
        served.upload("/drafts/next/photos", sorted((world.one / "green").iterdir())[:3], label="red")
        refused = served.client.post(f"{served.model}/lessons/plan", json={"draft": "next"})
        assert refused.status_code == 422 and "--force" in refused.json()["detail"]
        plan = served.post("/lessons/plan", {"draft": "next", "force": True})
        [sentence] = plan["doubtful"]
        assert sentence.startswith("10 of the 10 photos that red was learned from") and "--force" not in sentence
        assert plan["notes"] == [] and plan["corrected"] == 13


# --- stopping, refusing, failing ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Photos of a lesson that takes long enough to be interrupted."""
    folder = tmp_path_factory.mktemp("long")
    for colour in ("red", "green"):
        paint(folder / colour, colour, range(120))
    return folder


LONG = {"backbone": "small_cnn", "image_size": 40, "memory": 400}


@pytest.fixture(scope="module")
def uninterrupted(long: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the lesson ends with if nobody interrupts it."""
    model = tmp_path_factory.mktemp("uninterrupted") / "m"
    with pytest.MonkeyPatch.context() as patch, serving(ServeOptions(model)) as served:
        patch.setenv("OMP_NUM_THREADS", "1")
        served.draft(long)
        assert served.lesson(options=LONG)["state"] == "done"
    return model


def children() -> list[int]:
    """Processes that this one has started and that run a lesson."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parent = int(folder.joinpath("stat").read_text().rpartition(")")[2].split()[1])
            if parent == os.getpid() and b"lesson_process" in folder.joinpath("cmdline").read_bytes():
                found.append(int(folder.name))
        except OSError:  # it has just ended
            continue
    return found


def wait_for_step(served: Served, number: int, after: int = 0) -> None:
    """Return when a lesson has learned something after an event."""
    path, headers = f"{served.model}/lessons/{number}/events", {"Last-Event-ID": str(after)}
    with served.client.stream("GET", path, headers=headers, timeout=60) as events:
        assert any(line == "event: step" for line in events.iter_lines())


def test_changes_are_refused_while_a_lesson_runs_and_answers_are_not(long: Path, world: World) -> None:
    with serving(ServeOptions(world.base)) as served:
        served.draft(long)
        number = served.post("/lessons", {"draft": "next"}, 202)["id"]
        changes: dict[str, Any] = {
            "/undo": None,
            "/rename": {"old": "red", "new": "pink"},
            "/forget": {"label": "red"},
        }
        changes |= {"/move": {"photos": ["0" * 16], "label": "red"}, "/take-back": {"photos": ["0" * 16]}}
        changes |= {"/lessons": {"draft": "next"}, "/consolidate": None}
        for path, body in changes.items():
            assert f"Lesson {number} of base is running" in served.post(path, body, 409)["detail"]
        assert "is running" in served.client.delete(f"{served.model}/lessons/{number}").json()["detail"]
        assert served.upload("/unteach", [world.one / "red" / "1.png"], 409)["status"] == 409
        answers = served.upload("/predict", sorted((world.test / "blue").iterdir()))
        assert answers["version"] == 1 and len(answers["answers"]) == 5
        served.post(f"/lessons/{number}/stop")


def test_lessons_are_refused_while_a_change_is_made(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    forget, begun, over = manage.forget, threading.Event(), threading.Event()

    def slowly(*arguments: Any, **more: Any) -> Version:
        begun.set()
        assert over.wait(60)
        return forget(*arguments, **more)

    monkeypatch.setattr(manage, "forget", slowly)
    with serving(ServeOptions(world.base)) as served, ThreadPoolExecutor(1) as pool:
        served.draft(world.two)
        change = pool.submit(served.post, "/forget", {"label": "blue", "everywhere": True})
        assert begun.wait(60)
        try:
            for path, body in (("/lessons", {"draft": "next"}), ("/consolidate", None), ("/undo", None)):
                assert "base is being changed" in served.post(path, body, 409)["detail"]
        finally:
            over.set()
        assert change.result()["classes"] == ["green", "red"]
        assert served.get("/lessons")["lessons"] == []
        assert served.lesson()["state"] == "done"


def test_a_lesson_whose_photos_go_back_is_not_resumed(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    give_back, begun, over = Drafts.give_back, threading.Event(), threading.Event()

    def slowly(*arguments: Any) -> None:
        begun.set()
        assert over.wait(60)
        give_back(*arguments)

    monkeypatch.setattr(Drafts, "give_back", slowly)
    with serving(ServeOptions(world.base)) as served, ThreadPoolExecutor(1) as pool:
        served.upload("/drafts/next/photos", sorted((world.one / "red").iterdir())[:6], label="green")
        path = f"/lessons/{served.lesson()['id']}"
        deletion = pool.submit(served.client.delete, f"{served.model}{path}", params={"to_draft": True})
        assert begun.wait(60)
        try:
            assert "base is being changed" in served.post(f"{path}/resume", {"force": True}, 409)["detail"]
        finally:
            over.set()
        assert deletion.result().status_code == 204
        assert served.get("/lessons")["lessons"] == [] and len(served.get("/drafts/next")["photos"]) == 6


@pytest.mark.slow
def test_a_lesson_that_was_running_goes_on_after_the_server_ended(
    long: Path, uninterrupted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    model = tmp_path / "m"
    with serving(ServeOptions(model)) as served:
        served.draft(long)
        number = served.post("/lessons", {"draft": "next", "options": LONG}, 202)["id"]
        wait_for_step(served, number)
    assert not (model / "CURRENT").exists()
    with serving(ServeOptions(model)) as served:
        assert served.finished(number)["state"] == "done"
    assert_same_state(model, uninterrupted)


@pytest.mark.slow
def test_a_lesson_that_is_stopped_or_killed_with_the_server_goes_on_bit_for_bit(
    long: Path, uninterrupted: Path, tmp_path: Path
) -> None:
    model, environment = tmp_path / "m", {**os.environ, "OMP_NUM_THREADS": "1"}
    (tmp_path / "token").write_text(TOKEN)
    command = [sys.executable, "-m", "triphase", "serve", str(model), "--port", "0", "--no-open"]
    command += ["--token-file", str(tmp_path / "token")]

    @contextmanager
    def server() -> Iterator[tuple[subprocess.Popen[str], Served]]:
        with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, text=True) as process:
            assert process.stdout is not None
            url = process.stdout.readline().split()[1].partition("/?")[0]
            headers = {"Authorization": f"Bearer {TOKEN}"}
            transport = httpx.HTTPTransport(retries=5)
            try:
                with httpx.Client(base_url=url, headers=headers, timeout=60, transport=transport) as client:
                    yield process, Served(url, client, "/api/v1/models/m")
            finally:
                process.kill()

    with server() as (process, served):
        served.draft(long)
        number = served.post("/lessons", {"draft": "next", "options": LONG}, 202)["id"]
        wait_for_step(served, number)
        assert served.post(f"/lessons/{number}/stop")["state"] == "stopped"
        assert served.get("")["lesson"] is None and served.get("")["version"] is None
        assert "nothing to stop" in served.post(f"/lessons/{number}/stop", status=409)["detail"]
        stopped = len(served.events(number))
        served.post(f"/lessons/{number}/resume")
        wait_for_step(served, number, stopped)
        process.kill()
        process.wait()
    with server() as (process, served):
        lesson = served.finished(number)
        assert lesson["state"] == "done" and lesson["outcome"]["published"]
        states = [event["data"]["state"] for event in served.events(number) if event["event"] == "state"]
        assert states == ["running", "stopped", "running", "running", "done"]
        assert "is done" in served.post(f"/lessons/{number}/resume", status=422)["detail"]
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) in (0, -signal.SIGTERM)
    assert_same_state(model, uninterrupted)


def stop_after_the_quick_version(served: Served, **body: Any) -> str:
    """Stop a lesson of the draft once its quick version is in use; the path of the lesson."""
    number = served.post("/lessons", {"draft": "next", "quick": True, **body}, 202)["id"]
    wait_for_step(served, number)
    assert served.post(f"/lessons/{number}/stop")["state"] == "stopped" and served.get("")["pending"]
    return f"{served.model}/lessons/{number}"


def test_a_deleted_lesson_takes_its_quick_version_along(long: Path, world: World) -> None:
    with serving(ServeOptions(world.base)) as served:
        served.draft(long)
        path = stop_after_the_quick_version(served)
        for place in ("/lessons", "/lessons/plan"):
            problem = served.post(place, {"draft": "next"}, 409)
            assert problem["detail"] == "Lesson 1 of base was stopped: resume it or delete it first."
        problem = served.post("/rename", {"old": "blue", "new": "azure"}, 409)
        unfinished = (
            "Lesson 1 of base has not ended, and its quick version is in use: resume it or delete it first."
        )
        assert problem["detail"] == unfinished
        assert served.client.delete(path, params={"to_draft": True}).status_code == 204
        assert served.get("")["version"] == 1 and not served.get("")["pending"]
        assert served.upload("/predict", [world.test / "red" / "100.png"])["version"] == 1
        served.post("/rename", {"old": "blue", "new": "azure"})
        assert served.post("/lessons/plan", {"draft": "next"})["learn"] == {"green": 110, "red": 110}


@pytest.mark.slow
def test_a_deleted_first_lesson_leaves_a_model_that_knows_nothing(long: Path, world: World, tmp_path: Path) -> None:
    with serving(ServeOptions(tmp_path / "new")) as served:
        served.draft(long)
        path = stop_after_the_quick_version(served, options=LONG)
        assert served.client.delete(path).status_code == 204
        assert served.get("")["version"] is None and served.get("")["classes"] == []
        assert "holds no model" in served.upload("/predict", [world.test / "red" / "100.png"], 422)["detail"]
        served.draft(world.one)
        assert served.lesson(options=SMALL)["state"] == "done"
        assert [c["name"] for c in served.get("/classes")["classes"]] == ["blue", "green", "red"]


def test_a_refused_lesson_says_what_suffered_and_is_published_by_force(world: World) -> None:
    with serving(ServeOptions(world.base)) as served:
        for mine, others in (("red", "green"), ("green", "blue"), ("blue", "red")):
            served.upload("/drafts/next/photos", sorted((world.one / mine).iterdir()), label=others)
        lesson = served.lesson()
        assert lesson["state"] == "failed" and "lie in other classes now" in lesson["error"]
        assert len(list((world.base.parent / "base.serve").rglob("*.png"))) == 30
        served.post(f"/lessons/{lesson['id']}/resume", {"force": True})
        assert served.finished(lesson["id"])["state"] == "done"
        assert not list((world.base.parent / "base.serve").rglob("*.png"))


def test_the_photos_of_a_failed_lesson_go_back_into_the_draft(world: World) -> None:
    with serving(ServeOptions(world.base)) as served:
        served.upload("/drafts/next/photos", sorted((world.one / "red").iterdir())[:6], label="green")
        lesson = served.lesson()
        assert lesson["state"] == "failed"
        path = f"{served.model}/lessons/{lesson['id']}"
        assert served.client.delete(path, params={"to_draft": True}).status_code == 204
        assert len(served.get("/drafts/next")["photos"]) == 6
        assert served.client.get(path).status_code == 404


def test_the_photos_of_a_lesson_can_be_seen_until_it_is_done(long: Path, world: World, tmp_path: Path) -> None:
    with serving(ServeOptions(tmp_path / "model")) as served:
        served.draft(long)
        waiting = served.get("/drafts/next")["photos"]
        number = served.post("/lessons", {"draft": "next", "options": SMALL}, 202)["id"]
        assert served.get(f"/lessons/{number}/photos")["photos"] == waiting
        photo = waiting[0]["id"]
        assert served.client.get(f"{served.model}/lessons/{number}/thumbnails/{photo}").content[:2] == b"\xff\xd8"
        served.post(f"/lessons/{number}/stop")
        assert len(served.get(f"/lessons/{number}/photos")["photos"]) == len(waiting)
        served.post(f"/lessons/{number}/resume", {})
        served.finished(number)
        assert served.get(f"/lessons/{number}/photos")["photos"] == []
        gone = served.client.get(f"{served.model}/lessons/{number}/thumbnails/{photo}")
        assert (gone.status_code, gone.json()["detail"]) == (404, f"Lesson {number} has no photo {photo}.")
        assert served.client.get(f"{served.model}/lessons/99/photos").status_code == 404


def test_a_quick_lesson_is_in_use_before_it_is_done(world: World) -> None:
    with serving(ServeOptions(world.base)) as served:
        served.draft(world.two)
        lesson = served.lesson(quick=True)
        events = served.events(lesson["id"])
        kinds = [event["event"] for event in events]
        assert kinds.index("taught_quick") < kinds.index("begin")
        assert lesson["outcome"]["version"] == 3 and not served.get("")["pending"]


def test_a_lesson_that_is_seen_as_done_is_in_nobodys_way(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    publish = ServedModel.on_published

    async def slowly(model: ServedModel) -> None:
        await asyncio.sleep(1)
        await publish(model)

    monkeypatch.setattr(ServedModel, "on_published", slowly)
    with serving(ServeOptions(world.base)) as served:
        served.draft(world.two)
        path = f"/lessons/{served.post('/lessons', {'draft': 'next'}, 202)['id']}"
        while served.get(path)["state"] == "running":
            time.sleep(0.02)
        assert served.get(path)["state"] == "done" and served.get("")["lesson"] is None
        served.post("/rename", {"old": "red", "new": "pink"})


def test_nothing_to_learn_is_no_failure(world: World) -> None:
    with serving(ServeOptions(world.base)) as served:
        served.draft(world.one)
        lesson = served.lesson()
        assert lesson["state"] == "done" and not lesson["outcome"]["published"]
        assert "have been taught before" in lesson["outcome"]["notes"][0]


def test_a_lesson_needs_photos_and_options_that_agree(world: World) -> None:
    with serving(ServeOptions(world.base)) as served:
        assert "holds no photo" in served.post("/lessons", {"draft": "next"}, 404)["detail"]
        assert "either draft or folder" in served.post("/lessons", {}, 400)["detail"]
        served.draft(world.two)
        wrong = {"draft": "next", "options": {"image_size": 99}}
        assert "was made with image-size 8" in served.post("/lessons/plan", wrong, 422)["detail"]
        assert "max_drop must be" in served.post("/lessons", {"draft": "next", "max_drop": 2}, 422)["detail"]
        assert served.get("/lessons")["lessons"] == []


def test_a_seed_that_no_version_can_hold_is_refused_at_the_start(world: World, tmp_path: Path) -> None:
    with serving(ServeOptions(tmp_path / "new")) as served:
        served.draft(world.two)
        large = {"draft": "next", "options": {**SMALL, "seed": 2**80}}
        assert "seed must be" in served.post("/lessons/plan", large, 422)["detail"]


def test_a_version_that_another_process_publishes_is_answered_from(world: World) -> None:
    with serving(ServeOptions(world.base)) as served:
        photo = world.test / "yellow" / "100.png"
        assert served.upload("/predict", [photo])["version"] == 1
        done("teach", world.base, world.two)
        versions = (served.upload("/predict", [photo])["version"] for _ in range(100_000))
        assert next(version for version in versions if version != 1) == 2


def test_a_lesson_that_was_published_when_the_server_was_killed_is_done(world: World) -> None:
    records = LessonRecords(world.base.parent / "base.serve" / "lessons")
    lesson = Lesson(
        id=1,
        state="running",
        source=Source(draft="next"),
        created="2026-01-01T00:00:00+00:00",
        quick=False,
        force=False,
    )
    record = Record(lesson=lesson, settings={}, options={}, folder=None, parent=1)
    records.save(record)
    shutil.copytree(world.two, records.photos(record))
    done("teach", world.base, world.two)
    with serving(ServeOptions(world.base)) as served:
        outcome = served.finished(1)["outcome"]
        assert outcome["published"] and outcome["learned"] == 15 and outcome["version"] == 2
    assert not records.photos(record).exists()


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processes are found in /proc")
@pytest.mark.slow
def test_a_process_that_dies_fails_its_lesson_which_goes_on(long: Path, tmp_path: Path) -> None:
    with serving(ServeOptions(tmp_path / "m")) as served:
        served.draft(long)
        number = served.post("/lessons", {"draft": "next", "options": LONG}, 202)["id"]
        wait_for_step(served, number)
        (child,) = children()
        os.kill(child, signal.SIGKILL)
        lesson = served.finished(number)
        assert lesson["state"] == "failed" and "status -9" in lesson["error"]
        served.post(f"/lessons/{number}/resume")
        assert served.finished(number)["state"] == "done"


def test_a_lesson_whose_process_cannot_be_started_is_in_nobodys_way(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def spawn() -> None:
        raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))

    def full(*arguments: object) -> None:
        raise CannotWrite("Cannot write record.json: the disk is full.")

    monkeypatch.setattr(workers, "_spawn", spawn)
    with serving(ServeOptions(world.base)) as served:
        served.draft(world.two)
        assert "Cannot allocate memory" in served.post("/lessons/plan", {"draft": "next"}, 503)["detail"]
        assert "cannot be started" in served.post("/lessons", {"draft": "next"}, 503)["detail"]
        (lesson,) = served.get("/lessons")["lessons"]
        assert lesson["state"] == "failed" and "Cannot allocate memory" in lesson["error"]
        assert served.get("")["lesson"] is None and served.events(lesson["id"])[-1]["data"]["state"] == "failed"
        with monkeypatch.context() as patched:
            patched.setattr(lesson_records, "write_json", full)
            assert "disk is full" in served.post(f"/lessons/{lesson['id']}/resume", status=507)["detail"]
        assert served.get(f"/lessons/{lesson['id']}")["state"] == "failed"
        served.client.delete(f"{served.model}/lessons/{lesson['id']}", params={"to_draft": True})
        assert len(served.get("/drafts/next")["photos"]) == 15


def test_an_error_while_a_lesson_is_followed_ends_it_and_is_in_nobodys_way(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def damaged(process: Process) -> AsyncIterator[dict[str, Any]]:
        yield {"event": "scan", "done": 1, "total": 2}
        raise ValueError("not JSON")

    with serving(ServeOptions(world.base)) as served:
        served.draft(world.two)
        with monkeypatch.context() as patched:
            patched.setattr(lessons, "events", damaged)
            lesson = served.lesson()
        assert lesson["state"] == "failed" and "could not be followed (not JSON)" in lesson["error"]
        assert served.get("")["lesson"] is None and served.get("")["version"] == 1
        served.post(f"/lessons/{lesson['id']}/resume")
        assert served.finished(lesson["id"])["state"] == "done" and served.get("")["version"] == 2


def test_a_model_that_many_ask_for_at_once_is_opened_once(world: World) -> None:
    models = world.base.parent
    with serving(ServeOptions(models=models)) as served, ThreadPoolExecutor(8) as pool:
        shutil.copytree(world.base, models / "later")
        answers = list(pool.map(lambda _: served.client.get("/api/v1/models/later").status_code, range(16)))
        assert answers == [200] * 16
        paths = [{"name": "new"} for _ in range(8)]
        made = list(pool.map(lambda body: served.client.post("/api/v1/models", json=body).status_code, paths))
        assert sorted(made) == [201] + [422] * 7


def test_a_model_without_a_version_is_still_there_after_a_restart(world: World, tmp_path: Path) -> None:
    options = ServeOptions(models=tmp_path)
    (tmp_path / "foreign").mkdir()
    with serving(options) as served:
        for name in ("draft", "lesson", "empty"):
            assert served.client.post("/api/v1/models", json={"name": name}).status_code == 201
        draft, lesson = (replace(served, model=f"/api/v1/models/{name}") for name in ("draft", "lesson"))
        draft.draft(world.one)
        lesson.draft(world.one)
        lesson.post("/lessons", {"draft": "next", "options": SMALL}, 202)  # the server ends while it runs
    assert not (tmp_path / "lesson" / "CURRENT").exists()
    with serving(options) as served:
        assert [model["name"] for model in served.client.get("/api/v1/models").json()["models"]] == [
            "draft",
            "lesson",
        ]
        assert len(draft_of(served, "draft")) == 30
        for name, status in (("lesson", 422), ("foreign", 422), ("empty", 201)):
            assert served.client.post("/api/v1/models", json={"name": name}).status_code == status
        lesson = replace(served, model="/api/v1/models/lesson")
        number = lesson.get("/lessons")["lessons"][0]["id"]
        if lesson.get(f"/lessons/{number}")["state"] == "stopped":
            lesson.post(f"/lessons/{number}/resume")
        assert lesson.finished(number)["state"] == "done" and lesson.get("")["version"]


def draft_of(served: Served, model: str) -> list[Any]:
    photos: list[Any] = replace(served, model=f"/api/v1/models/{model}").get("/drafts/next")["photos"]
    return photos


@pytest.mark.slow
def test_a_lesson_from_a_folder_may_learn_from_its_unlabelled_photos(world: World, tmp_path: Path) -> None:
    photos = tmp_path / "photos"
    shutil.copytree(world.two, photos)
    paint(photos / "_unlabelled", "blue", range(30, 34))
    with serving(ServeOptions(world.base, photos=photos)) as served:
        assert served.post("/lessons/plan", {"folder": "."})["unlabelled"] == 0
        asked = {"folder": ".", "unlabelled": "pseudo"}
        assert served.post("/lessons/plan", asked)["unlabelled"] == 4
        assert "unlabelled" in served.post("/lessons", {"folder": ".", "unlabelled": "all"}, 400)["detail"]
        lesson = served.finished(served.post("/lessons", asked, 202)["id"])
        assert lesson["state"] == "done" and lesson["outcome"]["learned"] == 15
        assert any("4 photos in _unlabelled" in note for note in lesson["outcome"]["notes"])
