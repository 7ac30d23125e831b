"""Teach on the page, in a real browser: drawings, folders, the webcam, and names that are text."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from playwright.sync_api import expect

from browser import Visitor, sketch
from lessons import COLOURS, World, paint
from serving import serving
from triphase.server.options import ServeOptions

KINDS = ("ring", "cross", "stairs")
PASTE = """(field, bytes) => {
  const data = new DataTransfer();
  data.items.add(new File([new Uint8Array(bytes)], "image.png", {type: "image/png"}));
  field.dispatchEvent(new ClipboardEvent("paste", {clipboardData: data, bubbles: true}));
}"""


def test_three_things_drawn_five_times_each_are_recognised(
    visitor: Visitor, lite0_model: Path, tmp_path: Path
) -> None:
    draw_teach_draw(visitor, shutil.copytree(lite0_model, tmp_path / "drawings"))


@pytest.mark.slow
def test_the_first_minute_makes_a_model_that_recognises_drawings(visitor: Visitor, tmp_path: Path) -> None:
    draw_teach_draw(visitor, tmp_path / "drawings")


def draw_teach_draw(visitor: Visitor, model: Path) -> None:
    page = visitor.page
    with serving(ServeOptions(model)) as served:
        visitor.open(served.page)
        for kind in KINDS:
            page.get_by_label("What is it?").fill(kind)
            for number in range(5):
                visitor.draw("teach", sketch(kind, number))
                visitor.button("Add drawing").click()
                expect(visitor.card(kind)).to_contain_text(f"{number + 1} new photo")
        visitor.button("Teach").click()
        expect(page.get_by_role("dialog")).to_contain_text("15 photos to learn")
        visitor.button("Start the lesson").click()
        visitor.expect_learned()
        page.get_by_role("link", name="Try it").click()
        for kind in KINDS:
            visitor.draw("try", sketch(kind, 7))
            expect(page.locator(".answer-label")).to_have_text(kind)
            page.locator("#try-draw-panel").get_by_label("Clear the pad").click()


def test_a_folder_that_is_dropped_becomes_the_next_lesson(visitor: Visitor, world: World) -> None:
    with serving(ServeOptions(world.base)) as served:
        visitor.open(served.page)
        visitor.drop(world.two)
        expect(visitor.card("yellow")).to_contain_text("10 new photos")
        expect(visitor.card("red")).to_contain_text("5 new photos")
        shutil.copytree(world.two / "red", world.two.with_name("moved") / "blue")
        visitor.drop(world.two.with_name("moved") / "blue")
        expect(visitor.page.locator("#toasts")).to_contain_text("5 photos moved to another class.")
        expect(visitor.page.locator("#toasts")).not_to_contain_text("0 photos added")
        visitor.drop(world.two)
        expect(visitor.card("red")).to_contain_text("5 new photos")
        visitor.button("Teach").click()
        expect(visitor.page.get_by_role("dialog")).to_contain_text("1 new class: yellow")
        visitor.button("Start the lesson").click()
        visitor.expect_learned()
        expect(visitor.page.locator(".outcome")).to_contain_text("held-out photos of the earlier classes")
        expect(visitor.card("yellow")).to_contain_text("10 taught")
        visitor.go("history")
        visitor.button("Take back").click()
        expect(visitor.page.get_by_role("dialog")).to_contain_text("Go back to version 1?")
        visitor.button("Use version 1").click()
        expect(visitor.page.locator(".in-use")).to_contain_text("version 1")
        expect(visitor.page.locator(".in-use").get_by_role("button")).to_have_count(0)  # nothing to go back to
        visitor.go("teach")
        expect(visitor.card("yellow")).to_have_count(0)


def test_the_first_minute_offers_to_choose_a_folder_of_photos(
    visitor: Visitor, world: World, tmp_path: Path
) -> None:
    with serving(ServeOptions(tmp_path / "new")) as served:
        visitor.open(served.page)
        with visitor.page.expect_file_chooser() as chosen:
            visitor.page.locator("#first-steps").get_by_role("button", name="Choose a folder").click()
        chosen.value.set_files(world.two)
        expect(visitor.card("yellow")).to_contain_text("10 new photos")


def test_a_first_lesson_promises_no_answers_of_a_version_before(visitor: Visitor, tmp_path: Path) -> None:
    running = {"id": 1, "kind": "lesson", "state": "running", "source": {"draft": None}, "quick": True}
    page = visitor.page
    page.route("**/base/lessons", lambda route: route.fulfill(json={"lessons": [running]}))
    page.route("**/base/lessons/1/events", lambda route: route.fulfill(content_type="text/event-stream", body=""))
    with serving(ServeOptions(tmp_path / "base")) as served:
        visitor.open(served.page)
        expect(page.locator("#lesson")).to_contain_text("Go on as you like: it can answer once this first lesson")


def test_a_folder_that_is_one_level_too_high_is_added_only_after_a_question(
    visitor: Visitor, world: World, tmp_path: Path
) -> None:
    dialog = visitor.page.get_by_role("dialog")
    for part, numbers in (("train", range(3)), ("test", range(3, 5))):
        for colour in ("red", "yellow"):
            paint(tmp_path / "deep" / part / colour, colour, numbers)
    with serving(ServeOptions(world.base)) as served:
        visitor.open(served.page)
        visitor.drop(tmp_path / "deep")
        expect(dialog).to_contain_text("The photos in all its folders (red and yellow) count as class test.")
        visitor.button("Cancel").click()
        visitor.drop(tmp_path / "deep" / "train")
        expect(visitor.card("yellow")).to_contain_text("3 new photos")
        visitor.drop(tmp_path / "deep")
        visitor.button("Yes, add them").click()
        expect(visitor.card("train")).to_contain_text("6 new photos")
        expect(visitor.card("test")).to_contain_text("4 new photos")


def test_photos_go_to_the_class_that_was_typed_or_to_none(visitor: Visitor, world: World, tmp_path: Path) -> None:
    page = visitor.page
    paint(tmp_path / "mixed" / "50% & more", "red", range(50, 52))
    (tmp_path / "mixed" / "unreadable").mkdir()
    (tmp_path / "mixed" / "unreadable" / "0.png").write_text("no picture", encoding="utf-8")
    with serving(ServeOptions(world.base)) as served:
        visitor.open(served.page)
        for name in ('6" nail', "a/b"):
            page.get_by_label("What is it?").fill(name)
            visitor.drop(*(world.test / ("red" if name == "a/b" else "blue")).iterdir())
            expect(page.locator("#toasts")).to_contain_text("a/b" if name == "a/b" else "5 photos added.")
        visitor.drop(tmp_path / "mixed")
        expect(visitor.card("50% & more")).to_contain_text("2 new photos")
        expect(page.locator("#toasts")).to_contain_text("2 photos added. 1 file left out")
        labels = sorted(photo["label"] for photo in served.get("/drafts/next")["photos"])
        assert labels == ["50% & more"] * 2 + ['6" nail'] * 5
    visitor.errors = [error for error in visitor.errors if "422" not in error]  # a class may not be called a/b


def test_a_lesson_of_mixed_up_labels_is_refused_and_its_photos_can_be_corrected(
    visitor: Visitor, world: World, tmp_path: Path
) -> None:
    page = visitor.page
    for colour in COLOURS:
        for number in range(20, 40):
            folder = tmp_path / "mixed" / list(COLOURS)[number % 4]
            paint(folder, colour, range(number, number + 1))
            (folder / f"{number}.png").rename(folder / f"{colour}{number}.png")
    with serving(ServeOptions(world.base)) as served:
        served.draft(tmp_path / "mixed")
        visitor.open(served.page)
        visitor.start_lesson()
        lesson = page.locator("#lesson")
        expect(lesson).to_contain_text("The lesson was not published. Version 1 stays in use.")
        expect(lesson).to_contain_text("their labels are probably mixed up")
        expect(lesson).not_to_contain_text("--")  # options of the command line
        compared = served.get("/lessons")["lessons"][0]["outcome"]["verdict"]["per_class"][0]["n"]
        expect(lesson.get_by_role("row", name="blue")).to_contain_text(re.compile(f"same|of {compared}$"))
        visitor.button("Discard it").click()
        visitor.button("Keep its photos").click()
        expect(page.locator(".lesson-summary")).to_contain_text("80 photos in 4 classes")
        assert served.get("")["version"] == 1


@pytest.mark.slow
def test_a_doubtful_plan_asks_whether_it_is_meant(visitor: Visitor, world: World) -> None:
    page = visitor.page
    with serving(ServeOptions(world.base)) as served:
        served.upload("/drafts/next/photos", sorted((world.one / "red").iterdir()), label="blue")
        served.upload("/drafts/next/photos", sorted((world.one / "green").iterdir())[:3], label="red")
        visitor.open(served.page)
        visitor.button("Teach").click()
        plan = page.get_by_role("dialog")
        expect(plan).to_contain_text("Is that meant? 10 of the 10 photos that red was learned from")
        expect(plan).not_to_contain_text("--force")
        visitor.button("Teach it anyway").click()
        visitor.expect_learned()
        expect(visitor.card("red")).to_contain_text("3 taught")


@pytest.mark.slow
def test_pictures_stay_while_they_are_learned_and_the_end_is_told_elsewhere(visitor: Visitor, world: World) -> None:
    page = visitor.page
    with serving(ServeOptions(world.base)) as served:
        served.draft(world.two)
        visitor.open(served.page)
        expect(visitor.card("yellow").locator("img")).to_have_count(10)
        visitor.start_lesson()
        expect(visitor.card("yellow")).to_contain_text("learning")
        expect(visitor.card("yellow").locator("img")).to_have_count(10)
        visitor.go("try")
        expect(page.locator("#toasts")).to_contain_text("Learned. Version")
        visitor.button("What it did").click()
        expect(page.locator(".outcome")).to_be_visible()
        visitor.go("history")
        expect(page.locator(".timeline li")).to_have_count(2)
        visitor.go("teach")
        visitor.button("Take this lesson back").click()
        expect(page.locator("#toasts")).to_contain_text("Version 1 is in use again.")
        expect(page.locator(".outcome")).to_have_count(0)  # a second click would take back another one


def test_a_zip_and_a_picture_of_the_clipboard_are_photos_too(visitor: Visitor, world: World) -> None:
    page = visitor.page
    archive = shutil.make_archive(str(world.two.with_name("photos")), "zip", world.two)
    with serving(ServeOptions(world.base)) as served:
        visitor.open(served.page)
        visitor.drop(Path(archive))
        expect(visitor.card("yellow")).to_contain_text("10 new photos")
        page.get_by_label("What is it?").fill("copied")
        page.get_by_label("What is it?").evaluate(PASTE, list((world.test / "red" / "100.png").read_bytes()))
        expect(visitor.card("copied")).to_contain_text("1 new photo")


def test_the_webcam_takes_a_burst_while_the_button_is_held(visitor: Visitor, world: World) -> None:
    page = visitor.page
    with serving(ServeOptions(world.base)) as served:
        visitor.open(served.page)
        page.get_by_label("What is it?").fill("ball")
        page.get_by_role("tab", name="Webcam").click()
        visitor.button("Start the webcam").click()
        hold = visitor.button("Hold to take pictures")
        expect(hold).to_be_enabled()
        hold.hover()
        page.mouse.down()
        expect(page.locator("#teach .camera-count")).to_have_text(re.compile(r"^([3-9]|\d\d+)$"))
        page.mouse.up()
        expect(visitor.card("ball")).to_contain_text("new photos")


def test_models_are_made_and_chosen_on_the_page(visitor: Visitor, tmp_path: Path) -> None:
    page = visitor.page
    (tmp_path / "models").mkdir()
    with serving(ServeOptions(models=tmp_path / "models")) as served:
        page.goto(served.page)
        for name in ("birds", "garden & house"):
            page.get_by_role("textbox", name="Name").fill(name)
            page.keyboard.press("Enter")
            expect(page.get_by_role("combobox", name="Model")).to_have_value(name)
            expect(page.get_by_role("heading", name="Your first minute")).to_be_visible()
            page.get_by_role("combobox", name="Model").select_option("New model")
        visitor.button("Cancel").click()
        page.get_by_role("combobox", name="Model").select_option("birds")
        expect(page).to_have_title("Teach · birds · triphase")
        page.goto(f"{served.url}/?model=fish")
        expect(page.locator("#failure")).to_have_text(re.compile("There is no model fish here. Choose one"))
        page.get_by_role("combobox", name="Model").select_option("birds")
        expect(page).to_have_title("Teach · birds · triphase")


def test_a_model_that_cannot_be_read_says_why(visitor: Visitor, world: World) -> None:
    with serving(ServeOptions(world.base)) as served:
        (world.base / "CURRENT").write_text("{}", encoding="utf-8")
        visitor.page.goto(served.page)
        expect(visitor.page.locator("#failure")).to_contain_text("CURRENT")
    visitor.errors.clear()  # the browser says in the console what the server answered


def test_a_drawing_needs_no_mouse(visitor: Visitor, world: World) -> None:
    page = visitor.page
    with serving(ServeOptions(world.base)) as served:
        visitor.open(served.page)
        page.get_by_label("What is it?").press_sequentially("line")
        page.keyboard.press("Enter")
        for key in ("Space", "ArrowRight", "ArrowRight", "ArrowDown", "Space", "Space", "ArrowLeft", "Backspace"):
            page.keyboard.press(key)
        pad = page.locator("#teach-draw-panel canvas")
        drawn = pad.evaluate("pad => pad.toDataURL()")
        page.keyboard.press("ArrowUp")  # Backspace has lifted the pencil
        assert pad.evaluate("pad => pad.toDataURL()") == drawn
        page.keyboard.press("Backspace")
        for key in ("Space", "ArrowRight", "ArrowDown", "Tab", "Enter"):  # with the pencil down
            page.keyboard.press(key)
        expect(visitor.card("line")).to_contain_text("1 new photo")


@pytest.mark.parametrize("name", ["<img src=x onerror=alert(1)>", "<b>bold&amp;"], ids=["image", "entity"])
def test_names_are_shown_as_text(visitor: Visitor, world: World, name: str) -> None:
    with serving(ServeOptions(world.base)) as served:
        served.upload("/drafts/next/photos", [world.test / "red" / "100.png"], label=name)
        visitor.open(served.page)
        expect(visitor.card(name)).to_have_count(1)
        expect(visitor.page.locator("#cards b, #cards img[src=x]")).to_have_count(0)
