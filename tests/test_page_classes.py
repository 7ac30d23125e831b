"""The photos of a class on the page: taught or waiting, all can be reached; one that is not stored is asked for."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from browser import Visitor
from lessons import SMALL, World, done, model_of, paint
from serving import Served, serving
from triphase.app import thumbnails
from triphase.app.photo_keys import photo_key
from triphase.data.sources.files import file_id
from triphase.server.options import ServeOptions


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Photos of two classes, which a model with little memory was taught."""
    paint(tmp_path / "photos" / "red", "red", range(60))
    paint(tmp_path / "photos" / "green", "green", range(10))
    done("teach", tmp_path / "model", tmp_path / "photos", *SMALL[:-1], "8")
    files = (tmp_path / "photos").rglob("*.png")
    thumbnails.add(tmp_path / "model", {file_id(file): thumbnails.thumbnail(file) for file in files})
    return tmp_path / "photos"


def choose_missing(page: Page, served: Served, photos: Path) -> Path:
    """Choose a photo of red of which nothing is stored, on one of the first two pages of its class; its file."""
    memory = model_of(photos.with_name("model")).memory
    assert memory is not None
    stored = {photo_key(id_) for id_ in memory["id"].tolist()}
    listed = [photo["id"] for photo in served.get("/photos", params={"label": "red"})["photos"]]
    number, key = next((i, key) for i, key in reversed(list(enumerate(listed))) if key not in stored)
    page.get_by_role("option", name=f"photo {number + 1}", exact=True).click()
    return next(file for file in photos.rglob("*.png") if photo_key(file_id(file)) == key)


def test_a_photo_of_which_nothing_is_stored_is_asked_for(visitor: Visitor, photos: Path) -> None:
    page, dialog = visitor.page, visitor.page.get_by_role("dialog")
    with serving(ServeOptions(photos.with_name("model"))) as served:
        visitor.open(served.page)
        visitor.button("Details of red").click()
        expect(page.get_by_role("option")).to_have_count(48)
        visitor.button("Show 12 more of 60 photos").click()
        expect(page.get_by_role("option")).to_have_count(60)
        file = choose_missing(page, served, photos)
        visitor.button("Take back").click()
        expect(dialog).to_contain_text("Nothing is stored of 1 photo.")
        expect(visitor.button("Take back")).to_be_disabled()
        page.get_by_label("File of the photo").set_input_files(photos / "green" / "0.png")
        expect(dialog).to_contain_text("None of these files is one of the photos.")
        page.get_by_label("File of the photo").set_input_files(file)
        expect(dialog).to_contain_text("1 photo found.")
        visitor.button("Take back").click()
        expect(page.locator("#toasts")).to_contain_text("1 photo taken back.")
        expect(visitor.card("red")).to_contain_text("59 taught")
        visitor.button("Details of red").click()
        visitor.button("Show 11 more of 59 photos").click()
        file = choose_missing(page, served, photos)
        dialog.get_by_role("button", name="green").click()
        page.get_by_label("File of the photo").set_input_files(file)
        visitor.button("Learn as green").click()
        expect(visitor.card("green")).to_contain_text("1 new photo")
        assert [photo["id"] for photo in served.get("/drafts/next")["photos"]] == [photo_key(file_id(file))]
    visitor.errors = [error for error in visitor.errors if "422" not in error]  # that nothing is stored


def test_every_photo_that_waits_can_be_moved_and_removed(visitor: Visitor, world: World, tmp_path: Path) -> None:
    page = visitor.page
    paint(tmp_path / "new" / "red", "yellow", range(50, 64))
    with serving(ServeOptions(world.base)) as served:
        served.draft(tmp_path / "new")
        visitor.open(served.page)
        visitor.button("Show all 14 new photos of red").click()
        waiting = page.get_by_role("listbox", name="New photos of red")
        expect(waiting.get_by_role("option")).to_have_count(14)
        for number in (0, 13):
            waiting.get_by_role("option").nth(number).click()
        page.get_by_role("dialog").get_by_role("button", name="blue").click()
        expect(visitor.card("red")).to_contain_text("12 new photos")
        expect(visitor.card("blue")).to_contain_text("2 new photos")
        visitor.button("Details of red").click()
        waiting.get_by_role("option").nth(5).click()
        page.get_by_role("dialog").get_by_role("button", name="Remove", exact=True).click()
        expect(visitor.card("red")).to_contain_text("11 new photos")
        assert len(served.get("/drafts/next")["photos"]) == 13


def test_what_is_chosen_among_many_classes_fits_on_a_phone(visitor: Visitor, world: World, tmp_path: Path) -> None:
    page = visitor.page
    page.set_viewport_size({"width": 360, "height": 740})
    for number in range(9):
        paint(tmp_path / "new" / f"one of the classes {number}", "yellow", range(number, number + 1))
    with serving(ServeOptions(world.base)) as served:
        served.draft(tmp_path / "new")
        visitor.open(served.page, "try")
        visitor.drop(world.test)
        page.get_by_role("option").first.click()
        expect(page.locator(".grid-toolbar:visible")).to_contain_text("1 photo chosen")
        assert page.evaluate("document.documentElement.scrollWidth") == 360
        visitor.go("teach")
        visitor.button("Details of one of the classes 0").click()
        expect(page.get_by_role("dialog")).to_contain_text("Move them to")
        assert page.get_by_role("dialog").evaluate("dialog => dialog.scrollWidth <= dialog.clientWidth")
