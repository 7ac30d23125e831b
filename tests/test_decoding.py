"""Every kind of file that people have, as squares of pixels; and what is said about the others."""

import io
import os
import runpy
import shutil
import struct
import subprocess
import sys
import threading
import warnings
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image, ImageOps

from scenes import scene
from triphase.data.decoding import (
    DRAFT,
    check_file,
    decode,
    decode_bytes,
    decode_sizes,
    image_suffixes,
    in_threads,
    short_side,
)
from triphase.data.squares import square
from triphase.errors import BadData

RED, BLUE, WHITE = (255, 0, 0), (0, 0, 255), (255, 255, 255)
ORIENTATION = 0x0112
PNG = b"\x89PNG\r\n\x1a\n"


def colour(path: Path, size: int = 8) -> tuple[int, ...]:
    """The mean colour of a file, as decoded."""
    return tuple(decode(path, size).float().mean((1, 2)).round().int().tolist())


def photo(width: int, height: int) -> Image.Image:
    """Smooth structure, different along both axes."""
    x, y = np.meshgrid(np.linspace(0, 255, width), np.linspace(0, 255, height))
    return Image.fromarray(np.stack([x, y, (x + y) / 2], -1).astype(np.uint8))


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


@pytest.mark.parametrize("suffix", [".png", ".tif", ".pgm"])
def test_the_example_for_exported_files_scales_sixteen_bits_too(tmp_path: Path, suffix: str) -> None:
    example = runpy.run_path(str(Path(__file__).parents[1] / "examples" / "onnx_predict.py"))
    how, path = {"size": 8, "resample": "bicubic", "jpeg_draft": 96}, tmp_path / f"x{suffix}"
    ramp = np.linspace(0, 65535, 16 * 12).reshape(16, 12).astype(np.uint16)
    Image.fromarray(ramp).save(path)
    prepared = torch.from_numpy(example["prepare"](str(path), how).copy()).permute(2, 0, 1)
    assert torch.equal(prepared, decode(path, 8)) and 100 < prepared.float().mean() < 155
    Image.new("F", (8, 8), 0.5).save(tmp_path / "float.tif")
    with pytest.raises(SystemExit, match="float.tif has floating point pixels"):
        example["prepare"](str(tmp_path / "float.tif"), how)


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
    words = "cannot be read as an image" if kept else "is an empty file"
    with pytest.raises(BadData, match=f"holiday{suffix} {words}"):
        decode(path, 32)
    with pytest.raises(BadData, match=f"upload {words}"):
        decode_bytes(path.read_bytes(), "upload", (32,))


def test_files_that_may_not_be_read_are_refused_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "secret.jpg"
    photo(30, 20).save(path)

    def refuse(*arguments: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("builtins.open", refuse)  # root may read everything
    for read in (lambda: decode(path, 32), lambda: short_side(path)):
        with pytest.raises(BadData, match=r"secret\.jpg cannot be read as an image \(Permission denied\)"):
            read()


@pytest.mark.parametrize("limit", [1000, 3000])  # 64 x 64 is an error for the one, a warning for the other
def test_decompression_bombs_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: int) -> None:
    Image.new("RGB", (64, 64)).save(tmp_path / "bomb.png")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", limit)
    with pytest.raises(BadData, match=r"bomb\.png"):
        decode(tmp_path / "bomb.png", 8)


def test_postscript_is_never_run_whatever_it_is_called(tmp_path: Path) -> None:
    Image.new("RGB", (8, 8)).save(tmp_path / "x.eps")
    (tmp_path / "x.eps").rename(tmp_path / "x.jpg")
    with pytest.raises(BadData, match="no image format that is known"):
        decode(tmp_path / "x.jpg", 8)


def test_floating_point_pictures_are_refused_with_a_remedy(tmp_path: Path) -> None:
    Image.fromarray(np.ones((4, 4), np.float32)).save(tmp_path / "x.tif")
    with pytest.raises(BadData, match="8 bits per channel"):
        decode(tmp_path / "x.tif", 8)


@pytest.mark.parametrize(
    ("prepare", "sentence"),
    [
        (lambda path: None, "There is no file {path}; check the spelling, or whether it was moved or removed."),
        (
            lambda path: path.symlink_to("elsewhere.png"),
            "{path} is a link to elsewhere.png, which does not exist; mend or remove the link.",
        ),
        (lambda path: path.symlink_to(path), "{path} cannot be read (Too many levels of symbolic links); allow"),
        (lambda path: path.mkdir(), "{path} is a folder; give the photos in it, such as {path}/*.jpg."),
        (lambda path: os.mkfifo(path), "{path} is neither a file nor a folder; give photos."),
        (
            lambda path: path.touch(),
            "{path} is an empty file, as a failed copy leaves it; copy the photo",
        ),
        (
            lambda path: path.write_bytes(b"text"),
            "{path} cannot be read as an image (its content is no image",
        ),
    ],
    ids=["missing", "dangling link", "link to itself", "folder", "pipe", "empty", "text"],
)
def test_what_is_no_photo_gets_a_sentence_that_fits(
    tmp_path: Path, prepare: Callable[[Path], object], sentence: str
) -> None:
    path = tmp_path / "x.png"
    prepare(path)
    with pytest.raises(BadData) as refused:
        decode(path, 8)
    assert str(refused.value).startswith(sentence.format(path=path))


def test_a_pattern_that_the_shell_left_is_called_one(tmp_path: Path) -> None:
    with pytest.raises(BadData, match=r"^No file matches .*\*\.jpg; check the folder and the spelling\.$"):
        check_file(tmp_path / "*.jpg")
    (tmp_path / "*.jpg").write_bytes(b"such a name is allowed")
    assert check_file(tmp_path / "*.jpg").st_size == 22


def test_an_image_without_pixels_is_refused() -> None:
    with pytest.raises(BadData, match="an image of 0 x 5 pixels shows nothing"):
        square(Image.new("RGB", (0, 5)), 8)


@pytest.mark.parametrize("mode", ["1", "L", "P", "RGB", "RGBA", "CMYK", "I;16"])
def test_squares_of_two_sizes_are_those_decoded_one_by_one(tmp_path: Path, mode: str) -> None:
    path = tmp_path / "x.tif"
    grey = np.asarray(photo(90, 70).convert("L"))
    image = Image.fromarray(grey.astype(np.uint16) * 257) if mode == "I;16" else photo(90, 70).convert(mode)
    image.save(path)
    for size, both in zip((DRAFT, 40), decode_sizes(path, (DRAFT, 40)), strict=True):
        assert torch.equal(both, decode(path, size))


def test_one_bit_a_pixel_is_scaled_as_colour_is(tmp_path: Path) -> None:
    image = photo(90, 70).convert("1")
    assert torch.equal(square(image, 24), square(image.convert("RGB"), 24))


def test_work_in_threads_keeps_the_order_and_leaves_no_thread() -> None:
    before = threading.active_count()
    assert in_threads(lambda i: i * i, range(50)) == [i * i for i in range(50)]
    assert in_threads(str, []) == [] and threading.active_count() == before


def jpeg(width: int, height: int) -> bytes:
    """A grey JPEG of any size, without ever holding its pixels: equal blocks are six bits each."""
    buffer = io.BytesIO()
    Image.new("L", (8, 8), 128).save(buffer, "JPEG")
    head = bytearray(buffer.getvalue())
    frame = head.index(b"\xff\xc0") + 5
    head[frame : frame + 4] = struct.pack(">HH", height, width)
    scanned = head.index(b"\xff\xda")
    start = scanned + 2 + struct.unpack_from(">H", head, scanned + 2)[0]
    blocks = -(-width // 8) * -(-height // 8)
    return bytes(head[:start]) + b"\x28\xa2\x8a" * -(-blocks // 4) + b"\xff\xd9"


def png(width: int, height: int, rows: int) -> bytes:
    """A black PNG that promises width x height, 1 bit each, and holds some of its rows."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    pixels = zlib.compress(bytes(rows * (1 + (width + 7) // 8)))
    return PNG + b"".join(
        (
            chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0)),
            chunk(b"IDAT", pixels),
            chunk(b"IEND", b""),
        )
    )


@pytest.mark.parametrize("orientation", range(1, 9))
def test_every_orientation_is_turned_upright(tmp_path: Path, orientation: int) -> None:
    path, exif = tmp_path / "x.png", Image.Exif()
    exif[0x0112] = orientation
    Image.fromarray(scene(0)[:200]).save(path, exif=exif)
    with Image.open(path) as image:
        upright = ImageOps.fit(ImageOps.exif_transpose(image), (32, 32), Image.Resampling.BICUBIC)
    difference = decode(path, 32).int() - torch.from_numpy(np.array(upright)).permute(2, 0, 1).int()
    assert difference.abs().max() <= 1


def test_a_jpeg_of_20000_x_20000_is_read_at_a_fraction(tmp_path: Path) -> None:
    path = tmp_path / "wide.jpg"
    path.write_bytes(jpeg(20_000, 20_000))
    assert decode(path, 32).unique().tolist() == [128]


@pytest.mark.parametrize("side", [10_000, 20_000, 60_000])
def test_images_that_would_fill_the_memory_are_refused(tmp_path: Path, side: int) -> None:
    path = tmp_path / "bomb.png"
    path.write_bytes(png(side, side, rows=10))
    words = r"bomb\.png .*pixels.*; save a smaller copy, or a copy as JPEG\.$"
    with warnings.catch_warnings(), pytest.raises(BadData, match=words):
        warnings.simplefilter("ignore")
        decode(path, 32)


@pytest.mark.parametrize("kind", ["JPEG", "PNG"])
def test_what_is_larger_than_was_asked_for_needs_a_smaller_copy_in_any_format(kind: str) -> None:
    content = io.BytesIO()
    Image.new("L", (30, 20), 128).save(content, kind)
    with pytest.raises(BadData, match=r"30 x 20 pixels, at most 599 are accepted\); save a smaller copy\.$"):
        decode_bytes(content.getvalue(), "photo", (8,), max_pixels=599)
    assert decode_bytes(content.getvalue(), "photo", (8,), max_pixels=600)[0].shape == (3, 8, 8)


def test_a_progressive_jpeg_must_fit_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "bomb.jpg"
    Image.new("L", (8, 8), 128).save(path, progressive=True)
    content = bytearray(path.read_bytes())
    frame = content.index(b"\xff\xc2") + 5
    content[frame : frame + 4] = struct.pack(">HH", 60_000, 60_000)
    path.write_bytes(content)
    with pytest.raises(BadData, match=r"3,600,000,000 pixels, at most 89,478,485 .*not progressive"):
        decode(path, 32)


PEAK = """
import re, sys
from pathlib import Path
from triphase.data.decoding import decode_array, in_threads
for photos in (sys.argv[1:1], sys.argv[1:2], sys.argv[1:]):
    in_threads(lambda photo: decode_array(Path(photo), 32), photos)
    print(re.search(r"VmHWM:\\s*(\\d+)", Path("/proc/self/status").read_text())[1])  # ru_maxrss is the parent's
"""


@pytest.mark.skipif(sys.platform != "linux", reason="asks Linux for the peak")
def test_many_large_photos_take_the_memory_of_one(tmp_path: Path) -> None:
    paths = [tmp_path / f"{i}.png" for i in range(6)]
    Image.new("RGB", (4500, 4500)).save(paths[0], compress_level=1)  # 81 MB
    for path in paths[1:]:
        shutil.copy(paths[0], path)
    command = [sys.executable, "-c", PEAK, *map(str, paths)]
    none, one, six = map(int, subprocess.run(command, capture_output=True, text=True, check=True).stdout.split())
    assert one - none > 50_000 and six - none < 1.5 * (one - none)
