"""The inbox: bounded, off when it has no room, and whole after a crash."""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest.mock import patch

import pytest

from triphase import state as files
from triphase.app import inbox as module
from triphase.app.inbox import Inbox
from triphase.app.photo_keys import photo_key
from triphase.app.predictor import Answer
from triphase.data.sources.files import file_id
from triphase.errors import CannotWrite

UNSURE = Answer("unknown", 0.4, "cat", False)
ROOM = 100_000


def photo(number: int, size: int = 1000) -> bytes:
    return bytes([number]) * size


def on_disk(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*"))


def test_a_photo_is_kept_with_what_was_said_about_it(tmp_path: Path) -> None:
    inbox = Inbox(tmp_path / "inbox", ROOM)
    id_ = inbox.add(photo(1), "<b>.jpg", UNSURE)
    assert id_ is not None and inbox.add(photo(1), "again.jpg", UNSURE) == id_
    (kept,) = Inbox(tmp_path / "inbox", ROOM).photos()
    assert (kept.id, kept.name, kept.best, kept.probability, kept.known) == (id_, "<b>.jpg", "cat", 0.4, False)
    file = inbox.file(id_)
    assert file is not None and file.read_bytes() == photo(1) and file_id(file) == id_
    assert inbox.file(12345) is None
    assert kept.bytes == inbox.bytes == on_disk(tmp_path / "inbox")


def test_it_never_takes_more_than_it_may_and_the_oldest_go_first(tmp_path: Path) -> None:
    inbox = Inbox(tmp_path, 5000)
    ids = [inbox.add(photo(number), "a.jpg", UNSURE) for number in range(20)]
    assert [kept.id for kept in inbox.photos()] == ids[-4:]
    assert on_disk(tmp_path) == inbox.bytes <= 5000
    assert inbox.add(photo(99, 6000), "huge.jpg", UNSURE) is None and len(inbox.photos()) == 4
    smaller = Inbox(tmp_path, 2500)
    assert [kept.id for kept in smaller.photos()] == ids[-2:] and on_disk(tmp_path) <= 2500
    with patch.object(module, "MAX_PHOTOS", 1):
        smaller.add(photo(50), "a.jpg", UNSURE)
    assert len(smaller.photos()) == 1


def test_without_room_nothing_is_kept_and_nothing_is_made(tmp_path: Path) -> None:
    inbox = Inbox(tmp_path / "inbox", 0)
    assert inbox.add(photo(1), "a.jpg", UNSURE) is None and inbox.photos() == []
    assert not (tmp_path / "inbox").exists()


def test_photos_can_be_deleted(tmp_path: Path) -> None:
    inbox = Inbox(tmp_path, ROOM)
    first, second, third = (inbox.add(photo(number), "a.jpg", UNSURE) for number in range(3))
    assert first is not None and second is not None
    assert inbox.remove([first, first, 12345]) == 1
    assert [kept.id for kept in inbox.photos()] == [second, third]
    assert inbox.clear() == 2 and list(tmp_path.iterdir()) == [] and inbox.bytes == 0


@pytest.mark.parametrize("writes", [0, 1])
def test_a_crash_while_a_photo_is_added_leaves_no_half_of_it(tmp_path: Path, writes: int) -> None:
    inbox = Inbox(tmp_path, ROOM)
    kept = inbox.add(photo(1), "a.jpg", UNSURE)
    real, left = files.write, [writes]

    def write(path: Path, blob: bytes) -> None:
        if left[0] == 0:
            path.with_name(f".{path.name}.tmp").write_bytes(blob[:10])
            raise CannotWrite("killed")
        left[0] -= 1
        real(path, blob)

    with patch.object(files, "write", write), pytest.raises(CannotWrite):
        inbox.add(photo(2), "b.jpg", UNSURE)
    assert [p.id for p in inbox.photos()] == [kept]
    again = Inbox(tmp_path, ROOM)
    assert [p.id for p in again.photos()] == [kept] and on_disk(tmp_path) == again.bytes


def test_a_crash_while_a_photo_is_deleted_leaves_no_half_of_it(tmp_path: Path) -> None:
    inbox = Inbox(tmp_path, ROOM)
    id_ = inbox.add(photo(1), "a.jpg", UNSURE)
    assert id_ is not None
    (tmp_path / f"{photo_key(id_)}.json").unlink()
    assert Inbox(tmp_path, ROOM).photos() == [] and list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "document", ["", "[]", "{}", '{"probability": NaN, "known": true}', '{"probability": 2.0, "known": true}', "\0"]
)
def test_a_damaged_document_takes_its_photo_with_it(tmp_path: Path, document: str) -> None:
    inbox = Inbox(tmp_path, ROOM)
    first, second = (inbox.add(photo(number), "a.jpg", UNSURE) for number in range(2))
    assert first is not None
    (tmp_path / f"{photo_key(first)}.json").write_text(document)
    assert [kept.id for kept in Inbox(tmp_path, ROOM).photos()] == [second]
    assert len(list(tmp_path.iterdir())) == 2


def test_a_document_of_a_strange_name_or_without_photo_is_removed(tmp_path: Path) -> None:
    inbox = Inbox(tmp_path, ROOM)
    id_ = inbox.add(photo(1), "a.jpg", UNSURE)
    assert id_ is not None
    document = (tmp_path / f"{photo_key(id_)}.json").read_text()
    (tmp_path / "strange.json").write_text(document)
    (tmp_path / f"{photo_key(7)}.json").write_text(json.dumps(json.loads(document)))
    assert [kept.id for kept in Inbox(tmp_path, ROOM).photos()] == [id_]
    assert len(list(tmp_path.iterdir())) == 2


def test_threads_may_add_together(tmp_path: Path) -> None:
    inbox = Inbox(tmp_path, 10_000)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: inbox.add(photo(number), "a.jpg", UNSURE), range(60)))
    assert on_disk(tmp_path) == inbox.bytes <= 10_000
    assert Inbox(tmp_path, 10_000).photos() == inbox.photos()
