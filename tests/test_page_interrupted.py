"""A lesson on the page that is stopped and resumed, and a server that is killed in the middle of one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
from playwright.sync_api import expect

from browser import Visitor
from lessons import World, paint
from serving import TOKEN, serving
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
        visitor.button("Resume").click()
        visitor.expect_learned()
        assert served.get("")["version"] > 1


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
