"""Where the server listens, and what it says to those who do not speak HTTP."""

import json
import socket
from pathlib import Path

import pytest

from serving import serving
from triphase.server.options import ServeOptions
from triphase.server.run import Address, listen


def test_an_answer_does_not_wait_for_the_acknowledgement_of_its_beginning() -> None:
    with listen(Address(port=0)) as listening, socket.create_connection(listening.getsockname()):
        connection, _ = listening.accept()
        with connection:
            assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0


def test_what_is_no_http_gets_a_problem_document(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    lines = (
        b"\x16\x03\x01\x02\x00",
        b"GET /a b c HTTP/1.1\r\nHost: localhost",
        b"GET / HTTP/1.1",
        b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: -5",
        b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: " + b"9" * 5000,
        b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nContent-Length: 6",
    )
    with serving(ServeOptions(tmp_path / "m")) as served:
        port = int(served.url.rpartition(":")[2])
        for line in lines:
            with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
                connection.sendall(line + b"\r\n\r\n")
                head, _, body = connection.makefile("rb").read().partition(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 400 ") and b"application/problem+json" in head and b"nosniff" in head
            assert "its first line and its headers" in json.loads(body)["detail"]
    assert "Traceback" not in caplog.text
