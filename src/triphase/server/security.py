"""Access control: every request is checked here first, for its host, token, origin and size."""

from __future__ import annotations

import asyncio
import base64
import binascii
import hmac
import re
import secrets
import socket
import time
from collections.abc import Collection
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, urlencode

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from triphase.errors import InvalidValue
from triphase.server.limits import Limits
from triphase.server.problems import Refused, respond

LOOPBACK = ("localhost", "127.0.0.1", "::1")
ALL_INTERFACES = ("0.0.0.0", "::")
READS = ("GET", "HEAD")
MIN_TOKEN = 16  # characters
SECURITY_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; "
        "media-src 'self' blob:; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(self), microphone=(), geolocation=()",
}


@dataclass(frozen=True)
class Access:
    """What a request must present: a known host, and the token or the cookie."""

    token: str
    port: int
    hosts: frozenset[str]  # names and addresses that this server answers for
    secure: bool = False  # whether it speaks TLS
    cookie: str = field(default_factory=lambda: secrets.token_urlsafe(32))

    def __post_init__(self) -> None:
        if len(self.token) < MIN_TOKEN or not self.token.isascii() or not self.token.isprintable():
            raise InvalidValue(
                f"The token must have at least {MIN_TOKEN} printable ASCII characters: whoever can reach this "
                "server could guess a shorter one. Leave --token-file out to have one made."
            )

    @property
    def cookie_name(self) -> str:
        """Cookies ignore ports, so the port is in the name: two servers on one machine keep their own."""
        return f"triphase-{self.port}"

    @property
    def set_cookie(self) -> str:
        """The header that gives a browser its cookie."""
        secure = "; Secure" if self.secure else ""
        return f"{self.cookie_name}={self.cookie}; Path=/; HttpOnly; SameSite=Strict{secure}"


def allowed_hosts(host: str, names: Collection[str] = ()) -> frozenset[str]:
    """The host names of this server: loopback, the address it listens on, and names that were given."""
    found = {*LOOPBACK, host, *names}
    if host in ALL_INTERFACES:
        name = socket.gethostname()
        found |= {name, f"{name}.local"}
        try:
            found |= {str(info[4][0]) for info in socket.getaddrinfo(name, None)}
        except OSError:
            pass  # the name of this machine does not resolve; --allow-host can name it
    return frozenset(name.lower() for name in found - set(ALL_INTERFACES))


class Guard:
    """Checks host, token, origin and size, and gives every answer its security headers."""

    def __init__(
        self,
        app: ASGIApp,
        access: Access,
        limits: Limits,
        public: Collection[str],
        basic: str = "",
    ) -> None:
        """`public` paths need no token; those that match `basic` also take it as a password (RFC 7617)."""
        self.app, self.access, self.limits = app, access, limits
        self.public, self.basic = frozenset(public), re.compile(basic)
        self.requests = self.bytes_in_flight = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        try:
            redirect = self._check(scope, headers)
            length = self._length(headers)
            self._check_load(length)
        except Refused as error:
            response = respond(error.status, str(error), {"Connection": "close", **error.headers})
            await response(scope, receive, _secured(send))
            return
        if redirect is not None:
            await redirect(scope, receive, _secured(send))
            return
        self.requests += 1
        self.bytes_in_flight += length
        try:
            body = _Body(receive, _secured(send), self.limits, length)
            await self.app(scope, body.receive, body.send)
        finally:
            self.requests -= 1
            self.bytes_in_flight -= length

    def _check(self, scope: Scope, headers: Headers) -> Response | None:
        """Refuse what must not be answered; a redirect if the token came in the address."""
        if _host_name(headers.get("host", "")) not in self.access.hosts:
            raise Refused(421, "This server does not answer for that host name; start it with --allow-host NAME.")
        path, method = scope["path"], scope["method"]
        if method in READS and (exchange := self._exchange(scope)) is not None:
            return exchange
        by_cookie = self._check_token(path, method, headers)
        self._check_origin(scope, headers, by_cookie)
        return None

    def _exchange(self, scope: Scope) -> Response | None:
        """Exchange the token in the address for a cookie, by a redirect without it; None if there is none."""
        query = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        given = [value for name, value in query if name == "token"]
        if not given:
            return None
        if not _same(given[0], self.access.token):
            raise Refused(401, "The token in this address is not the one of this server; it may have restarted.")
        rest = urlencode([(name, value) for name, value in query if name != "token"])
        path = "/" + scope["path"].lstrip("/\\")  # two slashes would name another host
        where = Headers(scope=scope)["host"]
        response = RedirectResponse(f"{scope['scheme']}://{where}{path}{rest and '?' + rest}", 303)
        response.headers["Set-Cookie"] = self.access.set_cookie
        response.headers["Cache-Control"] = "no-store"
        return response

    def _check_token(self, path: str, method: str, headers: Headers) -> bool:
        """Refuse a request without the token or the cookie; whether it was the cookie."""
        kind, _, given = headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer":
            if _same(given.strip(), self.access.token):
                return False
            raise Refused(401, "The token is not the one of this server; it may have restarted.", _CHALLENGE)
        if kind.lower() == "basic" and self.basic.fullmatch(path) and _same(_password(given), self.access.token):
            return False
        if any(_same(value, self.access.cookie) for value in _cookies(headers, self.access.cookie_name)):
            return True
        if path in self.public and method in READS:
            return False
        raise Refused(
            401,
            "This needs the token that the server printed when it was started: open the address that it printed, "
            "or send the token in the header Authorization: Bearer TOKEN.",
            _CHALLENGE,
        )

    def _check_origin(self, scope: Scope, headers: Headers, by_cookie: bool) -> None:
        """Refuse what another site sends through a browser."""
        path, write = scope["path"], scope["method"] not in READS
        if not write and path in self.public:
            return
        if headers.get("sec-fetch-site", "none") not in ("same-origin", "none"):
            raise Refused(403, "The request comes from another site.")
        origin, own = headers.get("origin"), f"{scope['scheme']}://{headers['host']}"
        if write and (origin != own if origin is not None else by_cookie):
            raise Refused(403, "The request comes from another site.")

    def _length(self, headers: Headers) -> int:
        """The size of the body, which must be known and within bounds."""
        if "transfer-encoding" in headers:
            raise Refused(411, "A body needs a Content-Length; send it in one piece, not chunked.")
        given = headers.get("content-length", "0")
        length = int(given) if given.isascii() and given.isdigit() else -1
        upload = headers.get("content-type", "").lower().startswith("multipart/form-data")
        limit = self.limits.upload_bytes if upload else self.limits.json_bytes
        if not 0 <= length <= limit:
            raise Refused(413, f"The body may have at most {limit:,} bytes; send less at a time.")
        return length

    def _check_load(self, length: int) -> None:
        full = self.requests >= self.limits.requests
        if full or (length and self.bytes_in_flight + length > self.limits.bytes_in_flight):
            raise Refused(503, "Too many requests at once; try again in a moment.", {"Retry-After": "1"})


class _Body:
    """The body of a request, which must keep coming, and the answer to it."""

    def __init__(self, receive: Receive, send: Send, limits: Limits, length: int) -> None:
        self._receive, self._send, self._limits = receive, send, limits
        self._left, self._length, self._begun = length, length, time.monotonic()
        self._answered = self._ended = False

    async def receive(self) -> Message:
        """The next part of the body; one that comes too slowly is answered with 408, then disconnected."""
        if self._ended:
            return {"type": "http.disconnect"}
        if self._left <= 0:
            return await self._receive()
        try:
            message = await asyncio.wait_for(self._receive(), self._limits.idle_seconds)
        except asyncio.TimeoutError:
            return await self._give_up()
        self._left -= len(message.get("body", b""))
        if message["type"] != "http.request" or not message.get("more_body", False):
            self._left = 0
        elapsed = time.monotonic() - self._begun
        slow = self._length - self._left < self._limits.bytes_per_second * elapsed
        if self._left and slow and elapsed > self._limits.idle_seconds:
            return await self._give_up()
        return message

    async def send(self, message: Message) -> None:
        """Pass the answer on, unless the request was given up."""
        if self._ended:
            return
        self._answered = True
        await self._send(message)

    async def _give_up(self) -> Message:
        if not self._answered:
            response = respond(408, "The body came too slowly; send it again.", {"Connection": "close"})
            await response({"type": "http"}, self._receive, self._send)
        self._ended = True
        return {"type": "http.disconnect"}


_CHALLENGE = {"WWW-Authenticate": "Bearer"}


def _same(given: str, expected: str) -> bool:
    return hmac.compare_digest(given.encode("utf-8", "surrogatepass"), expected.encode())


def _host_name(host: str) -> str:
    """The name in a Host header, without port and brackets."""
    name = host.rsplit("]", 1)[0].lstrip("[") if host.startswith("[") else host.rsplit(":", 1)[0]
    return name.lower().rstrip(".")


def _cookies(headers: Headers, name: str) -> list[str]:
    pairs = [part.strip().partition("=") for line in headers.getlist("cookie") for part in line.split(";")]
    return [value for key, _, value in pairs if key == name]


def _password(credentials: str) -> str:
    try:
        text = base64.b64decode(credentials.strip(), validate=True).decode("utf-8")
    except (binascii.Error, UnicodeDecodeError, ValueError):
        return ""
    return text.partition(":")[2]


def _secured(send: Send) -> Send:
    """A `send` that adds the security headers to every answer."""

    async def secured(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(raw=message.setdefault("headers", []))
            for name, value in SECURITY_HEADERS.items():
                headers[name] = value
            headers.setdefault("Cache-Control", "no-store")
        await send(message)

    return secured
