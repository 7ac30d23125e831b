"""Thumbnails: bounded, removed with their photos, and never needed."""

import io
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from PIL import Image

from lessons import World, content, done, model_of, triphase
from triphase import state as files
from triphase.app import thumbnails
from triphase.app.corrections import move, take_back
from triphase.app.store.files import THUMBNAILS
from triphase.app.store.versions import Store
from triphase.app.thumbnails import Thumbnails, add, thumbnail, thumbnail_of
from triphase.data.sources.files import file_id
from triphase.errors import BadData, Busy


def photos(folder: Path) -> dict[int, Path]:
    return {file_id(file): file for file in sorted(folder.rglob("*.png"))}


def keep(model: Path, folder: Path, **options: int) -> None:
    add(model, {id_: thumbnail(file) for id_, file in photos(folder).items()}, **options)


@pytest.fixture
def shown(world: World) -> World:
    """A model with a thumbnail of each of its photos."""
    keep(world.base, world.one)
    return world


def test_a_thumbnail_is_a_small_picture(tmp_path: Path) -> None:
    Image.new("RGB", (900, 600), (200, 10, 10)).save(tmp_path / "a.png")
    image = Image.open(io.BytesIO(thumbnail(tmp_path / "a.png")))
    assert (image.format, image.size) == ("JPEG", (128, 128)) and image.getpixel((64, 64))[0] > 180  # type: ignore[index]
    assert Image.open(io.BytesIO(thumbnail_of(torch.zeros(3, 20, 40, dtype=torch.uint8)))).size == (40, 20)
    (tmp_path / "b.png").write_bytes(b"no picture")
    with pytest.raises(BadData, match="cannot be read as an image"):
        thumbnail(tmp_path / "b.png")


def test_thumbnails_survive_versions_and_the_model_answers_as_before(shown: World) -> None:
    expected = {id_: thumbnail(file) for id_, file in photos(shown.one).items()}
    done("teach", shown.base, shown.two, "--force")
    keep(shown.base, shown.two)
    expected |= {id_: thumbnail(file) for id_, file in photos(shown.two).items()}
    found = Thumbnails.open(shown.base)
    assert {id_: found.get(id_) for id_ in found.pictures} == expected and found.note == "" and len(found) == 45
    assert found.get(12345) is None
    done("undo", shown.base)
    assert len(Thumbnails.open(shown.base)) == 45


def test_only_photos_that_a_version_knows_get_one(shown: World) -> None:
    keep(shown.base, shown.test)
    assert set(Thumbnails.open(shown.base).pictures) == set(photos(shown.one))
    done("teach", shown.base, shown.two, "--force")
    keep(shown.base, shown.two)
    done("undo", shown.base)
    done("rename", shown.base, "red", "rouge")
    Store(shown.base).prune(1)
    add(shown.base, {})
    assert set(Thumbnails.open(shown.base).pictures) == set(photos(shown.one)), "those of pruned versions are gone"


def test_a_photo_that_is_taken_back_or_unlearned_loses_its_thumbnail(shown: World) -> None:
    red = photos(shown.one / "red")
    one, two, three = list(red)[:3]
    done("unteach", shown.base, red[one])
    take_back(shown.base, [two])
    move(shown.base, [three], "blue")
    left = set(Thumbnails.open(shown.base).pictures)
    assert left == set(photos(shown.one)) - {one, two}
    assert thumbnail(red[one]) not in (shown.base / THUMBNAILS).read_bytes()


def test_forgetting_a_class_removes_its_thumbnails(shown: World) -> None:
    done("forget", shown.base, "red")
    left = Thumbnails.open(shown.base)
    assert set(left.pictures) == set(photos(shown.one)) - set(photos(shown.one / "red"))


def test_forgetting_everywhere_removes_thumbnails_of_photos_that_only_old_versions_know(shown: World) -> None:
    done("teach", shown.base, shown.two, "--force")
    keep(shown.base, shown.two)
    red = photos(shown.one / "red") | photos(shown.two / "red")
    pixels = [thumbnail(file) for file in red.values()]
    done("rename", shown.base, "red", "scarlet")
    done("undo", shown.base)
    done("undo", shown.base)  # the version in use has ten of its photos, the one that was undone has fifteen
    done("forget", shown.base, "red", "--everywhere")
    blob = b"".join(content(shown.base).values())
    assert not any(picture in blob for picture in pixels)
    others = photos(shown.one) | photos(shown.two)
    assert set(Thumbnails.open(shown.base).pictures) == others.keys() - red.keys()


def test_thumbnails_are_bounded_and_classes_share_the_room(shown: World) -> None:
    size = max(len(thumbnail(file)) for file in photos(shown.one).values()) + thumbnails.ENTRY
    keep(shown.base, shown.one / "blue", max_bytes=12 * size)
    left = Thumbnails.open(shown.base)
    model = model_of(shown.base)
    counts = torch.bincount(torch.tensor([model.taught[id_] for id_ in left.pictures])).tolist()
    assert sum(counts) >= 12 and max(counts) - min(counts) <= 1
    assert sum(len(p) + thumbnails.ENTRY for p in left.pictures.values()) <= 12 * size
    red = [id_ for id_ in photos(shown.one / "red")]
    kept = [id_ for id_ in red if id_ in left.pictures]
    assert kept == red[-len(kept) :], "the oldest went first"
    add(shown.base, {}, max_bytes=0)
    assert not (shown.base / THUMBNAILS).exists()


def test_photos_that_the_version_in_use_does_not_know_go_first(shown: World) -> None:
    done("teach", shown.base, shown.two, "--force")
    keep(shown.base, shown.two)
    done("undo", shown.base)
    size = sum(len(thumbnail(file)) + thumbnails.ENTRY for file in photos(shown.one).values())
    add(shown.base, {}, max_bytes=size)
    assert set(Thumbnails.open(shown.base).pictures) == set(photos(shown.one))


def test_without_the_file_the_model_works_and_the_page_gets_a_sentence(world: World) -> None:
    assert Thumbnails.open(world.base) == Thumbnails(
        {}, "This model has no thumbnails: only photos that are taught here get one."
    )
    done("forget", world.base, "red")
    assert not (world.base / THUMBNAILS).exists()


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-20])


def garble(file: Path) -> None:
    blob = bytearray(file.read_bytes())
    blob[-1] ^= 1
    file.write_bytes(blob)


def replace(file: Path) -> None:
    files.save(file, {"ids": torch.tensor([1]), "ends": torch.tensor([9]), "pictures": torch.zeros(4).byte()})


def leave_out(file: Path) -> None:
    files.save(file, {"ids": [1, 2]})


@pytest.mark.parametrize("damage", [cut, garble, replace, leave_out], ids=lambda damage: damage.__name__)
def test_a_damaged_file_disturbs_nothing_and_goes_with_the_next_removal(
    shown: World, damage: Callable[[Path], None]
) -> None:
    damage(shown.base / THUMBNAILS)
    found = Thumbnails.open(shown.base)
    assert len(found) == 0 and found.note.startswith("The thumbnails of this model are damaged")
    done("predict", shown.base, shown.test / "red" / "100.png")
    done("forget", shown.base, "red")
    assert not (shown.base / THUMBNAILS).exists(), "nobody can tell what is in it"
    keep(shown.base, shown.one / "blue")
    assert len(Thumbnails.open(shown.base)) == 10


def test_a_folder_in_its_place_is_no_thumbnails(shown: World) -> None:
    (shown.base / THUMBNAILS).unlink()
    (shown.base / THUMBNAILS).mkdir()
    assert len(Thumbnails.open(shown.base)) == 0


def test_a_link_is_neither_followed_nor_written_to(shown: World, tmp_path: Path) -> None:
    shutil.move(shown.base / THUMBNAILS, tmp_path / "elsewhere.safetensors")
    (shown.base / THUMBNAILS).symlink_to(tmp_path / "elsewhere.safetensors")
    assert len(Thumbnails.open(shown.base)) == 0
    before = (tmp_path / "elsewhere.safetensors").read_bytes()
    answer = triphase("forget", shown.base, "red")
    assert answer.status == 1 and "is a symbolic link" in answer.err
    assert (tmp_path / "elsewhere.safetensors").read_bytes() == before


def test_while_somebody_else_writes_nothing_is_added(shown: World) -> None:
    before = content(shown.base)
    with Store(shown.base).lock(), pytest.raises(Busy):
        keep(shown.base, shown.one)
    assert content(shown.base) == before
