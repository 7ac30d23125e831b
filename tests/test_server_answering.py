"""Answers while versions change: each comes from one version, and none waits."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import httpx
import pytest

from lessons import World, done
from serving import serving
from triphase.app import manage
from triphase.errors import BadData
from triphase.server.answering import Answering, Upload
from triphase.server.options import ServeOptions
from triphase.server.pools import Pools

Result = TypeVar("Result")


def run_apart(coroutine: Coroutine[Any, Any, Result]) -> Result:
    """In a thread of its own: tests of the page leave an event loop running in this one."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, coroutine).result()


@pytest.fixture
def answering(world: World) -> Answering:
    return Answering(world.base, Pools(), max_pixels=10_000)


def upload(file: Path) -> Upload:
    return Upload(file.name, file.read_bytes())


def test_every_answer_is_of_one_version(world: World) -> None:
    photo, over = world.test / "red" / "100.png", threading.Event()
    names = {1: {"red"}}
    found: list[tuple[int, str]] = []
    with serving(ServeOptions(world.base)) as served:

        def ask() -> None:
            with httpx.Client(base_url=served.url, headers=served.client.headers, timeout=60) as client:
                while not over.is_set():
                    answer = client.post(f"{served.model}/predict", files={"files": photo.read_bytes()})
                    assert answer.status_code == 200
                    document = answer.json()
                    found.append((document["version"], document["answers"][0]["best"]))

        with ThreadPoolExecutor(3) as pool:
            clients = [pool.submit(ask) for _ in range(3)]
            for turn in range(6):
                old, new = f"red{turn}" if turn else "red", f"red{turn + 1}"
                names[served.post("/rename", {"old": old, "new": new})["version"]] = {new}
                names[served.post("/undo")["version"]] |= {old}
                names[served.post("/rename", {"old": old, "new": new})["version"]] = {new}
            over.set()
            for client in clients:
                client.result()
    assert len(found) > 10 and len({version for version, _ in found}) > 2
    assert all(best in names[version] for version, best in found)


def test_a_version_that_cannot_be_read_leaves_the_one_before(world: World, answering: Answering) -> None:
    async def scenario() -> None:
        photo = upload(world.test / "red" / "100.png")
        assert (await answering.answer([photo]))[0] == 1
        manage.rename(world.base, "red", "crimson")
        for part in (world.base / "parts").iterdir():
            part.write_bytes(b"damaged")
        version, [said] = await answering.answer([photo])
        assert (version, said.answer.best) == (1, "red")
        await asyncio.sleep(0)
        assert (await answering.answer([photo]))[0] == 1

    run_apart(scenario())


def test_a_model_that_is_not_there_is_named(tmp_path: Path) -> None:
    answering = Answering(tmp_path / "none", Pools(), max_pixels=10_000)
    with pytest.raises(BadData, match="holds no model"):
        run_apart(answering.answer([]))


def test_many_photos_are_answered_in_order(world: World, answering: Answering) -> None:
    files = sorted(world.test.rglob("*.png")) * 3
    broken = Upload("broken.jpg", b"nonsense")
    uploads = [upload(file) for file in files]
    uploads.insert(5, broken)
    _, said = run_apart(answering.answer(uploads, top=2, features=True))
    assert [one.answer.name for one in said] == [one.name for one in uploads]
    assert said[5].features is None and "broken.jpg cannot be read" in (said[5].answer.error or "")
    expected = done("predict", world.base, *files, "--json").document()["answers"]
    got = [one.answer for one in said if one.answer.error is None]
    assert [(a.label, a.best) for a in got] == [(e["label"], e["best"]) for e in expected]
    assert all(len(a.top) == 2 and a.top[0].probability == a.probability for a in got)
