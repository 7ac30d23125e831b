"""Images in memory and on disk, and every kind of file that people have."""

import os
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from triphase.data import images as images_module
from triphase.data.images import Images, check_size, decode, decode_pool, image_suffixes, resize
from triphase.errors import BadData, InvalidValue

RED, BLUE, WHITE = (255, 0, 0), (0, 0, 255), (255, 255, 255)
ORIENTATION = 0x0112


def colour(path: Path, size: int = 8) -> tuple[int, ...]:
    """The mean colour of a file, as decoded."""
    return tuple(decode(path, size).float().mean((1, 2)).round().int().tolist())


def photo(width: int, height: int) -> Image.Image:
    """Smooth structure, different along both axes."""
    x, y = np.meshgrid(np.linspace(0, 255, width), np.linspace(0, 255, height))
    return Image.fromarray(np.stack([x, y, (x + y) / 2], -1).astype(np.uint8))


@given(st.data())
def test_selecting_twice_is_selecting_once(data: st.DataObject) -> None:
    pixels = torch.arange(6, dtype=torch.uint8).view(6, 1, 1, 1)
    images = Images.from_array(pixels, torch.arange(6) % 3, torch.arange(6) + 100)
    first = torch.tensor(data.draw(st.lists(st.integers(0, 5), min_size=1)))
    second = torch.tensor(data.draw(st.lists(st.integers(0, len(first) - 1))), dtype=torch.long)
    chosen = images.select(first).select(second)
    expected = first[second]
    assert torch.equal(chosen.read(torch.arange(len(chosen))), pixels[expected])
    assert torch.equal(chosen.ids, expected + 100) and torch.equal(chosen.labels, expected % 3)


@pytest.mark.parametrize(
    ("pixels", "n_labels", "words"),
    [
        (torch.zeros(3, 1, 2, 2, dtype=torch.uint8), 2, "one label for each image"),
        (torch.full((1, 1, 2, 2), float("nan")), 1, "NaN"),
        (torch.zeros(1, 1, 2, 2), 1, "uint8"),
        (torch.zeros(1, 2, 2, dtype=torch.uint8), 1, "shape"),
    ],
)
def test_arrays_that_are_no_images_are_refused(pixels: torch.Tensor, n_labels: int, words: str) -> None:
    with pytest.raises(BadData, match=words):
        Images.from_array(pixels, torch.zeros(n_labels))


def test_other_labels_must_be_as_many() -> None:
    images = Images.from_array(torch.zeros(2, 1, 2, 2, dtype=torch.uint8), torch.zeros(2))
    assert images.select(torch.tensor([0]), torch.tensor([7])).labels.tolist() == [7]
    with pytest.raises(BadData, match="one label and one id"):
        images.select(torch.tensor([0]), torch.tensor([7, 8]))


def test_resized_images_have_the_new_size_and_no_image_too() -> None:
    images = Images.from_array(torch.full((2, 3, 4, 6), 77, dtype=torch.uint8), torch.zeros(2)).resized(5)
    assert images.read(torch.tensor([1])).shape == (1, 3, 5, 5)
    assert images.read(torch.tensor([], dtype=torch.long)).shape == (0, 3, 5, 5)
    assert images.read(torch.tensor([0, 1])).unique().tolist() == [77]
    assert resize(torch.zeros(1, 1, 5, 5, dtype=torch.uint8), 5).shape == (1, 1, 5, 5)


@pytest.mark.parametrize("size", [0, -3])
def test_a_size_without_pixels_is_refused(size: int) -> None:
    with pytest.raises(InvalidValue, match="at least 1 pixel"):
        check_size(size)
    with pytest.raises(InvalidValue, match="at least 1 pixel"):
        Images.from_files([], torch.zeros(0), torch.zeros(0), size)


def test_files_are_read_in_the_order_asked_for(tmp_path: Path) -> None:
    paths = [tmp_path / f"{i}.png" for i in range(20)]
    for i, path in enumerate(paths):
        Image.new("L", (3, 5), i).save(path)
    images = Images.from_files(paths, torch.arange(20), torch.arange(20), 4)
    order = torch.randperm(20, generator=torch.Generator().manual_seed(0))
    assert torch.equal(images.read(order)[:, 0, 0, 0].long(), order)
    assert images.read(order[:0]).shape == (0, 3, 4, 4)
    with pytest.raises(BadData, match="one label for each image"):
        Images.from_files(paths, torch.arange(19), torch.arange(19), 4)


def test_threads_are_started_once_in_each_process(monkeypatch: pytest.MonkeyPatch) -> None:
    here = decode_pool()
    assert decode_pool() is here
    monkeypatch.setattr(os, "getpid", lambda: -1)
    assert decode_pool() is not here


def test_suffixes_are_those_of_pictures() -> None:
    assert {".jpg", ".jpeg", ".png", ".webp", ".gif", ".tiff", ".bmp", ".mpo", ".heic"} <= image_suffixes()
    assert not {".pdf", ".eps", ".h5", ".mpg", ".txt", ""} & image_suffixes()


def test_decode_covers_the_square_and_keeps_the_middle(tmp_path: Path) -> None:
    wide = Image.new("RGB", (30, 10), RED)
    wide.paste(BLUE, (10, 0, 20, 10))
    wide.save(tmp_path / "wide.png")
    assert colour(tmp_path / "wide.png", 10) == BLUE


@pytest.mark.parametrize("suffix", [".jpg", ".tif", ".png", ".webp"])
def test_exif_orientation_is_obeyed(tmp_path: Path, suffix: str) -> None:
    lying = Image.new("RGB", (64, 64), RED)
    lying.paste(BLUE, (0, 0, 32, 64))  # blue on the left
    exif = Image.Exif()
    exif[ORIENTATION] = 6  # turn clockwise to see it: left comes to the top
    lying.save(tmp_path / f"turned{suffix}", exif=exif)
    standing = decode(tmp_path / f"turned{suffix}", 16).int()
    assert (standing[2, :6] > 240).all() and (standing[0, :6] < 15).all()
    assert (standing[0, -6:] > 240).all() and (standing[2, -6:] < 15).all()


def test_damaged_exif_does_not_spoil_a_photo(tmp_path: Path) -> None:
    Image.new("RGB", (8, 8), RED).save(tmp_path / "x.png", exif=b"Exif\x00\x00not a TIFF header at all")
    assert colour(tmp_path / "x.png") == RED


def test_jpeg_drafts_look_like_full_decodes(tmp_path: Path) -> None:
    photo(640, 480).save(tmp_path / "x.jpg", quality=95)
    photo(640, 480).save(tmp_path / "x.png")
    difference = decode(tmp_path / "x.jpg", 48).int() - decode(tmp_path / "x.png", 48).int()
    assert difference.abs().max() <= 6


@pytest.mark.parametrize("mode", ["1", "L", "P", "RGB", "CMYK", "YCbCr", "HSV"])
def test_white_is_white_in_every_mode(tmp_path: Path, mode: str) -> None:
    suffix = ".tif" if mode in ("CMYK", "YCbCr") else ".png"
    image = Image.new("RGB", (9, 9), WHITE).convert(mode)
    (image.convert("RGB") if mode == "HSV" else image).save(tmp_path / f"x{suffix}")
    assert colour(tmp_path / f"x{suffix}") == WHITE


def test_cmyk_jpeg_has_its_colours(tmp_path: Path) -> None:
    Image.new("RGB", (16, 16), RED).convert("CMYK").save(tmp_path / "x.jpg", quality=95)
    assert np.abs(np.subtract(colour(tmp_path / "x.jpg"), RED)).max() <= 4


@pytest.mark.parametrize("suffix", [".png", ".tif", ".pgm"])
@pytest.mark.parametrize(("deep", "expected"), [(0, 0), (257, 1), (32896, 128), (65535, 255)])
def test_sixteen_bits_are_scaled_not_clipped(tmp_path: Path, suffix: str, deep: int, expected: int) -> None:
    Image.fromarray(np.full((5, 5), deep, np.uint16)).save(tmp_path / f"x{suffix}")
    assert colour(tmp_path / f"x{suffix}") == (expected,) * 3


@pytest.mark.parametrize("mode", ["RGBA", "LA", "P", "RGB"])
def test_transparency_shows_white(tmp_path: Path, mode: str) -> None:
    path = tmp_path / "x.png"
    if mode in ("RGBA", "LA"):
        Image.new(mode, (8, 8), 0).save(path)
    else:
        Image.new(mode, (8, 8), 0).save(path, transparency=0 if mode == "P" else (0, 0, 0))
    assert colour(path) == WHITE


def test_half_transparent_red_is_pink(tmp_path: Path) -> None:
    Image.new("RGBA", (8, 8), (255, 0, 0, 128)).save(tmp_path / "x.webp", lossless=True)
    assert colour(tmp_path / "x.webp") == (255, 127, 127)


def test_of_an_animation_the_first_frame_counts(tmp_path: Path) -> None:
    first, second = Image.new("RGB", (8, 8), RED), Image.new("RGB", (8, 8), BLUE)
    first.save(tmp_path / "x.gif", save_all=True, append_images=[second])
    assert colour(tmp_path / "x.gif") == RED


@pytest.mark.parametrize("shape", [(1, 1), (1, 500), (500, 1), (2, 3)])
def test_tiny_and_thin_images_are_enlarged(tmp_path: Path, shape: tuple[int, int]) -> None:
    Image.new("RGB", shape, BLUE).save(tmp_path / "x.png")
    assert decode(tmp_path / "x.png", 32).shape == (3, 32, 32)
    assert colour(tmp_path / "x.png") == BLUE


@pytest.mark.parametrize("suffix", [".jpg", ".png", ".gif", ".bmp", ".webp", ".tif"])
@pytest.mark.parametrize("kept", [0.0, 0.02, 0.5, 0.9])
def test_truncated_files_are_refused_by_name(tmp_path: Path, suffix: str, kept: float) -> None:
    path = tmp_path / f"holiday{suffix}"
    noise = np.random.default_rng(0).integers(0, 256, (300, 400, 3), dtype=np.uint8)
    Image.fromarray(noise).save(path)
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * kept)])
    with pytest.raises(BadData, match=f"holiday{suffix} cannot be read as an image"):
        decode(path, 32)


@pytest.mark.parametrize("limit", [1000, 3000])  # 64 x 64 is an error for the one, a warning for the other
def test_decompression_bombs_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: int) -> None:
    Image.new("RGB", (64, 64)).save(tmp_path / "bomb.png")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", limit)
    with pytest.raises(BadData, match=r"bomb\.png"):
        decode(tmp_path / "bomb.png", 8)


def test_postscript_is_never_run_whatever_it_is_called(tmp_path: Path) -> None:
    Image.new("RGB", (8, 8)).save(tmp_path / "x.eps")
    (tmp_path / "x.eps").rename(tmp_path / "x.jpg")
    with pytest.raises(BadData, match="cannot identify"):
        decode(tmp_path / "x.jpg", 8)


def test_floating_point_pictures_are_refused_with_a_remedy(tmp_path: Path) -> None:
    Image.fromarray(np.ones((4, 4), np.float32)).save(tmp_path / "x.tif")
    with pytest.raises(BadData, match="8 bits per channel"):
        decode(tmp_path / "x.tif", 8)


def test_a_missing_file_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(BadData, match=r"gone\.png"):
        images_module.decode(tmp_path / "gone.png", 8)
