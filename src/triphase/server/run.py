"""Start the server: an address, a token, and a browser that opens the page."""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import socket
import threading
import webbrowser
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from triphase.errors import BadData, InvalidValue
from triphase.server.api import Application, create_app
from triphase.server.options import ServeOptions
from triphase.server.problems import MEDIA_TYPE, problem
from triphase.server.security import ALL_INTERFACES, SECURITY_HEADERS, Access, allowed_hosts

PORT = 8765
KEEP_ALIVE = 60  # seconds that a connection stays open between requests
GRACE = 5  # seconds that requests get to end when the server does


@dataclass(frozen=True)
class Address:
    """Where the server listens, and how it is called."""

    host: str = "127.0.0.1"
    port: int | None = None  # None: the usual one, or another if it is taken
    allow_hosts: Sequence[str] = ()
    certfile: Path | None = None
    keyfile: Path | None = None

    def __post_init__(self) -> None:
        if (self.certfile is None) != (self.keyfile is None):
            raise InvalidValue("TLS needs both --certfile and --keyfile.")
        for file in (self.certfile, self.keyfile):
            if file is not None and not file.is_file():
                raise BadData(f"There is no file {file}; check the spelling.")


@dataclass(frozen=True)
class Ready:
    """A server that is about to run."""

    server: uvicorn.Server
    listening: socket.socket
    url: str  # of the server, without a slash at the end
    token: str

    @property
    def page(self) -> str:
        """The address that a browser opens."""
        return f"{self.url}/?token={self.token}"

    def run(self) -> None:
        """Serve until Ctrl-C, SIGTERM or `stop`; lessons stop without loss and go on at the next start."""
        with self.listening:
            self.server.run(sockets=[self.listening])

    def stop(self) -> None:
        """Let a server that runs in another thread end."""
        self.server.handle_exit(signal.SIGTERM, None)


def prepare(options: ServeOptions, address: Address, token: str | None = None) -> Ready:
    """Bind the address, and read what is to be served."""
    token = read_token(token)
    listening = listen(address)
    try:
        port, secure = listening.getsockname()[1], address.certfile is not None
        access = Access(token, port, allowed_hosts(address.host, address.allow_hosts), secure)
        application = create_app(options, access)
    except BaseException:
        listening.close()
        raise
    url = f"{'https' if secure else 'http'}://{_shown(address.host)}:{port}"
    return Ready(_Server(_config(application, address), application), listening, url, token)


def serve(options: ServeOptions, address: Address, token: str | None, *, open_page: bool) -> None:
    """Say where the server is, open the page, and serve."""
    ready = prepare(options, address, token)
    print(f"Open {ready.page}", flush=True)
    print("Ctrl-C ends the server; a lesson stops without loss and goes on at the next start.", flush=True)
    if open_page:
        threading.Timer(0.5, webbrowser.open, [ready.page]).start()
    ready.run()


def read_token(given: str | None) -> str:
    """The given token, or a random one."""
    if given is None:
        return secrets.token_urlsafe(32)
    if not given.strip():
        raise InvalidValue(
            "The server needs a token, and the file of --token-file is empty; leave it out to have one made."
        )
    return given.strip()


def listen(address: Address) -> socket.socket:
    """A socket at the address; without a port, at the usual one or any that is free."""
    ports = (PORT, 0) if address.port is None else (address.port,)
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    for port in ports:
        try:
            listening = socket.create_server((address.host, port), family=family, backlog=2048)
            # inherited by connections: asyncio does it only for sockets that name their protocol, and then the end
            # of an answer would wait 40 ms until the client has acknowledged its beginning
            listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return listening
        except (OSError, OverflowError) as error:
            reason = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else str(error)
            fault = BadData(f"Cannot listen on {address.host}:{port} ({reason}); give another --port or --host.")
    raise fault


def _config(application: Application, address: Address) -> uvicorn.Config:
    return uvicorn.Config(
        application.asgi,
        log_level="warning",
        access_log=False,  # it would show the token in the first address
        server_header=False,
        proxy_headers=False,
        http=_timed_protocol(application.limits.idle_seconds),
        ws="none",
        lifespan="on",
        limit_concurrency=1000,
        timeout_keep_alive=KEEP_ALIVE,
        timeout_graceful_shutdown=GRACE,
        ssl_certfile=address.certfile,
        ssl_keyfile=address.keyfile,
    )


class _Server(uvicorn.Server):
    """Ends streams of events when it is asked to end."""

    def __init__(self, config: uvicorn.Config, application: Application) -> None:
        super().__init__(config)
        self._application = application

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._application.close()
        super().handle_exit(sig, frame)


def _timed_protocol(seconds: float) -> type[H11Protocol]:
    """HTTP on connections that are closed if no request has arrived on them after `seconds`."""

    class TimedProtocol(H11Protocol):
        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            asyncio.get_running_loop().call_later(seconds, self._close_if_silent)

        def _close_if_silent(self) -> None:
            if self.cycle is None and not self.transport.is_closing():
                self.transport.close()

        def send_400_response(self, msg: str) -> None:
            body = problem(400, "This is no HTTP request that can be read; look at its first line and its headers.")
            about = {"Content-Type": MEDIA_TYPE, "Content-Length": f"{len(body)}", "Connection": "close"}
            head = h11.Response(
                status_code=400, headers=[*(about | SECURITY_HEADERS).items()], reason=b"Bad Request"
            )
            for event in (head, h11.Data(data=body), h11.EndOfMessage()):
                self.transport.write(self.conn.send(event) or b"")
            self.transport.close()

    return TimedProtocol


def _shown(host: str) -> str:
    """How a browser on this machine calls the server."""
    if host in ALL_INTERFACES:
        return "127.0.0.1"
    return f"[{host}]" if ":" in host else host
