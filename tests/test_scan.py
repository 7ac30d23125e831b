"""Photos as they lie on disks: every kind of file and folder, near-duplicates, and what is kept for measuring."""

import io
import os
import struct
import subprocess
import sys
import unicodedata
import warnings
import zlib
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image, ImageOps

from triphase.app import near_duplicates as alike
from triphase.app import scan as photos_module
from triphase.app.near_duplicates import SIDE, dhash, near_duplicates, near_stored, split_exemplars, whole_groups
from triphase.app.scan import scan
from triphase.data.images import decode, resize
from triphase.errors import BadData, InvalidValue
from triphase.randomness import generator, keys

PNG = b"\x89PNG\r\n\x1a\n"


def picture(path: Path, grey: int = 0, **options: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("L", (6, 6), grey).save(path, **options)
    return path


def scene(seed: int, side: int = 300) -> NDArray[np.uint8]:
    """A picture with large and small shapes, as photos have."""
    draws = torch.rand(4, 3, 12, 12, generator=generator(seed, "scene"))
    layers = [
        torch.nn.functional.interpolate(draws[i : i + 1, :, :n, :n], (side, side), mode="bicubic")
        for i, n in enumerate((3, 5, 8, 12))
    ]
    mixed = sum(layer / 2**i for i, layer in enumerate(layers))
    assert isinstance(mixed, torch.Tensor)
    return (mixed[0] * 110 + 20).clamp(0, 255).permute(1, 2, 0).byte().numpy()


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


# Folders


def test_a_folder_is_scanned_class_by_class(tmp_path: Path) -> None:
    dog, far = picture(tmp_path / "dog" / "1.PNG", 10), picture(tmp_path / "dog" / "2024" / "may" / "2.jpg", 20)
    cat = picture(tmp_path / "cat" / "3.bmp", 30)
    events: list[dict[str, Any]] = []
    found = scan(tmp_path, watch=events.append)
    assert found.names == ["cat", "dog"] and found.paths == [cat, dog, far] and len(found) == 3
    assert found.labels.tolist() == [0, 1, 1] and len(found.ids.unique()) == 3
    assert found.images(4).read(torch.arange(3))[:, 0, 0, 0].tolist() == [30, 10, 20]
    assert (found.repeats, found.skipped, found.notes, found.taught) == (0, [], [], {})
    assert events == [{"event": "scan", "done": 3, "total": 3}]


def test_clutter_and_hidden_files_are_passed_over(tmp_path: Path) -> None:
    picture(tmp_path / "cat" / "1.png")
    picture(tmp_path / "cat" / ".hidden.png", 1)
    picture(tmp_path / "cat" / ".thumbnails" / "2.png", 2)
    picture(tmp_path / ".trash" / "3.png", 3)
    for name in ("Thumbs.db", ".DS_Store", "notes.txt", "clip.mp4"):
        (tmp_path / "cat" / name).write_bytes(b"\xd0\xcf\x11\xe0 no image")
    (tmp_path / "readme.txt").write_text("BMW and other cars, no image")
    os.mkfifo(tmp_path / "cat" / "pipe")
    assert [path.name for path in scan(tmp_path).paths] == ["1.png"]


def test_images_count_by_content_whatever_their_suffix(tmp_path: Path) -> None:
    kinds = ("JPEG", "PNG", "GIF", "WEBP", "BMP", "TIFF")
    for grey, kind in enumerate(kinds):
        picture(tmp_path / "none" / kind, 10 * grey, format=kind)
        picture(tmp_path / "wrong" / f"{kind}.jpg", 10 * grey + 5, format=kind)
    picture(tmp_path / "text" / "photo.txt", 100, format="PNG")
    picture(tmp_path / "raw" / "photo.nef", 110, format="TIFF")  # a camera's raw file begins as a TIFF
    found = scan(tmp_path)
    assert torch.bincount(found.labels).tolist() == [6, 1, 6] and found.names == ["none", "text", "wrong"]
    assert found.notes == [f"Folder raw holds no photo (1 other files, such as {tmp_path}/raw/photo.nef)."]


def test_an_empty_class_folder_is_a_note(tmp_path: Path) -> None:
    picture(tmp_path / "cat" / "1.png")
    (tmp_path / "bird").mkdir()
    found = scan(tmp_path)
    assert found.names == ["cat"] and found.notes == ["Folder bird holds no photo."]


@pytest.mark.parametrize("name", ["unknown", "Unknown", "UNKNOWN ", "ｕｎｋｎｏｗｎ"])
def test_a_class_called_unknown_is_refused_with_the_reason(tmp_path: Path, name: str) -> None:
    picture(tmp_path / name / "1.png")
    with pytest.raises(BadData, match="unlike any class. Rename the folder"):
        scan(tmp_path)


def test_photos_outside_class_folders_are_refused_with_the_layout(tmp_path: Path) -> None:
    picture(tmp_path / "cat" / "1.png")
    picture(tmp_path / "loose", format="JPEG")
    with pytest.raises(BadData, match=r"loose \(1 in all\) is not in a class folder; put .*/cat/1\.jpg"):
        scan(tmp_path)


def test_a_folder_without_any_photo_is_refused_with_the_layout(tmp_path: Path) -> None:
    (tmp_path / "cat").mkdir()
    with pytest.raises(BadData, match=r"holds a photo that can be read; put .*/cat/1\.jpg"):
        scan(tmp_path)
    with pytest.raises(BadData, match="check the spelling"):
        scan(tmp_path / "nowhere")


def test_folders_of_class_folders_get_a_note(tmp_path: Path) -> None:
    for i, name in enumerate(("cat", "dog", "owl")):
        picture(tmp_path / "train" / name / "1.png", i)
    found = scan(tmp_path)
    assert found.names == ["train"]
    assert "(cat, dog, owl) count as class train" in found.notes[0]
    assert f"give {tmp_path / 'train'} instead" in found.notes[0]
    picture(tmp_path / "train" / "4.png", 4)
    assert scan(tmp_path).notes == []


def test_links_never_lead_in_circles(tmp_path: Path) -> None:
    root, album = tmp_path / "photos", tmp_path / "album"
    picture(root / "cat" / "1.png", 10)
    picture(root / "dog" / "2.png", 20)
    picture(album / "3.png", 30)
    for name, target in (("loop", root / "cat"), ("up", root), ("further", tmp_path), ("album", album)):
        (root / "cat" / name).symlink_to(target)
    (root / "self").symlink_to(root / "self")
    found = scan(root)
    assert found.names == ["cat", "dog"] and found.labels.tolist() == [0, 0, 1]


def test_names_may_be_long_and_in_any_script(tmp_path: Path) -> None:
    long = "ü" * 125 + "x.png"  # 255 bytes
    picture(tmp_path / "猫" / long, 1)
    picture(tmp_path / "🐕 à la carte" / "фото 1.jpg", 2)
    picture(tmp_path / ("z" * 255) / "'\"\n.png", 3)
    found = scan(tmp_path)
    assert set(found.names) == {"猫", "🐕 à la carte", "z" * 255}
    assert len(os.fsencode(long)) == 255 and len(found) == 3


def test_a_class_has_one_name_however_its_accents_are_stored(tmp_path: Path) -> None:
    composed, apart = (unicodedata.normalize(form, "café") for form in ("NFC", "NFD"))
    picture(tmp_path / composed / "1.png", 1)
    picture(tmp_path / apart / "2.png", 2)
    found = scan(tmp_path)
    assert found.names == [composed] and len(found) == 2


def test_names_that_are_no_unicode_are_told_not_fatal(tmp_path: Path) -> None:
    broken = picture(tmp_path / "cat" / os.fsdecode(b"caf\xe9.png"))
    assert scan(tmp_path).paths == [broken]
    broken.write_bytes(b"")
    with pytest.raises(BadData, match="caf\N{REPLACEMENT CHARACTER}.png cannot be read"):
        scan(tmp_path)
    picture(tmp_path / os.fsdecode(b"caf\xe9") / "1.png")
    with pytest.raises(BadData, match="not valid UTF-8. Rename the folder .*caf\N{REPLACEMENT CHARACTER}"):
        scan(tmp_path)


@pytest.mark.parametrize("n", [1000, pytest.param(10_000, marks=pytest.mark.slow)])
def test_many_photos_are_scanned_a_few_at_a_time(tmp_path: Path, n: int) -> None:
    content = picture(tmp_path / "cat" / "0.png").read_bytes()
    for i in range(1, n):
        (tmp_path / "cat" / f"{i}.png").write_bytes(content + struct.pack("I", i))
    done: list[int] = []
    found = scan(tmp_path, watch=lambda event: done.append(event["done"]))
    assert len(found) == len(found.ids.unique()) == done[-1] == n
    assert done == sorted(done) and len(done) > n / 50


# Files


def test_broken_photos_are_refused_by_name_or_listed(tmp_path: Path) -> None:
    good = picture(tmp_path / "cat" / "good.png")
    truncated = tmp_path / "cat" / "holiday.jpg"
    Image.fromarray(scene(0)).save(truncated)
    truncated.write_bytes(truncated.read_bytes()[:-3000])
    (tmp_path / "dog").mkdir()
    (tmp_path / "dog" / "empty.png").write_bytes(b"")
    (tmp_path / "dog" / "iphone.HEIC").write_bytes(b"\0\0\0\x18ftypheic")
    (tmp_path / "dog" / "gone.jpg").symlink_to(tmp_path / "nowhere.jpg")
    with pytest.raises(BadData) as refusal:
        scan(tmp_path)
    message = str(refusal.value)
    assert message.startswith(f"{truncated} cannot be read as an image (image file is truncated")
    assert "4 in all:" in message and "empty.png" in message and "--skip-bad" in message
    found = scan(tmp_path, skip_bad=True)
    assert found.paths == [good] and len(found.skipped) == 4 and found.names == ["cat"]
    assert any("iphone.HEIC" in line and "export it as JPEG" in line for line in found.skipped)


def test_a_file_that_may_not_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    picture(tmp_path / "cat" / "private.png")

    def refuse(path: Path) -> bytes:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(photos_module, "file_digest", refuse)
    with pytest.raises(BadData, match=r"private\.png cannot be read \(Permission denied\); allow reading it"):
        scan(tmp_path)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_every_orientation_is_turned_upright(tmp_path: Path, orientation: int) -> None:
    path, exif = tmp_path / "x.png", Image.Exif()
    exif[0x0112] = orientation
    Image.fromarray(scene(0)[:200]).save(path, exif=exif)
    with Image.open(path) as image:
        upright = ImageOps.fit(ImageOps.exif_transpose(image), (32, 32), Image.Resampling.BICUBIC)
    difference = decode(path, 32).int() - torch.from_numpy(np.array(upright)).permute(2, 0, 1).int()
    assert difference.abs().max() <= 1


def test_copies_within_a_class_count_once(tmp_path: Path) -> None:
    first = picture(tmp_path / "cat" / "1.png", 5)
    (tmp_path / "cat" / "copy of 1.png").write_bytes(first.read_bytes())
    (tmp_path / "cat" / "linked.png").hardlink_to(first)
    found = scan(tmp_path)
    assert found.paths == [first] and found.repeats == 2


def test_the_same_photo_in_two_classes_is_refused_with_both_names(tmp_path: Path) -> None:
    one = picture(tmp_path / "cat" / "1.png", 5)
    two = tmp_path / "dog" / "rex.jpeg"
    two.parent.mkdir()
    two.write_bytes(one.read_bytes())
    with pytest.raises(BadData) as refusal:
        scan(tmp_path)
    assert str(one) in str(refusal.value) and str(two) in str(refusal.value)


def test_photos_taught_before_are_counted_and_moved_ones_marked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for i in range(4):
        picture(tmp_path / "cat" / f"{i}.png", i)
    before = scan(tmp_path)
    taught = dict.fromkeys(before.ids.tolist(), "cat")
    (tmp_path / "dog").mkdir()
    (tmp_path / "cat" / "0.png").rename(tmp_path / "dog" / "renamed.png")
    new = picture(tmp_path / "cat" / "new.png", 99)
    decoded: list[Path] = []

    def noted(path: Path, size: int) -> torch.Tensor:
        decoded.append(path)
        return decode(path, size)

    monkeypatch.setattr(photos_module, "decode", noted)
    after = scan(tmp_path, taught=taught)
    assert after.paths == [new, tmp_path / "dog" / "renamed.png"] == sorted(decoded)
    assert after.taught == {"cat": 3} and after.moved.tolist() == [False, True]
    taught |= {int(id): after.names[label] for id, label in zip(after.ids, after.labels, strict=True)}
    again = scan(tmp_path, taught=taught)
    assert len(again) == 0 and again.taught == {"cat": 4, "dog": 1} and again.names == ["cat", "dog"]
    assert again.images(8).read(torch.arange(0)).shape == (0, 3, 8, 8)


def test_a_jpeg_of_20000_x_20000_is_read_at_a_fraction(tmp_path: Path) -> None:
    path = tmp_path / "wide.jpg"
    path.write_bytes(jpeg(20_000, 20_000))
    assert decode(path, 32).unique().tolist() == [128]


@pytest.mark.parametrize("side", [10_000, 20_000, 60_000])
def test_images_that_would_fill_the_memory_are_refused(tmp_path: Path, side: int) -> None:
    path = tmp_path / "bomb.png"
    path.write_bytes(png(side, side, rows=10))
    with warnings.catch_warnings(), pytest.raises(BadData, match=r"bomb\.png .*pixels.*save a smaller copy"):
        warnings.simplefilter("ignore")
        decode(path, 32)


def test_a_progressive_jpeg_must_fit_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "bomb.jpg"
    Image.new("L", (8, 8), 128).save(path, progressive=True)
    content = bytearray(path.read_bytes())
    frame = content.index(b"\xff\xc2") + 5
    content[frame : frame + 4] = struct.pack(">HH", 60_000, 60_000)
    path.write_bytes(content)
    with pytest.raises(BadData, match=r"60000 x 60000 pixels.*not progressive"):
        decode(path, 32)


def test_large_images_are_decoded_one_after_the_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("triphase.data.images.LARGE", 30)  # below the 36 pixels of these
    for i in range(6):
        picture(tmp_path / "cat" / f"{i}.png", i)
    assert len(scan(tmp_path)) == 6


PEAK = """
import resource, struct, sys
from functools import partial
from pathlib import Path
from PIL import Image, ImageOps
from triphase.app.scan import scan
root = Path(sys.argv[1])
Image.new("RGB", (2000, 1500), (9, 99, 199)).save(root / "0.png", compress_level=1)
content = (root / "0.png").read_bytes()
(root / "0.png").unlink()
for n in (6, 18):
    for i in range(n):
        (root / str(n) / "cat").mkdir(parents=True, exist_ok=True)
        (root / str(n) / "cat" / f"{i}.png").write_bytes(content + struct.pack("I", i))
    assert len(scan(root / str(n))) == n
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def test_memory_does_not_grow_with_the_number_of_photos(tmp_path: Path) -> None:
    command = [sys.executable, "-c", PEAK, str(tmp_path)]
    few, many = map(int, subprocess.run(command, capture_output=True, text=True, check=True).stdout.split())
    assert many < few * 1.1


# Near-duplicates


def thumbnails(pictures: list[NDArray[np.uint8]]) -> torch.Tensor:
    return torch.cat([resize(torch.from_numpy(one).permute(2, 0, 1)[None], SIDE) for one in pictures])


def encoded_again(pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "JPEG", quality=40)
    return np.array(Image.open(buffer))


def test_bursts_form_groups_and_other_scenes_do_not() -> None:
    bursts = []
    for seed in range(8):
        one = scene(seed)
        bursts += [one, encoded_again(one), (one * 0.8).astype(np.uint8), one[3:, 3:], one[:-3, :-3]]
    groups = near_duplicates(dhash(thumbnails(bursts)), torch.zeros(40))
    assert groups.tolist() == [row // 5 * 5 for row in range(40)]


def test_photos_of_two_classes_are_never_one_group() -> None:
    assert near_duplicates(torch.zeros(4, 2).long(), torch.tensor([0, 1, 0, 1])).tolist() == [0, 1, 0, 1]


def components(hashes: list[int], labels: list[int], alike: int) -> list[int]:
    """The same, pair by pair."""
    group = list(range(len(hashes)))
    for _ in hashes:
        for i in range(len(hashes)):
            for j in range(len(hashes)):
                if labels[i] == labels[j] and bin((hashes[i] ^ hashes[j]) % 2**64).count("1") <= alike:
                    group[i] = group[j] = min(group[i], group[j])
    return group


few_bits = st.lists(st.sampled_from([0, 1, 5, 20, 62, 63]), max_size=5).map(
    lambda bits: sum(1 << b for b in set(bits))
)
signed = few_bits.map(lambda value: value - 2**64 if value >= 2**63 else value)


@given(st.lists(st.tuples(signed, st.integers(0, 1)), max_size=12), st.integers(0, 2))
@settings(deadline=None)
def test_groups_are_what_links_connect(photos: list[tuple[int, int]], alike: int) -> None:
    hashes, labels = [h for h, _ in photos], [y for _, y in photos]
    pairs = torch.tensor([(3, value) for value in hashes], dtype=torch.long).view(-1, 2)
    found = near_duplicates(pairs, torch.tensor(labels, dtype=torch.long), alike)
    assert found.tolist() == components(hashes, labels, alike)


def test_a_chain_over_many_blocks_is_one_group(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alike, "ROWS", 3)
    chain = torch.tensor([((1 << n) - 1, (1 << m) - 1) for n in range(60) for m in (n, n + 1)])
    chain = chain[torch.randperm(120, generator=generator(0, "chain"))]
    assert near_duplicates(chain, torch.zeros(120), alike=1).unique().tolist() == [0]


def test_five_thousand_photos_and_a_class_of_one() -> None:
    bits = torch.randint(-(2**62), 2**62, (2500, 2), generator=generator(0, "hashes"))
    hashes = torch.cat([bits, bits ^ 1, torch.tensor([[7, 7]])])
    labels = torch.cat([torch.zeros(5000), torch.ones(1)]).long()
    groups = near_duplicates(hashes, labels)
    assert torch.equal(groups[:2500], groups[2500:5000]) and groups[5000] == 5000
    held = split_exemplars(groups, labels, keys(0, torch.arange(5001)), limit=300)
    assert int(held.sum()) == 300 and not held[5000]


def test_near_duplicates_of_stored_photos_are_marked() -> None:
    pictures = thumbnails([scene(0)[2:, 2:], scene(1), encoded_again(scene(2))])
    stored = dhash(thumbnails([scene(0), scene(2)]))
    hashes, labels = dhash(pictures), torch.tensor([0, 0, 1])
    assert near_stored(hashes, labels, stored, torch.tensor([0, 0])).tolist() == [True, False, False]
    assert near_stored(hashes, labels, stored, torch.tensor([1, 1])).tolist() == [False, False, True]
    assert not near_stored(hashes, labels, stored[:0], labels[:0]).any()
    assert whole_groups(torch.tensor([True, False, False]), torch.tensor([1, 0, 1])).tolist() == [True, False, True]


# What is kept for measuring

classes_of_groups = st.lists(
    st.lists(st.integers(1, 6), min_size=1, max_size=8), min_size=1, max_size=3
)  # sizes of groups, per class


@given(classes_of_groups, st.integers(0, 20), st.integers(0, 1000))
@settings(deadline=None)
def test_whole_groups_are_kept_within_the_limit(classes: list[list[int]], limit: int, seed: int) -> None:
    sizes = [size for sizes in classes for size in sizes]
    groups = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))
    labels = torch.arange(len(classes)).repeat_interleave(torch.tensor([sum(part) for part in classes]))
    key = keys(seed, torch.arange(len(groups)))
    held = split_exemplars(groups, labels, key, limit)
    assert torch.equal(whole_groups(held, groups), held)
    for label, part in enumerate(classes):
        count, n = int(held[labels == label].sum()), sum(part)
        assert count <= min(limit, n // 2)
        if len(part) == 1:
            assert count == 0
        elif min(part) <= min(limit, n // 2):
            assert count > 0
    order = torch.randperm(len(groups), generator=generator(seed, "order"))
    assert torch.equal(split_exemplars(groups[order], labels[order], key[order], limit), held[order])


@pytest.mark.parametrize(("n", "expected"), [(1, 0), (2, 1), (5, 1), (10, 2), (100, 20), (400, 50)])
def test_about_a_fifth_of_single_photos_is_kept(n: int, expected: int) -> None:
    held = split_exemplars(torch.arange(n), torch.zeros(n), keys(0, torch.arange(n)), limit=50)
    assert int(held.sum()) == expected


def test_what_was_kept_before_counts_in_the_limit() -> None:
    groups, labels = torch.arange(40), torch.arange(40) % 4
    split = partial(split_exemplars, groups, labels, keys(0, groups), limit=5)
    before = split()
    held = split(kept=[1] * 4 + [2] * 5 + [3] * 9)
    assert labels[before].bincount().tolist() == [2, 2, 2, 2]
    assert labels[held].bincount(minlength=4).tolist() == [2, 1, 0, 0]
    assert torch.equal(held[labels == 0], before[labels == 0])


def test_a_large_group_is_drawn_as_often_as_a_small_one() -> None:
    groups = torch.tensor([0, 1, 2, 3, 4, 4, 4, 4])
    together = 0
    for seed in range(1000):
        held = split_exemplars(groups, torch.zeros(8), keys(seed, torch.arange(8)), limit=4, share=0.5)
        together += bool(held[4])  # it only fits if it is drawn first of five
    assert 150 < together < 250


def test_a_share_that_leaves_little_to_learn_is_refused() -> None:
    with pytest.raises(InvalidValue, match=r"at most 0\.5, got 0\.9"):
        split_exemplars(torch.arange(3), torch.zeros(3), torch.arange(3), limit=5, share=0.9)
