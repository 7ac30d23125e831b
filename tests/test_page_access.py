"""Everybody can use the page: by screen reader, in light and dark, on a phone; and no other site can."""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Literal, get_args

from playwright.sync_api import expect

from browser import Area, Visitor, sketch
from lessons import World
from serving import serving
from triphase.server.options import ServeOptions

Scheme = Literal["light", "dark"]


def violations(visitor: Visitor) -> list[str]:
    """What is wrong with the page as it is, in light or dark."""
    found = []
    for scheme in get_args(Scheme):
        visitor.page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
        found += [f"{scheme}: {line}" for line in visitor.violations()]
    return found


def test_every_area_passes_the_accessibility_rules_in_light_and_dark(visitor: Visitor, world: World) -> None:
    page = visitor.page
    with serving(ServeOptions(world.base)) as served:
        served.draft(world.two)
        visitor.open(served.page)
        expect(visitor.card("yellow")).to_contain_text("10 new photos")
        assert violations(visitor) == []
        visitor.button("Details of red").click()
        assert violations(visitor) == []
        visitor.button("Close").click()
        visitor.go("try")
        visitor.draw("try", sketch("ring", 0))
        expect(page.locator(".answer-label")).not_to_be_empty()
        assert violations(visitor) == []
        visitor.go("review")
        expect(page.locator(".enough li")).to_have_count(3)
        expect(page.locator("#review [aria-busy]")).to_have_count(0)
        assert violations(visitor) == []
        visitor.go("history")
        expect(page.locator(".timeline li")).to_have_count(1)
        assert violations(visitor) == []


def test_nothing_is_wider_than_a_phone(visitor: Visitor, world: World) -> None:
    page = visitor.page
    page.set_viewport_size({"width": 360, "height": 740})
    with serving(ServeOptions(world.base)) as served:
        served.upload("/drafts/next/photos", [world.test / "red" / "100.png"], label="a name " * 11 + "a name")
        served.post("/rename", {"old": "red", "new": "B" * 100})
        for area in get_args(Area):
            visitor.open(served.page, area)
            expect(page.locator("#review [aria-busy]")).to_have_count(0)
            assert page.evaluate("document.documentElement.scrollWidth") == 360, area


def test_a_page_of_another_origin_can_do_nothing(visitor: Visitor, world: World, tmp_path: Path) -> None:
    page = visitor.page
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "index.html").write_text("<!doctype html><title>Another site</title>", encoding="utf-8")
    with serving(ServeOptions(world.base)) as served, site(tmp_path / "other") as other:
        visitor.open(served.page)
        before = served.get("")["version"]
        page.goto(other)  # the same host and another port: browsers send it the cookie
        attack = """async ([url, method]) => {
          const sent = fetch(url, {method, credentials: "include", mode: "no-cors"});
          return sent.then(async (answer) => [answer.type, (await answer.text()).length], () => ["refused", 0]);
        }"""
        for path, method in (("/rename", "POST"), ("/undo", "POST"), ("/lessons", "POST"), ("", "GET")):
            said = page.evaluate(attack, [f"{served.url}{served.model}{path}", method])
            assert said in (["opaque", 0], ["refused", 0])
        assert served.get("")["version"] == before and served.get("/lessons")["lessons"] == []
        visitor.errors.clear()  # the browser says in the console that it refused


@contextmanager
def site(folder: Path) -> Iterator[str]:
    """Another web site on this machine."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(_Quiet, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass
