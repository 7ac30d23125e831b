"""What goes wrong beside the request itself: a sentence that helps, and the status that fits."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from typing import Any

import pytest
from starlette.formparsers import MultiPartParser

from lessons import World
from serving import Served, serving
from triphase.server.options import ServeOptions


@pytest.fixture
def served(world: World) -> Iterator[Served]:
    with serving(ServeOptions(world.base)) as served:
        yield served


@pytest.mark.parametrize("body", [b'{"old": "red", "new": "\xff"}', b"[" * 100_000], ids=["not UTF-8", "deep"])
def test_a_body_that_cannot_be_read_is_no_mistake_of_the_server(served: Served, body: bytes) -> None:
    answer = served.client.post(
        served.model + "/rename", content=body, headers={"content-type": "application/json"}
    )
    assert answer.status_code == 400 and "send JSON in UTF-8" in answer.json()["detail"]


def test_an_upload_that_finds_no_room_on_the_disk_says_so(
    served: Served, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*arguments: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(MultiPartParser, "parse", full)
    problem = served.upload("/predict", [world.test / "red" / "100.png"], 507)
    assert "No space left on device" in problem["detail"] and "look at its disk" in problem["detail"]


def test_a_damaged_model_is_named_and_is_no_mistake_of_the_server(served: Served, world: World) -> None:
    (world.base / "CURRENT").write_bytes(b"\xff\xfe")
    for path in ("", "/classes", "/versions"):
        assert "CURRENT is damaged" in served.get(path, 409)["detail"]
    assert "restore it" in served.post("/undo", status=409)["detail"]
    assert "is damaged" in served.client.get("/api/v1/models").json()["detail"]


def test_head_is_answered_as_get_without_the_body(served: Served) -> None:
    for path in ("/", "/index.html", "/healthz", "/api/v1/models", served.model, "/nothing"):
        head, get = served.client.head(path), served.client.get(path)
        assert head.status_code == get.status_code and head.content == b""
        assert head.headers["content-length"] == get.headers["content-length"]


@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
def test_a_path_that_is_not_there_is_404_for_every_method(served: Served, method: str) -> None:
    for path in ("/api/v1/nothing", "/nothing.js", "/healthz/", f"{served.model}/nothing"):
        answer = served.client.request(method, path)
        assert answer.status_code == 404 and "There is nothing at" in answer.json()["detail"]


def test_a_method_that_a_path_does_not_take_is_405(served: Served) -> None:
    for method, path in (("GET", f"{served.model}/rename"), ("POST", "/healthz"), ("DELETE", served.model)):
        answer = served.client.request(method, path)
        assert answer.status_code == 405 and f"does not take {method}" in answer.json()["detail"]
