"""Review and History on the page, in a real browser."""

from __future__ import annotations

import shutil

from playwright.sync_api import expect

from browser import Visitor
from lessons import SMALL, World, done, paint
from serving import serving
from triphase.server.options import ServeOptions


def test_a_label_that_looks_wrong_is_moved_and_taken_back_again(visitor: Visitor, world: World) -> None:
    page = visitor.page
    paint(world.one / "more" / "green", "red", range(50, 51))
    shutil.move(world.one / "more" / "green" / "50.png", world.one / "green" / "wrong.png")
    shutil.rmtree(world.one / "more")
    done("teach", world.base, world.one, *SMALL, "--force")
    with serving(ServeOptions(world.base)) as served:
        visitor.open(served.page, "review")
        suspects = page.get_by_role("listbox", name="Photos whose label looks wrong")
        suspects.get_by_role("option", name="green, looks like red").click()
        page.locator("#review .namer").get_by_role("button", name="red").locator("visible=true").click()
        expect(page.locator("#toasts")).to_contain_text("1 photo moved to red.")
        expect(suspects.get_by_role("option", name="green, looks like red")).to_have_count(0)
        assert {c["name"]: c["taught"] for c in served.get("/classes")["classes"]}["red"] == 11
        visitor.button("Undo").click()
        expect(suspects.get_by_role("option", name="green, looks like red")).to_be_visible()


def test_classes_are_judged_and_confusions_open(visitor: Visitor, world: World) -> None:
    page = visitor.page
    with serving(ServeOptions(world.base)) as served:
        visitor.open(served.page, "review")
        expect(page.locator(".enough li")).to_have_count(3)
        page.get_by_role("button", name="photos of red answered as red").press("Enter")
        expect(page.get_by_role("dialog")).to_contain_text("held-out photos of red recognised")
        visitor.button("Close").click()


def test_a_class_is_renamed_and_forgotten_without_a_lesson(visitor: Visitor, world: World) -> None:
    page = visitor.page
    with serving(ServeOptions(world.base)) as served:
        visitor.open(served.page)
        visitor.button("Details of red").click()
        page.get_by_label("Name", exact=True).fill("crimson")
        visitor.button("Save the name").click()
        expect(visitor.card("crimson")).to_contain_text("10 taught")
        visitor.button("Details of crimson").click()
        visitor.button("Forget this class").click()
        visitor.button("Forget crimson").click()
        expect(visitor.card("crimson")).to_have_count(0)
        visitor.go("history")
        expect(page.locator(".timeline")).to_contain_text("Renamed red to crimson")
