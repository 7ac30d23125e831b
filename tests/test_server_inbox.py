"""Photos that answers were unsure of, and thumbnails of those that were taught."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from lessons import World
from serving import SMALL, Served, serving
from triphase.server.options import ServeOptions


@pytest.fixture
def served(world: World) -> Iterator[Served]:
    with serving(ServeOptions(world.base, keep_unsure=1_000_000)) as served:
        yield served


@pytest.fixture
def strange(tmp_path: Path) -> list[Path]:
    """Pictures unlike anything that was taught: two of noise, one checked."""
    noise = np.random.default_rng(0).integers(0, 256, (3, 12, 12, 3), dtype=np.uint8)
    noise[2, ::2] = 255
    noise[2, 1::2] = 0
    files = [tmp_path / f"strange{i}.png" for i in range(3)]
    for file, pixels in zip(files, noise, strict=True):
        Image.fromarray(pixels).save(file)
    return files


def unsure(served: Served, files: list[Path]) -> list[str]:
    """Ids of the answers that are unknown, or hardly more probable than the next."""
    answers = served.upload("/predict?top=2", files)["answers"]
    return [
        a["id"] for a in answers if not a["known"] or a["top"][0]["probability"] - a["top"][1]["probability"] < 0.5
    ]


def test_unsure_photos_are_kept_and_labelled(served: Served, world: World, strange: list[Path]) -> None:
    kept = unsure(served, [*strange, world.test / "red" / "100.png"])
    assert kept
    inbox = served.get("/inbox")
    assert sorted(photo["id"] for photo in inbox["photos"]) == sorted(kept)
    assert inbox["total"] == len(kept) and 0 < inbox["bytes"] <= inbox["max_bytes"] == 1_000_000
    assert served.get("")["inbox"] == len(kept)
    first = inbox["photos"][0]
    assert first["reason"].endswith(".") and 0 <= first["doubt"] <= 2 and first["group"] >= 0
    picture = served.client.get(first["thumbnail"])
    assert Image.open(io.BytesIO(picture.content)).size == (128, 128)
    served.post("/inbox/label", {"photos": [first["id"]], "label": "noise"}, 204)
    assert [(p["id"], p["label"]) for p in served.get("/drafts/next")["photos"]] == [(first["id"], "noise")]
    assert first["id"] not in [photo["id"] for photo in served.get("/inbox")["photos"]]
    assert "no photo" in served.post("/inbox/label", {"photos": [first["id"]], "label": "noise"}, 404)["detail"]


def test_the_inbox_can_be_emptied(served: Served, strange: list[Path]) -> None:
    kept = unsure(served, strange)
    served.post("/inbox/remove", {"photos": kept[:1]}, 204)
    assert len(served.get("/inbox")["photos"]) == len(kept) - 1
    assert served.client.delete(f"{served.model}/inbox").status_code == 204
    assert served.get("/inbox")["photos"] == []


def test_nothing_is_kept_unless_it_is_wanted(world: World, served: Served, strange: list[Path]) -> None:
    served.upload("/predict?keep=false", strange)
    assert served.get("/inbox")["photos"] == []


def test_by_default_nothing_is_kept(world: World, strange: list[Path]) -> None:
    with serving(ServeOptions(world.base)) as served:
        served.upload("/predict", strange)
        assert served.get("/inbox") == {"photos": [], "total": 0, "bytes": 0, "max_bytes": 0}


def test_unknown_photos_of_a_request_are_grouped(served: Served, world: World, strange: list[Path]) -> None:
    answers = served.upload("/predict?group=true", [*strange, world.test / "red" / "100.png"])["answers"]
    for answer in answers:
        assert (answer["group"] is None) == answer["known"]


def test_taught_photos_have_thumbnails_until_they_are_forgotten(world: World, tmp_path: Path) -> None:
    with serving(ServeOptions(tmp_path / "m")) as served:
        served.draft(world.one)
        served.lesson(options=SMALL)
        classes = {c["name"]: c["thumbnails"] for c in served.get("/classes")["classes"]}
        assert {name: len(thumbnails) for name, thumbnails in classes.items()} == {
            "blue": 10,
            "green": 10,
            "red": 10,
        }
        picture = served.client.get(classes["red"][0])
        assert picture.headers["content-type"] == "image/jpeg"
        assert Image.open(io.BytesIO(picture.content)).convert("RGB").resize((1, 1)).getpixel((0, 0))[0] > 150  # type: ignore[index]
        served.post("/forget", {"label": "red"})
        gone = served.client.get(classes["red"][0])
        assert gone.status_code == 404 and "no thumbnail" in gone.json()["detail"]
        nearest = served.upload("/predict?nearest=2", [world.test / "green" / "100.png"])["answers"][0]["nearest"]
        assert all(served.client.get(photo["thumbnail"]).status_code == 200 for photo in nearest)


def test_a_model_can_be_taught_without_thumbnails(world: World, tmp_path: Path) -> None:
    with serving(ServeOptions(tmp_path / "m", thumbnails=False)) as served:
        served.draft(world.one)
        served.lesson(options=SMALL)
        assert [c["thumbnails"] for c in served.get("/classes")["classes"]] == [[], [], []]
    assert not (tmp_path / "m" / "thumbnails.safetensors").exists()
