"""Drafts over HTTP: what is uploaded, moved and removed, and zips that mean harm."""

from __future__ import annotations

import io
import stat
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from lessons import World
from serving import Served, serving
from triphase.server.limits import Limits
from triphase.server.options import ServeOptions

PNG = "image/png"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    limits = Limits(zip_files=50, zip_bytes=2_000_000, draft_bytes=1_000_000, zip_ratio=100)
    with serving(ServeOptions(tmp_path_factory.mktemp("drafts") / "m", limits=limits)) as served:
        yield served


@pytest.fixture(autouse=True)
def _empty(served: Served) -> Iterator[None]:
    yield
    for draft in served.get("/drafts")["drafts"]:
        assert served.client.delete(f"{served.model}/drafts/{draft['name']}").status_code == 204


def labels(served: Served, draft: str = "next") -> list[tuple[str, str]]:
    return [(photo["label"], photo["id"]) for photo in served.get(f"/drafts/{draft}")["photos"]]


def photo(number: int, size: int = 8) -> bytes:
    """A picture like no other."""
    file = io.BytesIO()
    Image.new("RGB", (size, size), (number % 256, number // 256 % 256, 99)).save(file, "PNG")
    return file.getvalue()


def make_zip(entries: dict[str, bytes], compression: int = zipfile.ZIP_STORED) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", compression) as archive:
        for name, content in entries.items():
            archive.writestr(name, content)
    return file.getvalue()


def send_zip(served: Served, content: bytes, status: int = 200) -> Any:
    answer = served.client.post(f"{served.model}/drafts/next/zip", files={"file": ("photos.zip", content)})
    assert answer.status_code == status, answer.text
    return answer.json()


def send(served: Served, name: str, content: bytes, status: int = 200, **fields: str) -> Any:
    path = f"{served.model}/drafts/next/photos"
    answer = served.client.post(path, files=[("files", (name, content))], data=fields)
    assert answer.status_code == status, answer.text
    return answer.json()


def test_photos_are_added_moved_and_removed(served: Served) -> None:
    [one] = send(served, "1.png", photo(1), label="cat")["added"]
    [two] = send(served, "2.png", photo(2), label="cat")["added"]
    assert labels(served) == [("cat", one["id"]), ("cat", two["id"])]
    assert send(served, "again.png", photo(1), label="cat")["repeated"] == 1
    assert send(served, "other.png", photo(1), label="dog")["moved"][0]["id"] == one["id"]
    served.post("/drafts/next/move", {"photos": [one["id"], two["id"]], "label": "cow"})
    assert {label for label, _ in labels(served)} == {"cow"}
    served.post("/drafts/next/remove", {"photos": [one["id"]]})
    assert labels(served) == [("cow", two["id"])]
    assert "no photo" in served.post("/drafts/next/remove", {"photos": [one["id"]]}, 404)["detail"]


def test_without_a_label_the_folder_in_the_name_is_the_class(served: Served) -> None:
    assert send(served, "pets/cat/1.png", photo(1))["added"][0]["label"] == "cat"
    assert "no class" in send(served, "1.png", photo(2), 422)["detail"]


def test_a_file_that_is_no_photo_is_named_and_the_others_are_taken(served: Served) -> None:
    parts = [("files", ("good.png", photo(1))), ("files", ("bad.jpg", b"nonsense")), ("files", ("empty.png", b""))]
    answer = served.client.post(f"{served.model}/drafts/next/photos", files=parts, data={"label": "cat"}).json()
    assert len(answer["added"]) == 1
    assert [error["name"] for error in answer["errors"]] == ["bad.jpg", "empty.png"]
    assert "bad.jpg cannot be read as an image" in send(served, "bad.jpg", b"no", 422, label="cat")["detail"]


@pytest.mark.parametrize("label", ["../../etc", "a/b", ".hidden", "unknown", "\x1b[31m", "x" * 300, "..", "a\0b"])
def test_a_class_that_no_folder_can_have_is_refused(served: Served, label: str) -> None:
    assert "cannot be called" in send(served, "1.png", photo(1), 422, label=label)["detail"]
    assert labels(served) == []


@pytest.mark.parametrize(
    "name", ["../../../evil.png", "/etc/evil.png", "..\\evil.png", "a\0.png", "\x1b[2J.png", "<b>"]
)
def test_the_name_of_a_file_leads_nowhere(served: Served, name: str) -> None:
    send(served, name, photo(7), label="cat")
    [(label, id_)] = labels(served)
    assert label == "cat" and len(id_) == 16


@pytest.mark.parametrize("draft", ["a b", "%2e%2e", "a%2fb", "x" * 65])
def test_the_name_of_a_draft_is_plain(served: Served, draft: str) -> None:
    assert served.client.get(f"{served.model}/drafts/{draft}").status_code in (400, 404)


def test_a_thumbnail_is_a_small_jpeg(served: Served) -> None:
    [added] = send(served, "large.png", photo(1, 300), label="cat")["added"]
    answer = served.client.get(f"{served.model}/drafts/next/thumbnails/{added['id']}")
    assert answer.headers["content-type"] == "image/jpeg"
    assert Image.open(io.BytesIO(answer.content)).size == (128, 128)
    assert served.client.get(f"{served.model}/drafts/next/thumbnails/{'0' * 16}").status_code == 404


def test_uploads_have_a_quota(served: Served) -> None:
    noise = io.BytesIO()
    Image.effect_noise((700, 700), 99).save(noise, "PNG")
    first = send(served, "1.png", noise.getvalue(), label="cat")
    assert first["added"]
    other = io.BytesIO()
    Image.effect_noise((900, 900), 99).save(other, "PNG")
    assert "altogether" in send(served, "2.png", other.getvalue(), 507, label="cat")["detail"]


def test_a_zip_of_class_folders_is_unpacked(served: Served) -> None:
    entries = {"photos/cat/1.png": photo(1), "photos/cat/2.png": photo(2), "photos/dog/3.png": photo(3)}
    entries |= {"photos/notes.txt": b"hello", "__MACOSX/photos/cat/._1.png": b"junk", "photos/.DS_Store": b"junk"}
    assert len(send_zip(served, make_zip(entries))["added"]) == 3
    assert sorted(label for label, _ in labels(served)) == ["cat", "cat", "dog"]


def test_class_folders_may_lie_at_the_top_of_a_zip(served: Served) -> None:
    send_zip(served, make_zip({"cat/1.png": photo(1), "dog/a/b/2.png": photo(2)}))
    assert sorted(label for label, _ in labels(served)) == ["cat", "dog"]


def test_a_single_class_folder_is_a_class(served: Served) -> None:
    send_zip(served, make_zip({"cat/1.png": photo(1), "cat/2.png": photo(2)}))
    assert {label for label, _ in labels(served)} == {"cat"}


HARMFUL = {
    "a path above": ({"cat/../../../evil.png": photo(1)}, "outside"),
    "an absolute path": ({"/etc/evil.png": photo(1)}, "outside"),
    "backslashes": ({"..\\..\\evil\\1.png": photo(1)}, "outside"),
    "a drive": ({"C:\\cat\\1.png": photo(1)}, "outside"),
    "too many files": ({f"cat/{i}.png": b"x" for i in range(51)}, "51 files"),
    "no photo": ({"cat/1.txt": b"x"}, "no photo"),
    "no class": ({"1.png": photo(1)}, "no class folder"),
    "hidden class": ({"cat/1.png": b"nonsense"}, "cannot be read"),
}


@pytest.mark.parametrize("case", HARMFUL)
def test_a_harmful_zip_is_refused(served: Served, case: str) -> None:
    entries, expected = HARMFUL[case]
    assert expected in send_zip(served, make_zip(entries), 422)["detail"]
    assert labels(served) == []


def test_a_link_in_a_zip_is_refused(served: Served) -> None:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        link = zipfile.ZipInfo("cat/1.png")
        link.external_attr = (stat.S_IFLNK | 0o777) << 16
        archive.writestr(link, "/etc/passwd")
    assert "is a link" in send_zip(served, file.getvalue(), 422)["detail"]


def test_a_zip_bomb_is_refused(served: Served) -> None:
    large = make_zip({"cat/1.png": bytes(3_000_000)}, zipfile.ZIP_DEFLATED)
    assert "unpacks to more than" in send_zip(served, large, 422)["detail"]
    dense = make_zip({"cat/1.png": bytes(1_900_000)}, zipfile.ZIP_DEFLATED)
    assert "far more than its size" in send_zip(served, dense, 422)["detail"]


def test_a_zip_that_lies_about_its_size_is_refused(served: Served) -> None:
    content = make_zip({"cat/1.png": bytes(3_000_000)}, zipfile.ZIP_DEFLATED)
    lie = content.replace((3_000_000).to_bytes(4, "little"), (1000).to_bytes(4, "little"))
    assert lie != content
    send_zip(served, lie, 422)
    assert labels(served) == []


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04nonsense", b"PK\x05\x06" + bytes(18), bytes(1000)])
def test_what_is_no_zip_is_refused(served: Served, content: bytes) -> None:
    send_zip(served, content, 422)


def test_an_upload_beside_the_schema_is_a_problem_document(served: Served) -> None:
    for body, headers in (
        (b"", {}),
        (b"nonsense", {"Content-Type": "multipart/form-data; boundary=x"}),
        (b"nonsense", {"Content-Type": "multipart/form-data"}),
        (b"{", {"Content-Type": "application/json"}),
        (b'{"photos": [1], "label": 2}', {"Content-Type": "application/json"}),
        (b'{"photos": [], "label": "a", "more": 1}', {"Content-Type": "application/json"}),
    ):
        for path in ("/drafts/next/photos", "/drafts/next/zip", "/drafts/next/move", "/predict"):
            answer = served.client.post(served.model + path, content=body, headers=headers)
            assert answer.status_code == 400, (path, body, answer.text)
            assert answer.headers["content-type"] == "application/problem+json"
            assert answer.json()["detail"]


def test_an_upload_that_cannot_be_read_says_what_to_send(served: Served) -> None:
    picture = ("files", ("x" * 5000 + ".png", b"1"))
    answer = served.client.post(served.model + "/predict", files=[picture])
    assert answer.status_code == 400 and "file names of at most" in answer.json()["detail"]
    answer = served.client.post(served.model + "/predict", data={"files": "1"}, files={"other": b"1"})
    assert answer.status_code == 400 and "a part with a file name" in answer.json()["detail"]


def test_names_that_browsers_escape_are_names_again(served: Served, world: World) -> None:
    content = next((world.one / "red").iterdir()).read_bytes()
    body = (
        b'--x\r\nContent-Disposition: form-data; name="files"; filename="6%22 nail/100%25.png"\r\n\r\n'
        + content
        + b"\r\n--x--\r\n"
    )
    headers = {"Content-Type": "multipart/form-data; boundary=x"}
    answer = served.client.post(served.model + "/drafts/next/photos", content=body, headers=headers)
    assert [(p["label"], p["name"]) for p in answer.json()["added"]] == [('6" nail', '6" nail/100%25.png')]


def test_a_model_is_taught_from_a_folder_that_was_named(world: World, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (world.two.parent / "link").symlink_to(outside)
    with serving(ServeOptions(world.base, photos=world.two.parent)) as served:
        for folder in ("../..", "/etc", "link", "nowhere", "two/\0"):
            assert "no such folder" in served.post("/lessons", {"folder": folder}, 404)["detail"]
        lesson = served.post("/lessons", {"folder": "two"}, 202)
        assert served.finished(lesson["id"])["state"] == "done"
        assert len(list(world.two.rglob("*.png"))) == 15
