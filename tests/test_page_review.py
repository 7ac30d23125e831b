"""Review and History on the page, in a real browser."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
from PIL import Image
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


def test_what_it_was_unsure_of_waits_for_a_label(visitor: Visitor, world: World, tmp_path: Path) -> None:
    page = visitor.page
    noise = [np.random.default_rng(number).integers(0, 2, (8, 8, 3)) * 255 for number in range(3)]
    for number, pixels in enumerate(noise):
        Image.fromarray(pixels.astype(np.uint8)).save(tmp_path / f"{number}.png")
    with serving(ServeOptions(world.base, keep_unsure=10**6)) as served:
        answers = served.upload("/predict", sorted(tmp_path.glob("*.png")))["answers"]
        assert not all(answer["known"] for answer in answers)
        visitor.open(served.page, "review")
        inbox = page.get_by_role("listbox", name="Photos that wait for a label")
        waiting = served.get("/inbox")["total"]
        expect(page.locator("#review-badge")).to_contain_text(str(waiting))
        inbox.get_by_role("option").first.focus()
        page.keyboard.press("Control+a")
        page.keyboard.press("2")  # the classes in order of their names: green is the second
        expect(page.locator("#toasts")).to_contain_text("noted as green for the next lesson")
        expect(inbox).to_have_count(0)
        assert [photo["label"] for photo in served.get("/drafts/next")["photos"]] == ["green"] * waiting


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
