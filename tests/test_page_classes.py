"""The photos of a class on the page: all of them can be reached, and one that is not stored is asked for."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from browser import Visitor
from lessons import SMALL, done, model_of, paint
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
