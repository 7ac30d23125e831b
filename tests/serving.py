"""A server in a thread of the test's process, and clients that talk to it over a socket."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import httpx

from triphase.server.options import ServeOptions
from triphase.server.run import Address, prepare
from triphase.server.workers import Workers

TOKEN = "a-token-that-is-long-enough"
SMALL = {"backbone": "small_cnn", "image_size": 8, "memory": 120}


@dataclass(frozen=True)
class Served:
    """A running server and a client that has its token."""

    url: str
    client: httpx.Client
    model: str  # path of the interface to the model
    token: str = TOKEN

    @property
    def page(self) -> str:
        """The address that a browser opens."""
        return f"{self.url}/?token={self.token}"

    def get(self, path: str, status: int = 200, **more: Any) -> Any:
        return _checked(self.client.get(self.model + path, **more), status)

    def post(self, path: str, body: Any = None, status: int = 200, **more: Any) -> Any:
        return _checked(self.client.post(self.model + path, json=body, **more), status)

    def upload(self, path: str, files: list[Path], status: int = 200, **fields: str) -> Any:
        parts = [("files", (file.name, file.read_bytes())) for file in files]
        return _checked(self.client.post(self.model + path, files=parts, data=fields), status)

    def draft(self, folder: Path, name: str = "next") -> None:
        """Upload class folders into a draft."""
        for label in sorted(folder.iterdir()):
            self.upload(f"/drafts/{name}/photos", sorted(label.iterdir()), label=label.name)

    def lesson(self, **body: Any) -> dict[str, Any]:
        """Begin a lesson, wait for its end, and return it."""
        begun = self.post("/lessons", {"draft": "next", **body}, 202)
        return self.finished(begun["id"])

    def finished(self, number: int) -> dict[str, Any]:
        """The lesson once it no longer runs, as its last event says."""
        return self.events(number)[-1]["data"]  # type: ignore[no-any-return]

    def events(self, number: int, last: int | None = None) -> list[dict[str, Any]]:
        headers = {} if last is None else {"Last-Event-ID": str(last)}
        answer = self.client.get(f"{self.model}/lessons/{number}/events", headers=headers, timeout=120)
        return parse_events(answer.text)


def parse_events(text: str) -> list[dict[str, Any]]:
    """Server-sent events as they were meant."""
    events = []
    for block in text.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.splitlines() if ": " in line and line[0] != ":")
        if "data" in fields:
            events.append({"id": int(fields["id"]), "event": fields["event"], "data": json.loads(fields["data"])})
    return events


@contextmanager
def serving(options: ServeOptions, address: Address | None = None, token: str | None = TOKEN) -> Iterator[Served]:
    """A server that answers, until the block ends; it starts no process before one is needed."""
    with patch.object(Workers, "warm_up", lambda workers: None):
        yield from _serving(options, address or Address(port=0), token)


def _serving(options: ServeOptions, address: Address, token: str | None) -> Iterator[Served]:
    ready = prepare(options, address, token)
    thread = threading.Thread(target=ready.run)
    thread.start()
    try:
        name = options.model.name if options.model else ""
        headers = {"Authorization": f"Bearer {ready.token}"}
        with httpx.Client(base_url=ready.url, headers=headers, timeout=60) as client:
            while not ready.server.started:
                assert thread.is_alive(), "the server did not start"
                time.sleep(0.01)
            yield Served(ready.url, client, f"/api/v1/models/{name}", ready.token)
    finally:
        ready.stop()
        thread.join(60)
        assert not thread.is_alive()


def _checked(answer: httpx.Response, status: int) -> Any:
    assert answer.status_code == status, answer.text
    return answer.json() if answer.content else None
