"""Pictures as programs have them: several at a time, of any kind, or a sentence that says what to give."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from triphase.app.pictures import as_images
from triphase.errors import InvalidValue

GREY = np.full((10, 14, 3), 90, dtype=np.uint8)


@pytest.mark.parametrize(
    ("single", "kind"),
    [
        (GREY, "array of shape \\(10, 14, 3\\)"),
        (torch.from_numpy(GREY), "array of shape \\(10, 14, 3\\)"),
        (GREY[..., :1], "array of shape \\(10, 14, 1\\)"),
        (GREY[..., 0], "array of shape \\(10, 14\\)"),
        ("photo.jpg", "path"),
        (Path("photo.jpg"), "path"),
        (Image.fromarray(GREY), "PIL image"),
    ],
)
def test_a_single_picture_is_to_be_put_in_a_list(single: object, kind: str) -> None:
    with pytest.raises(InvalidValue, match=f"One {kind} .* put it in a list"):
        as_images(single, 8)  # type: ignore[arg-type]


def test_none_is_no_picture() -> None:
    with pytest.raises(InvalidValue, match="got None"):
        as_images(None, 8)  # type: ignore[arg-type]
    with pytest.raises(InvalidValue, match="got NoneType"):
        as_images([None], 8)  # type: ignore[list-item]


def test_a_list_of_paths_and_images_is_called_what_it_is() -> None:
    with pytest.raises(InvalidValue, match="The list mixes paths with images: give all as paths"):
        as_images([GREY, "photo.jpg"], 8)


@pytest.mark.parametrize("empty", [np.empty((2, 0, 5, 3), np.uint8), [np.empty((0, 0, 3), np.uint8)]])
def test_pictures_without_pixels_are_refused(empty: object) -> None:
    with pytest.raises(InvalidValue, match="has nothing to look at; leave it out"):
        as_images(empty, 8)  # type: ignore[arg-type]


def test_the_same_picture_is_the_same_image_in_every_layout() -> None:
    layouts = [GREY[None], GREY.transpose(2, 0, 1)[None], [GREY], [Image.fromarray(GREY)], GREY[None, ..., 0]]
    pixels = [as_images(X, 8).read(torch.tensor([0])) for X in layouts]  # type: ignore[arg-type]
    assert all(torch.equal(found, pixels[0]) for found in pixels)
