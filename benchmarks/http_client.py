"""A client of a server under test: one connection that is kept open."""

from __future__ import annotations

import http.client
import json
from collections.abc import Sequence
from typing import Any

TOKEN = "only-for-this-benchmark"
PATH = "/api/v1/models/model"
BOUNDARY = "photos"
MULTIPART = f"multipart/form-data; boundary={BOUNDARY}"


class Client:
    """One connection that is kept open."""

    def __init__(self, port: int) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)

    def ask(self, method: str, path: str, body: bytes, media_type: str) -> tuple[int, Any]:
        """The status and the document of an answer."""
        headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": media_type}
        self._connection.request(method, PATH + path, body, headers)
        answer = self._connection.getresponse()
        return answer.status, json.loads(answer.read() or b"null")

    def post(self, path: str, document: object) -> Any:
        """What the server answers to a document; anything but success ends the benchmark."""
        status, answer = self.ask("POST", path, json.dumps(document).encode(), "application/json")
        if status >= 300:
            raise SystemExit(f"{path}: {answer}")
        return answer

    def predict(self, body: bytes) -> tuple[int, Any]:
        """The answer about the photo of a body."""
        return self.ask("POST", "/predict", body, MULTIPART)

    def answer(self, body: bytes) -> None:
        """Ask about a photo; anything but an answer ends the benchmark."""
        status, said = self.predict(body)
        if status != 200:
            raise SystemExit(f"No answer: {said}")


def multipart(photos: Sequence[tuple[str, bytes]]) -> bytes:
    """Photos as the body of a request."""
    parts = [
        f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="files"; filename="{name}"\r\n\r\n'.encode() + photo
        for name, photo in photos
    ]
    return b"\r\n".join([*parts, f"--{BOUNDARY}--\r\n".encode()])
