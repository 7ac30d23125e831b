"""Photos as they lie on disks: every kind of file and folder."""

import os
import struct
import subprocess
import sys
import unicodedata
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

from scenes import scene
from triphase.app import scan as scan_module
from triphase.app.near_duplicates import HASH_SIZE, dhash
from triphase.app.scan import scan
from triphase.budget import Budget
from triphase.data import decoding
from triphase.data.decoding import _open as open_image
from triphase.data.decoding import decode, decode_sizes
from triphase.errors import BadData

PNG = b"\x89PNG\r\n\x1a\n"


def picture(path: Path, grey: int = 0, **options: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("L", (6, 6), grey).save(path, **options)
    return path


# Folders


def test_a_folder_is_scanned_class_by_class(tmp_path: Path) -> None:
    dog, far = picture(tmp_path / "dog" / "1.PNG", 10), picture(tmp_path / "dog" / "2024" / "may" / "2.jpg", 20)
    cat = picture(tmp_path / "cat" / "3.bmp", 30)
    events: list[dict[str, Any]] = []
    found = scan(tmp_path, 4, Budget(1 << 20), on_event=events.append)
    assert found.names == ["cat", "dog"] and found.paths == [cat, dog, far] and len(found) == 3
    assert found.labels.tolist() == [0, 1, 1] and len(found.ids.unique()) == 3
    assert found.images.read(torch.arange(3))[:, 0, 0, 0].tolist() == [30, 10, 20]
    assert (found.repeats, found.skipped, found.remarks, found.known_already) == (0, [], [], {})
    assert events == [{"event": kind, "done": 3, "total": 3} for kind in ("scan", "decode")]


def test_clutter_and_hidden_files_are_passed_over(tmp_path: Path) -> None:
    picture(tmp_path / "cat" / "1.png")
    picture(tmp_path / "cat" / ".hidden.png", 1)
    picture(tmp_path / "cat" / ".thumbnails" / "2.png", 2)
    picture(tmp_path / ".trash" / "3.png", 3)
    for name in ("Thumbs.db", ".DS_Store", "notes.txt", "clip.mp4"):
        (tmp_path / "cat" / name).write_bytes(b"\xd0\xcf\x11\xe0 no image")
    (tmp_path / "readme.txt").write_text("BMW and other cars, no image")
    os.mkfifo(tmp_path / "cat" / "pipe")
    assert [path.name for path in scan(tmp_path, 8).paths] == ["1.png"]


def test_images_count_by_content_whatever_their_suffix(tmp_path: Path) -> None:
    kinds = ("JPEG", "PNG", "GIF", "WEBP", "BMP", "TIFF")
    for grey, kind in enumerate(kinds):
        picture(tmp_path / "none" / kind, 10 * grey, format=kind)
        picture(tmp_path / "wrong" / f"{kind}.jpg", 10 * grey + 5, format=kind)
    picture(tmp_path / "text" / "photo.txt", 100, format="PNG")
    picture(tmp_path / "raw" / "photo.nef", 110, format="TIFF")  # a camera's raw file begins as a TIFF
    found = scan(tmp_path, 8)
    assert torch.bincount(found.labels).tolist() == [6, 1, 6] and found.names == ["none", "text", "wrong"]
    assert found.remarks == [f"Folder raw holds no photo (1 other file, such as {tmp_path}/raw/photo.nef)."]


def test_an_empty_class_folder_is_a_note(tmp_path: Path) -> None:
    picture(tmp_path / "cat" / "1.png")
    (tmp_path / "bird").mkdir()
    found = scan(tmp_path, 8)
    assert found.names == ["cat"] and found.remarks == ["Folder bird holds no photo."]


@pytest.mark.parametrize("name", ["unknown", "Unknown", "UNKNOWN ", "ｕｎｋｎｏｗｎ"])
def test_a_class_called_unknown_is_refused_with_the_reason(tmp_path: Path, name: str) -> None:
    picture(tmp_path / name / "1.png")
    with pytest.raises(BadData, match="unlike any class. Rename the folder"):
        scan(tmp_path, 8)


def test_photos_outside_class_folders_are_refused_with_the_layout(tmp_path: Path) -> None:
    picture(tmp_path / "cat" / "1.png")
    picture(tmp_path / "loose", format="JPEG")
    with pytest.raises(BadData, match=r"loose \(1 in all\) is not in a class folder; put .*/cat/1\.jpg"):
        scan(tmp_path, 8)


def test_a_folder_without_any_photo_is_refused_with_the_layout(tmp_path: Path) -> None:
    (tmp_path / "cat").mkdir()
    with pytest.raises(BadData, match=r"holds a photo that can be read; put .*/cat/1\.jpg"):
        scan(tmp_path, 8)
    with pytest.raises(BadData, match="check the spelling"):
        scan(tmp_path / "nowhere", 8)


def test_folders_of_class_folders_are_noticed(tmp_path: Path) -> None:
    for i, name in enumerate(("cat", "dog", "owl")):
        picture(tmp_path / "train" / name / "1.png", i)
    found = scan(tmp_path, 8)
    assert found.names == ["train"]
    assert "(cat, dog, owl) count as class train" in found.nested
    assert f"give {tmp_path / 'train'} instead" in found.nested
    picture(tmp_path / "train" / "4.png", 4)
    assert scan(tmp_path, 8).nested == ""


def test_links_never_lead_in_circles(tmp_path: Path) -> None:
    root, album = tmp_path / "photos", tmp_path / "album"
    picture(root / "cat" / "1.png", 10)
    picture(root / "dog" / "2.png", 20)
    picture(album / "3.png", 30)
    for name, target in (("loop", root / "cat"), ("up", root), ("further", tmp_path), ("album", album)):
        (root / "cat" / name).symlink_to(target)
    (root / "self").symlink_to(root / "self")
    found = scan(root, 8)
    assert found.names == ["cat", "dog"] and found.labels.tolist() == [0, 0, 1]


def test_names_may_be_long_and_in_any_script(tmp_path: Path) -> None:
    long = "ü" * 125 + "x.png"  # 255 bytes
    picture(tmp_path / "猫" / long, 1)
    picture(tmp_path / "🐕 à la carte" / "фото 1.jpg", 2)
    picture(tmp_path / ("z" * 255) / "'\"\n.png", 3)
    found = scan(tmp_path, 8)
    assert set(found.names) == {"猫", "🐕 à la carte", "z" * 255}
    assert len(os.fsencode(long)) == 255 and len(found) == 3


def test_a_class_has_one_name_however_its_accents_are_stored(tmp_path: Path) -> None:
    composed, apart = (unicodedata.normalize(form, "café") for form in ("NFC", "NFD"))
    picture(tmp_path / composed / "1.png", 1)
    picture(tmp_path / apart / "2.png", 2)
    found = scan(tmp_path, 8)
    assert found.names == [composed] and len(found) == 2


def test_names_that_are_no_unicode_are_told_not_fatal(tmp_path: Path) -> None:
    broken = picture(tmp_path / "cat" / os.fsdecode(b"caf\xe9.png"))
    assert scan(tmp_path, 8).paths == [broken]
    broken.write_bytes(b"")
    with pytest.raises(BadData, match="caf\\\\xe9.png is an empty file"):
        scan(tmp_path, 8)
    picture(tmp_path / os.fsdecode(b"caf\xe9") / "1.png")
    with pytest.raises(BadData, match="not valid UTF-8. Rename the folder .*caf\\\\xe9"):
        scan(tmp_path, 8)


@pytest.mark.parametrize("n", [1000, pytest.param(10_000, marks=pytest.mark.slow)])
def test_many_photos_are_scanned_a_few_at_a_time(tmp_path: Path, n: int) -> None:
    content = picture(tmp_path / "cat" / "0.png").read_bytes()
    for i in range(1, n):
        (tmp_path / "cat" / f"{i}.png").write_bytes(content + struct.pack("I", i))
    done: list[int] = []
    found = scan(tmp_path, 8, on_event=lambda event: done.append(event["done"] + (event["event"] == "decode") * n))
    assert len(found) == len(found.ids.unique()) == n and done[-1] == 2 * n
    assert done == sorted(done) and len(done) > n / 25


# Files


def test_broken_photos_are_refused_by_name_or_listed(tmp_path: Path) -> None:
    good = picture(tmp_path / "cat" / "good.png")
    truncated = tmp_path / "cat" / "holiday.jpg"
    Image.fromarray(scene(0)).save(truncated)
    truncated.write_bytes(truncated.read_bytes()[:-3000])
    (tmp_path / "dog").mkdir()
    (tmp_path / "dog" / "empty.png").write_bytes(b"")
    (tmp_path / "dog" / "iphone.HEIC").write_bytes(b"\0\0\0\x18ftypheic")
    (tmp_path / "dog" / "renamed.jpg").write_bytes(b"\0\0\0\x18ftypmif1" + bytes(99))
    (tmp_path / "dog" / "gone.jpg").symlink_to(tmp_path / "nowhere.jpg")
    with pytest.raises(BadData) as refusal:
        scan(tmp_path, 8)
    message = str(refusal.value)
    assert message.startswith(f"{truncated} cannot be read as an image (image file is truncated")
    assert "5 in all:" in message and "empty.png" in message and "--skip-bad" in message
    found = scan(tmp_path, 8, skip_bad=True)
    assert found.paths == [good] and len(found.skipped) == 5 and found.names == ["cat"]
    for photo in ("iphone.HEIC", "renamed.jpg"):
        assert any(photo in line and "export it as JPEG" in line for line in found.skipped)


def test_a_file_that_may_not_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    picture(tmp_path / "cat" / "private.png")

    def refuse(path: Path, mode: str) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("triphase.data.sources.files.open", refuse, raising=False)
    with pytest.raises(BadData, match=r"private\.png cannot be read \(Permission denied\); allow reading it"):
        scan(tmp_path, 8)


def test_copies_within_a_class_count_once(tmp_path: Path) -> None:
    first = picture(tmp_path / "cat" / "1.png", 5)
    (tmp_path / "cat" / "copy of 1.png").write_bytes(first.read_bytes())
    (tmp_path / "cat" / "linked.png").hardlink_to(first)
    found = scan(tmp_path, 8)
    assert found.paths == [first] and found.repeats == 2


def test_the_same_photo_in_two_classes_is_refused_with_both_names(tmp_path: Path) -> None:
    one = picture(tmp_path / "cat" / "1.png", 5)
    two = tmp_path / "dog" / "rex.jpeg"
    two.parent.mkdir()
    two.write_bytes(one.read_bytes())
    with pytest.raises(BadData) as refusal:
        scan(tmp_path, 8)
    assert str(one) in str(refusal.value) and str(two) in str(refusal.value)


def test_photos_taught_before_are_counted_and_corrected_ones_marked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for i in range(4):
        picture(tmp_path / "cat" / f"{i}.png", i)
    before = scan(tmp_path, 8)
    taught = dict.fromkeys(before.ids.tolist(), "cat")
    (tmp_path / "dog").mkdir()
    (tmp_path / "cat" / "0.png").rename(tmp_path / "dog" / "renamed.png")
    new = picture(tmp_path / "cat" / "new.png", 99)
    decoded: list[Path] = []

    def noted(path: Path, sizes: Sequence[int]) -> list[torch.Tensor]:
        decoded.append(path)
        return decode_sizes(path, sizes)

    monkeypatch.setattr(scan_module, "decode_sizes", noted)
    after = scan(tmp_path, 8, taught=taught)
    assert after.paths == [new, tmp_path / "dog" / "renamed.png"] == sorted(decoded)
    assert after.known_already == {"cat": 3} and after.corrected.tolist() == [False, True]
    taught |= {int(id): after.names[label] for id, label in zip(after.ids, after.labels, strict=True)}
    again = scan(tmp_path, 8, Budget(0), taught=taught)
    assert len(again) == 0 and again.known_already == {"cat": 4, "dog": 1} and again.names == ["cat", "dog"]
    assert again.images.read(torch.arange(0)).shape == (0, 3, 8, 8)


def test_a_model_beside_the_photos_is_no_folder_without_photos(tmp_path: Path) -> None:
    (tmp_path / "cat").mkdir()
    Image.fromarray(scene(0)).save(tmp_path / "cat" / "0.png")
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "LOCK").touch()
    assert scan(tmp_path, 8).remarks == []


def test_a_photo_is_decoded_once_for_both_of_its_squares(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for i, suffix in enumerate(("png", "jpg", "webp")):
        path = tmp_path / "cat" / f"{i}.{suffix}"
        path.parent.mkdir(exist_ok=True)
        Image.fromarray(scene(i)).save(path)
    expected = torch.stack([decode(path, 128) for path in sorted((tmp_path / "cat").iterdir())])
    thumbnails = torch.stack([decode(path, HASH_SIZE) for path in sorted((tmp_path / "cat").iterdir())])
    opened: list[Path] = []

    def noted(path: Path, start: bytes) -> Image.Image:
        opened.append(path)
        return open_image(path, start)

    monkeypatch.setattr(decoding, "_open", noted)
    found = scan(tmp_path, 128, Budget(1 << 20))
    assert torch.equal(found.images.read(torch.arange(3)), expected)
    assert torch.equal(found.hashes, dhash(thumbnails))
    found.images.read(torch.arange(3))
    assert sorted(opened) == found.paths


@pytest.mark.parametrize("size", [32, 160])
def test_what_is_learned_of_a_large_jpeg_is_what_decoding_it_alone_gives(tmp_path: Path, size: int) -> None:
    path = tmp_path / "cat" / "large.jpg"
    path.parent.mkdir()
    Image.fromarray(scene(0, 1500)).save(path)
    found = scan(tmp_path, size, Budget(1 << 20))
    assert torch.equal(found.images.read(torch.arange(1))[0], decode(path, size))


def test_pixels_beyond_the_budget_are_kept_in_a_file(tmp_path: Path) -> None:
    for i in range(5):
        picture(tmp_path / "cat" / f"{i}.png", 40 * i)
    budget = Budget(1000)
    found = scan(tmp_path, 16, budget)
    assert budget.used == 0
    assert found.images.read(torch.arange(5))[:, 0, 0, 0].tolist() == [0, 40, 80, 120, 160]


def test_rows_of_photos_that_are_skipped_do_not_shift_the_others(tmp_path: Path) -> None:
    for i in range(6):
        picture(tmp_path / "cat" / f"{i}.png", 40 * i)
    (tmp_path / "cat" / "2.png").write_bytes(b"no image")
    (tmp_path / "cat" / "3.png").write_bytes(b"no image")
    found = scan(tmp_path, 16, Budget(1 << 20), skip_bad=True)
    assert found.images.read(torch.arange(4))[:, 0, 0, 0].tolist() == [0, 40, 160, 200]
    assert len(found.skipped) == 2, "a broken copy is listed as well"
    assert found.images.ids.tolist() == found.ids.tolist()


@pytest.mark.parametrize(
    ("meddle", "words"),
    [(lambda path: path.unlink(), "; check the spelling"), (lambda path: picture(path, 200), " was changed while")],
    ids=["vanished", "changed"],
)
def test_a_photo_that_changes_between_hashing_and_decoding_is_named(
    tmp_path: Path, meddle: Callable[[Path], Any], words: str
) -> None:
    path = picture(tmp_path / "cat" / "restless.png", 3)
    os.utime(path, (1, 1))

    def on_event(event: dict[str, Any]) -> None:
        if event["event"] == "scan":
            meddle(path)

    with pytest.raises(BadData, match=rf"restless\.png{words}"):
        scan(tmp_path, 8, on_event=on_event)


def test_large_images_are_decoded_one_after_the_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("triphase.data.decoding.LARGE", 30)  # below the 36 pixels of these
    for i in range(6):
        picture(tmp_path / "cat" / f"{i}.png", i)
    assert len(scan(tmp_path, 8)) == 6


PEAK = """
import re, struct, sys
from pathlib import Path
from PIL import Image
from triphase.app.scan import scan
from triphase.budget import Budget
root = Path(sys.argv[1])
Image.new("RGB", (2000, 1500), (9, 99, 199)).save(root / "0.png", compress_level=1)
content = (root / "0.png").read_bytes()
(root / "0.png").unlink()
for n in (12, 48):
    for i in range(n):
        (root / str(n) / "cat").mkdir(parents=True, exist_ok=True)
        (root / str(n) / "cat" / f"{i}.png").write_bytes(content + struct.pack("I", i))
    assert len(scan(root / str(n), 64, Budget(0))) == n
    print(re.search(r"VmHWM:\\s*(\\d+)", Path("/proc/self/status").read_text())[1])  # ru_maxrss is the parent's
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="asks Linux for the peak")
def test_memory_does_not_grow_with_the_number_of_photos(tmp_path: Path) -> None:
    command = [sys.executable, "-c", PEAK, str(tmp_path)]
    few, many = map(int, subprocess.run(command, capture_output=True, text=True, check=True).stdout.split())
    growth = 36 * 2000 * 1500 * 3 // 1000  # in KB, if all photos were held at once
    assert many - few < growth / 2, "how many are decoded at the same time varies"
