"""Try on the page, in a real browser: answers, corrections, what is unknown, and the webcam live."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image
from playwright.sync_api import expect

from browser import Visitor, sketch
from lessons import World
from serving import serving
from triphase.server.options import ServeOptions


def test_a_correction_is_one_key_and_becomes_the_next_lesson(visitor: Visitor, world: World) -> None:
    page = visitor.page
    with serving(ServeOptions(world.base)) as served:
        visitor.open(served.page, "try")
        visitor.drop(world.test / "red" / "100.png")
        expect(page.locator(".answer-label")).to_have_text("red")
        page.keyboard.press("1")  # the classes in order of their names: blue is the first
        expect(page.locator(".noted p")).to_have_text("Noted as blue. 1 photo waits for the next lesson.")
        assert [photo["label"] for photo in served.get("/drafts/next")["photos"]] == ["blue"]
        page.locator(".answer").get_by_role("button", name="green").click()
        expect(page.locator(".noted p")).to_have_text("Noted as green. 1 photo waits for the next lesson.")
        assert [photo["label"] for photo in served.get("/drafts/next")["photos"]] == ["green"]
        visitor.button("Undo").click()
        expect(page.locator(".noted p")).to_have_text("Taken back.")
        assert served.get("/drafts/next")["photos"] == []


def test_the_undo_of_a_correction_leaves_a_photo_that_waited_where_it_was(visitor: Visitor, world: World) -> None:
    page = visitor.page
    with serving(ServeOptions(world.base)) as served:
        served.upload("/drafts/next/photos", [world.test / "red" / "100.png"], label="red")
        visitor.open(served.page, "try")
        visitor.drop(world.test / "red" / "100.png")
        for name in ("blue", "green"):
            page.locator(".answer").get_by_role("button", name=name).click()
            expect(page.locator(".noted p")).to_contain_text(f"Noted as {name}.")
        visitor.button("Undo").click()
        expect(page.locator(".noted p")).to_have_text("Taken back: it waits as red again.")
        assert [photo["label"] for photo in served.get("/drafts/next")["photos"]] == ["red"]


def test_photos_that_are_refused_are_not_noted(visitor: Visitor, world: World, tmp_path: Path) -> None:
    page = visitor.page
    for number in range(2):
        (tmp_path / f"broken{number}.png").write_text("no picture", encoding="utf-8")
    noise = np.random.default_rng(0).integers(0, 2, (8, 8, 3)) * 255
    Image.fromarray(noise.astype(np.uint8)).save(tmp_path / "unknown.png")
    with serving(ServeOptions(world.base, keep_unsure=10**6)) as served:
        visitor.open(served.page, "try")
        visitor.drop(*tmp_path.glob("*.png"), world.test / "red" / "100.png")
        photos = page.get_by_role("option")
        expect(photos.locator(".no-picture")).to_have_count(2)
        waiting = served.get("/inbox")["total"]
        assert waiting
        expect(page.locator("#review-badge")).to_contain_text(str(waiting))
        photos.first.focus()
        page.keyboard.press("Control+a")
        page.get_by_label("Name of a new class").fill('6" nail')
        visitor.button("Make it a class").click()
        expect(photos.filter(has_text='noted as 6" nail')).to_have_count(2)
        expect(photos.filter(has_text="cannot be read")).to_have_count(2)
        expect(page.locator("#toasts")).to_contain_text("2 photos wait for the next lesson. 2 photos left out: ")
        assert [photo["label"] for photo in served.get("/drafts/next")["photos"]] == ['6" nail'] * 2


def test_many_large_photos_are_sent_in_several_requests(visitor: Visitor, world: World) -> None:
    cut = """async (sizes) => {
      const { requests } = await import("/draft.js");
      const photos = sizes.map((size) => ({ file: { size } }));
      return [...requests(photos, { files: 3, bytes: 10 })].map((part) => part.map(({ file }) => file.size));
    }"""
    with serving(ServeOptions(world.base)) as served:
        visitor.open(served.page, "try")
        assert visitor.page.evaluate(cut, [4, 4, 4, 12, 1, 1, 1, 1]) == [[4, 4], [4], [12], [1, 1, 1], [1]]


def test_what_is_unknown_becomes_a_class(visitor: Visitor, world: World, tmp_path: Path) -> None:
    page, strange = visitor.page, tmp_path / "strange"
    strange.mkdir()
    for number in range(6):
        noise = np.random.default_rng(number).integers(0, 2, (8, 8, 3)) * 255
        Image.fromarray(noise.astype(np.uint8)).save(strange / f"{number}.png")
    with serving(ServeOptions(world.base)) as served:
        visitor.open(served.page, "try")
        visitor.drop(*sorted(strange.iterdir()))
        expect(page.locator("#answer-column h2")).to_have_text("6 answers")
        photos = page.get_by_role("option")
        expect(photos.filter(has_text="unknown").first).to_contain_text("closest: ")
        photos.first.click()
        photos.last.click(modifiers=["Shift"])
        page.get_by_label("Name of a new class").fill("noise")
        visitor.button("Make it a class").click()
        expect(photos.filter(has_text="noted as noise")).to_have_count(6)
        expect(page.locator("#toasts")).to_contain_text("6 photos wait for the next lesson")
        visitor.button("Teach now").click()
        expect(page.get_by_role("dialog")).to_contain_text("1 new class: noise")
        visitor.button("Start the lesson").click()
        visitor.expect_learned()
        visitor.go("try")
        visitor.drop(strange / "0.png")
        expect(page.locator(".answer .bar-row")).to_have_count(4)


def test_photos_that_look_alike_are_chosen_together(visitor: Visitor, world: World, tmp_path: Path) -> None:
    page = visitor.page
    for number in range(3):  # unknown, and the same but for a few pixels
        noise = np.random.default_rng(0).integers(0, 2, (8, 8, 3)) * 255
        noise[number, number] = 128
        Image.fromarray(noise.astype(np.uint8)).save(tmp_path / f"{number}.png")
    with serving(ServeOptions(world.base)) as served:
        visitor.open(served.page, "try")
        visitor.drop(*sorted(tmp_path.glob("*.png")), world.test / "red" / "100.png")
        visitor.button("Choose the 3 that look alike").click()
        expect(page.locator(".grid-toolbar")).to_contain_text("3 photos chosen")
        page.locator(".grid-toolbar").get_by_role("button", name="green").click()
        expect(page.get_by_role("option").filter(has_text="noted as green")).to_have_count(3)
        assert [photo["label"] for photo in served.get("/drafts/next")["photos"]] == ["green"] * 3


def test_what_is_drawn_takes_the_place_of_the_photo_before(visitor: Visitor, world: World) -> None:
    page = visitor.page
    with serving(ServeOptions(world.base)) as served:
        visitor.open(served.page, "try")
        visitor.drop(world.test / "red" / "100.png")
        expect(page.locator("#try .preview img")).to_be_visible()
        page.get_by_role("tab", name="Draw").click()
        visitor.draw("try", sketch("ring", 0))
        expect(page.locator(".answer-label")).not_to_have_text("red")
        page.get_by_role("tab", name="Photos").click()
        expect(page.locator("#try .preview img")).to_have_count(0)


def test_the_webcam_is_answered_again_and_again(visitor: Visitor, world: World) -> None:
    page = visitor.page
    with serving(ServeOptions(world.base)) as served:
        visitor.open(served.page, "try")
        page.get_by_role("tab", name="Webcam").click()
        visitor.button("Start the webcam").click()
        for _ in range(5):
            with page.expect_response("**/predict?*") as response:
                pass
            assert response.value.ok
        expect(page.locator(".rate")).to_contain_text("answers a second")
        visitor.button("Stop the webcam").click()
        expect(page.locator("#try video")).to_be_hidden()
