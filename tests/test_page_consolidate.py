"""Learning overnight on the page, in a real browser."""

from __future__ import annotations

from playwright.sync_api import expect

from browser import Visitor
from lessons import World
from serving import serving
from triphase.server.options import ServeOptions


def test_a_consolidation_is_begun_watched_and_judged(visitor: Visitor, world: World) -> None:
    page = visitor.page
    with serving(ServeOptions(world.base)) as served:
        visitor.open(served.page, "history")
        page.get_by_label("How long").select_option("at most 10 minutes")
        visitor.button("Consolidate now").click()
        expect(page.locator("#lesson")).to_contain_text("24 stored photos")
        [lesson] = served.get("/lessons")["lessons"]
        expect(page.locator("#lesson")).to_contain_text(lesson["outcome"]["verdict"])
        assert (lesson["kind"], lesson["minutes"]) == ("consolidation", 10)
        visitor.go("history")
        expect(visitor.button("Consolidate now")).to_be_enabled()
