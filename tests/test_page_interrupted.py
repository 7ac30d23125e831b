"""A lesson on the page that is stopped and resumed, and a server that is killed in the middle of one."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Route, expect

from browser import Visitor
from lessons import World, paint
from serving import TOKEN, serving
from triphase.app.photo_keys import photo_key
from triphase.data.sources.files import content_id
from triphase.server.lesson_records import LessonRecords, Record
from triphase.server.lesson_schemas import Lesson, NewLesson, Source
from triphase.server.options import ServeOptions

LONG = {"backbone": "small_cnn", "image_size": 40, "memory": 400}


def test_a_lesson_is_stopped_and_resumed(visitor: Visitor, world: World) -> None:
    with serving(ServeOptions(world.base)) as served:
        served.draft(world.two)
        visitor.open(served.page)
        visitor.start_lesson()
        visitor.button("Stop").click()
        expect(visitor.page.locator("#lesson")).to_contain_text("A lesson was stopped.")
        assert served.get("")["version"] == 1
        visitor.page.reload()
        expect(visitor.card("yellow")).to_contain_text("lesson stopped")
        expect(visitor.card("yellow").locator("img")).to_have_count(10)
        visitor.button("Resume").click()
        visitor.expect_learned()
        assert served.get("")["version"] > 1


def test_every_unfinished_lesson_can_be_resumed_or_discarded(visitor: Visitor, world: World) -> None:
    page, records = visitor.page, LessonRecords(world.base.parent / "base.serve" / "lessons")
    for number, state in ((1, "stopped"), (2, "failed"), (3, "done")):
        lesson = Lesson.model_validate(
            {"id": number, "state": state, "source": Source(draft="next"), "quick": True, "force": False}
            | {"created": "2026-01-01T00:00:00+00:00", "photos": 5, "error": "It broke." if number == 2 else None}
        )
        settings = NewLesson(draft="next", quick=True).settings()
        records.save(Record(lesson=lesson, settings=settings, options={}, folder=None, parent=1))
        shutil.copytree(world.two, records.uploads(number))
        for photo in sorted(records.uploads(number).glob("*/*")):
            photo.rename(photo.with_name(photo_key(content_id(photo.read_bytes()))))
    page.route("**/api/v1/models/base", with_quick_version)
    with serving(ServeOptions(world.base)) as served:
        visitor.open(served.page, "history")
        expect(visitor.button("Consolidate now")).to_be_disabled()
        page.get_by_role("link", name="resume or discard it").click()
        banners = page.locator("#lesson .banner")
        said = ("Lesson 2 failed. It broke.", "Lesson 1 was stopped.")
        expect(banners).to_have_text([re.compile(sentence) for sentence in said])
        banners.last.get_by_role("button", name="Discard it").click()
        expect(page.get_by_role("dialog")).to_contain_text("The quick version in use is taken back, too.")
        visitor.button("Cancel").click()
        banners.first.get_by_role("button", name="Discard it").click()
        expect(page.get_by_role("dialog")).to_contain_text("The version in use stays as it is.")
        visitor.button("Delete its photos").click()
        expect(banners).to_have_count(1)
        visitor.button("Resume").click()
        visitor.expect_learned()
        expect(banners).to_have_count(0)
        known = served.get("/lessons")["lessons"]
        assert [(lesson["id"], lesson["state"]) for lesson in known] == [(3, "done"), (1, "done")]


def with_quick_version(route: Route) -> None:
    answer = route.fetch()
    route.fulfill(response=answer, json=answer.json() | {"pending": True})


@pytest.mark.slow
def test_a_tab_shows_what_another_has_changed(visitor: Visitor, world: World) -> None:
    page = visitor.page
    with serving(ServeOptions(world.base)) as served:
        visitor.open(served.page)
        expect(visitor.card("red")).to_contain_text("10 taught")
        served.draft(world.two)
        page.evaluate("window.dispatchEvent(new Event('focus'))")
        expect(visitor.card("yellow")).to_contain_text("10 new photos")
        served.post("/rename", {"old": "red", "new": "crimson"})
        number = served.post("/lessons", {"draft": "next"}, 202)["id"]
        assert visitor.card("red").count() == 1
        page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
        expect(visitor.card("crimson")).to_contain_text("taught")
        expect(visitor.page.locator("#lesson")).not_to_be_empty()
        visitor.expect_learned()
        served.finished(number)


def test_a_lesson_goes_on_after_the_server_was_killed(visitor: Visitor, tmp_path: Path) -> None:
    page, model = visitor.page, tmp_path / "model"
    with server_process(model) as (process, address):
        begin_lesson(address.split("/?")[0] + "/api/v1/models/model", tmp_path / "photos")
        visitor.open(address)
        expect(page.locator(".lesson-text")).to_contain_text("Phase")
        process.kill()
        process.wait()
        expect(page.locator("#offline")).to_be_visible()
    with server_process(model, address.split(":")[2].split("/")[0]) as (process, address):
        expect(page.locator("#restarted")).to_be_visible()
        page.context.new_page().goto(address)  # as somebody does who reads the banner
        expect(page.locator("main > .banner:visible")).to_have_count(0)
        visitor.expect_learned()
        expect(visitor.card("green")).to_contain_text("120 taught")
        expect(visitor.button("Take this lesson back")).to_have_count(0)  # it is the first
    visitor.errors = [error for error in visitor.errors if "Failed to load resource" not in error]


def begin_lesson(model: str, photos: Path) -> None:
    """A lesson that takes a few seconds, over HTTP."""
    for colour in ("red", "green"):
        paint(photos / colour, colour, range(120))
    with httpx.Client(headers={"Authorization": f"Bearer {TOKEN}"}, timeout=60) as client:
        for folder in photos.iterdir():
            files = [("files", (file.name, file.read_bytes())) for file in folder.iterdir()]
            client.post(f"{model}/drafts/next/photos", files=files, data={"label": folder.name}).raise_for_status()
        client.post(f"{model}/lessons", json={"draft": "next", "options": LONG}).raise_for_status()


@contextmanager
def server_process(model: Path, port: str = "0") -> Iterator[tuple[subprocess.Popen[str], str]]:
    """`triphase serve` in a process of its own, and the address that it prints."""
    token = model.with_name("token")
    token.write_text(TOKEN, encoding="utf-8")
    command = (sys.executable, "-m", "triphase", "serve", str(model), "--no-open", "--port", port)
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        [*command, "--token-file", str(token)], stdout=subprocess.PIPE, text=True, env=environment
    )
    assert process.stdout is not None
    with process, process.stdout as output:
        try:
            yield process, output.readline().split()[1]
        finally:
            process.send_signal(signal.SIGTERM)
