"""Learning overnight on the page, in a real browser."""

from __future__ import annotations

from playwright.sync_api import expect

from browser import Visitor
from lessons import World
from serving import serving
from triphase.server.lesson_records import LessonRecords, Record
from triphase.server.lesson_schemas import Lesson, Source
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
        page.reload()  # as somebody does who closed the page in the evening
        expect(page.locator("#history")).to_contain_text("Last time, ")
        expect(page.locator("#history")).to_contain_text(lesson["outcome"]["verdict"])


def test_a_stopped_consolidation_is_discarded_only_after_a_question(visitor: Visitor, world: World) -> None:
    page = visitor.page
    lesson = Lesson.model_validate(
        {"id": 1, "kind": "consolidation", "state": "stopped", "source": Source(), "quick": False, "force": False}
        | {"created": "2026-01-01T00:00:00+00:00"}
    )
    records = LessonRecords(world.base.parent / "base.serve" / "lessons")
    records.save(Record(lesson=lesson, settings={"minutes": None}, options={}, folder=None, parent=1))
    with serving(ServeOptions(world.base)) as served:
        visitor.open(served.page, "history")
        expect(visitor.button("Consolidate now")).to_be_disabled()
        page.get_by_role("link", name="resume or discard it").click()
        visitor.button("Discard it").click()
        visitor.button("Cancel").click()
        assert [known["state"] for known in served.get("/lessons")["lessons"]] == ["stopped"]
        visitor.button("Discard it").click()
        page.get_by_role("dialog").get_by_role("button", name="Discard it").click()
        expect(page.locator("#lesson")).to_be_empty()
        assert served.get("/lessons")["lessons"] == []
