"""What the server refuses, tried from outside."""

from __future__ import annotations

import base64
import http.client
import json
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from PIL import Image

from lessons import World, done, triphase
from serving import TOKEN, Served, serving
from triphase.errors import InvalidValue
from triphase.server.limits import Limits
from triphase.server.options import ServeOptions
from triphase.server.run import Address, prepare
from triphase.server.security import Access, allowed_hosts

WRITES = [("POST", "/undo"), ("POST", "/predict"), ("POST", "/lessons"), ("DELETE", "/drafts/next")]


@pytest.fixture(scope="module")
def served(original: World) -> Iterator[Served]:
    with serving(ServeOptions(original.base)) as served:
        yield served


def ask(served: Served, method: str, path: str, headers: dict[str, str], body: bytes = b"") -> tuple[int, Any]:
    """A request with exactly these headers and no others but its length."""
    connection = http.client.HTTPConnection("127.0.0.1", port(served), timeout=10)
    connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
    for name, value in {"Host": f"127.0.0.1:{port(served)}", "Content-Length": str(len(body)), **headers}.items():
        connection.putheader(name, value)
    connection.endheaders(body)
    answer = connection.getresponse()
    text = answer.read()
    connection.close()
    return answer.status, json.loads(text) if text.startswith(b"{") else text


def port(served: Served) -> int:
    return int(served.url.rpartition(":")[2])


def bearer(token: str = TOKEN) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def login(served: Served) -> str:
    """The cookie that a browser gets for the token."""
    answer = httpx.get(served.page)
    return answer.headers["set-cookie"].partition(";")[0]


# --- the token ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/api/v1/models", "/metrics", "/api/v1/openapi.json", "/api/v1/docs", "/nothing"])
@pytest.mark.parametrize("headers", [{}, bearer("wrong"), bearer(""), {"Authorization": "Bearer"}])
def test_nothing_is_told_without_the_token(served: Served, path: str, headers: dict[str, str]) -> None:
    status, problem = ask(served, "GET", path, headers)
    assert status == 401 and problem["status"] == 401 and "token" in problem["detail"]


def test_health_and_the_page_need_no_token(served: Served) -> None:
    assert ask(served, "GET", "/healthz", {})[0] == 200
    assert ask(served, "GET", "/", {})[0] == 200
    assert ask(served, "POST", "/healthz", {})[0] == 401


def test_the_token_in_the_address_becomes_a_cookie_and_is_gone(served: Served) -> None:
    answer = httpx.get(served.page + "&area=try")
    assert answer.status_code == 303
    assert answer.headers["location"] == f"{served.url}/?area=try"
    cookie = answer.headers["set-cookie"]
    assert cookie.startswith(f"triphase-{port(served)}=") and TOKEN not in cookie
    assert {"HttpOnly", "SameSite=Strict", "Path=/"} <= set(cookie.split("; "))
    assert ask(served, "GET", "/api/v1/models", {"Cookie": login(served)})[0] == 200


def test_a_wrong_token_in_the_address_is_refused(served: Served) -> None:
    assert ask(served, "GET", "/?token=wrong", {})[0] == 401
    assert ask(served, "GET", "/?token=", {})[0] == 401


def test_the_redirect_stays_on_this_host(served: Served) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port(served), timeout=10)
    connection.request("GET", f"//evil.example/?token={TOKEN}")
    location = connection.getresponse().headers["location"]
    connection.close()
    assert location == f"{served.url}/evil.example/"


def test_a_cookie_of_another_server_or_a_made_up_one_is_refused(served: Served) -> None:
    value = login(served).partition("=")[2]
    assert ask(served, "GET", "/api/v1/models", {"Cookie": f"triphase-1={value}"})[0] == 401
    assert ask(served, "GET", "/api/v1/models", {"Cookie": f"triphase-{port(served)}={TOKEN}"})[0] == 401


def test_basic_authentication_opens_nothing_but_label_studios_routes(served: Served) -> None:
    credentials = base64.b64encode(f"user:{TOKEN}".encode()).decode()
    assert ask(served, "GET", "/api/v1/models", {"Authorization": f"Basic {credentials}"})[0] == 401


def test_every_start_makes_another_token(world: World) -> None:
    with serving(ServeOptions(world.base), token=None) as one:
        first = one.token
    with serving(ServeOptions(world.base), token=None) as two:
        assert two.token != first and len(first) >= 40


# --- hosts and origins ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example", "", "localhost.evil.example:80", "[::2]"]
)
def test_a_rebound_host_name_is_refused(served: Served, host: str) -> None:
    assert ask(served, "GET", "/api/v1/models", {**bearer(), "Host": host})[0] in (400, 421)
    assert ask(served, "GET", "/healthz", {"Host": host})[0] in (400, 421)


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:1", "127.0.0.1", "[::1]:99"])
def test_this_machine_is_answered_under_any_port(served: Served, host: str) -> None:
    assert ask(served, "GET", "/api/v1/models", {**bearer(), "Host": host})[0] == 200


@pytest.mark.parametrize(("method", "path"), WRITES)
@pytest.mark.parametrize("origin", ["https://evil.example", "http://127.0.0.1", "http://127.0.0.1:1", "null", ""])
def test_another_origin_cannot_write(served: Served, method: str, path: str, origin: str) -> None:
    status, problem = ask(served, method, served.model + path, {**bearer(), "Origin": origin})
    assert status == 403 and "another site" in problem["detail"]


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
@pytest.mark.parametrize(("method", "path"), [*WRITES, ("GET", "")])
def test_a_browser_on_another_site_is_refused(served: Served, method: str, path: str, site: str) -> None:
    headers = {"Cookie": login(served), "Origin": served.url, "Sec-Fetch-Site": site}
    assert ask(served, method, served.model + path, headers)[0] == 403


def test_a_write_by_cookie_needs_an_origin(served: Served) -> None:
    rename = json.dumps({"old": "nothing", "new": "else"}).encode()
    headers = {"Cookie": login(served), "Content-Type": "application/json"}
    assert ask(served, "POST", served.model + "/rename", headers, rename)[0] == 403
    headers |= {"Origin": served.url, "Sec-Fetch-Site": "same-origin"}
    assert ask(served, "POST", served.model + "/rename", headers, rename)[0] == 422


def test_another_origin_gets_no_cors_headers(served: Served) -> None:
    answer = served.client.options(served.model, headers={"Origin": "https://evil.example"})
    assert answer.status_code == 403
    assert not [name for name in answer.headers if name.startswith("access-control")]


def test_every_answer_has_the_security_headers(served: Served) -> None:
    for path in ("/", "/healthz", "/nothing", "/api/v1/models", "/?token=wrong"):
        headers = httpx.get(served.url + path).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy and "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy and "script-src 'self';" in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["cross-origin-resource-policy"] == "same-origin"
        assert "server" not in headers


# --- starting -------------------------------------------------------------------------------------------------


def test_an_empty_or_short_token_is_refused(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("\n")
    for host in ("127.0.0.1", "0.0.0.0"):
        answer = triphase(
            "serve", tmp_path / "m", "--host", host, "--port", "0", "--token-file", token, "--no-open"
        )
        assert answer.status == 1 and "needs a token" in answer.err
    token.write_text("short\n")
    answer = triphase("serve", tmp_path / "m", "--token-file", token, "--no-open")
    assert answer.status == 1 and "at least 16" in answer.err
    assert not (tmp_path / "m.serve").exists()


def test_hosts_are_a_list(tmp_path: Path) -> None:
    assert allowed_hosts("127.0.0.1", ["Camera.local"]) == {"localhost", "127.0.0.1", "::1", "camera.local"}
    assert "0.0.0.0" not in allowed_hosts("0.0.0.0") and socket.gethostname().lower() in allowed_hosts("0.0.0.0")
    with pytest.raises(InvalidValue, match="at least 16"):
        Access("short", 1, frozenset())


def test_tls_needs_both_files_and_makes_the_cookie_secure(world: World, tmp_path: Path) -> None:
    with pytest.raises(InvalidValue, match="both"):
        Address(certfile=tmp_path / "cert.pem")
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"]
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", *subject]
    try:
        subprocess.run([*command, "-keyout", str(key), "-out", str(certificate)], check=True, capture_output=True)
    except FileNotFoundError:
        pytest.skip("openssl is not installed, which makes the certificate")
    trust = ssl.create_default_context(cafile=str(certificate))
    ready = prepare(ServeOptions(world.base), Address(port=0, certfile=certificate, keyfile=key), TOKEN)
    thread = threading.Thread(target=ready.run)
    thread.start()
    try:
        with httpx.Client(verify=trust, transport=httpx.HTTPTransport(retries=20, verify=trust)) as client:
            answer = client.get(ready.page)
        assert ready.url.startswith("https://") and answer.headers["location"].startswith("https://")
        assert "Secure" in answer.headers["set-cookie"]
    finally:
        ready.stop()
        thread.join(30)


def test_a_second_server_for_the_same_model_is_refused(served: Served, original: World) -> None:
    answer = triphase("serve", original.base, "--no-open", "--port", "0")
    assert answer.status == 1 and "at work" in answer.err


def test_a_port_that_is_taken_is_named(served: Served, tmp_path: Path) -> None:
    answer = triphase("serve", tmp_path / "m", "--no-open", "--port", port(served))
    assert answer.status == 1 and f"127.0.0.1:{port(served)}" in answer.err and "--port" in answer.err


def test_what_is_not_a_model_is_not_served(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "a.jpg").write_bytes(b"")
    answer = triphase("serve", tmp_path / "photos", "--no-open", "--port", "0")
    assert answer.status == 1 and "is not a model" in answer.err
    assert triphase("serve", "--no-open").err.startswith("error: Give either a model")
    assert "no folder" in triphase("serve", "--models", tmp_path / "nowhere", "--no-open").err
    assert "--models" in done("serve", "--help").out


# --- limits ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def strict(original: World, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server with small limits."""
    limits = Limits(json_bytes=1000, upload_bytes=100_000, files=3, pixels=10_000, idle_seconds=0.5)
    with serving(ServeOptions(tmp_path_factory.mktemp("strict") / "m", limits=limits)) as served:
        yield served


def test_a_body_must_have_a_length_within_bounds(strict: Served) -> None:
    path = strict.model + "/rename"
    assert ask(strict, "POST", path, {**bearer(), "Content-Length": "1001"})[0] == 413
    assert ask(strict, "POST", path, {**bearer(), "Content-Length": "99999999999999999999"})[0] in (400, 413)
    upload = {"Content-Type": "multipart/form-data; boundary=x", "Content-Length": "100001"}
    assert ask(strict, "POST", strict.model + "/predict", {**bearer(), **upload})[0] == 413
    answer = strict.client.post(strict.model + "/rename", content=iter([b"{}"]))
    assert answer.status_code == 411


def test_too_many_files_in_one_request_are_refused(strict: Served) -> None:
    files = [("files", (f"{i}.png", b"x")) for i in range(4)]
    assert (
        strict.client.post(strict.model + "/drafts/a/photos", files=files, data={"label": "a"}).status_code == 413
    )


def test_an_image_of_too_many_pixels_is_refused(strict: Served, tmp_path: Path) -> None:
    Image.new("L", (101, 100)).save(tmp_path / "large.png")
    problem = strict.upload("/drafts/a/photos", [tmp_path / "large.png"], 422, label="a")
    assert "101 x 100 pixels" in problem["detail"]


def test_a_slow_body_is_given_up(strict: Served) -> None:
    with socket.create_connection(("127.0.0.1", port(strict)), timeout=30) as connection:
        head = f"POST {strict.model}/rename HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n"
        connection.sendall(f"{head}Content-Type: application/json\r\nContent-Length: 900\r\n\r\n{{".encode())
        answer = connection.makefile("rb").read()
    assert answer.startswith(b"HTTP/1.1 408") and b"too slowly" in answer


def test_slow_headers_are_given_up(strict: Served) -> None:
    with socket.create_connection(("127.0.0.1", port(strict)), timeout=30) as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: ")
        assert connection.makefile("rb").read() == b""


def test_too_many_requests_at_once_are_told_to_wait(tmp_path: Path) -> None:
    with serving(ServeOptions(tmp_path / "m", limits=Limits(requests=2))) as served:
        head = f"POST {served.model}/rename HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n"
        head += "Content-Type: application/json\r\nContent-Length: 900\r\n\r\n{"
        waiting = [socket.create_connection(("127.0.0.1", port(served)), timeout=30) for _ in range(2)]
        for connection in waiting:
            connection.sendall(head.encode())
        answers = (served.client.get("/healthz") for _ in range(10_000))  # until the server has seen both
        full = next(answer for answer in answers if answer.status_code == 503)
        assert full.headers["retry-after"] == "1" and "try again" in full.json()["detail"]
        for connection in waiting:
            connection.close()
        assert any(served.client.get("/healthz").status_code == 200 for _ in range(10_000))


# --- files ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path",
    [
        "/../security.py",
        "/..%2fsecurity.py",
        "/%2e%2e/security.py",
        "//etc/passwd",
        "/web/../api.py",
        "/index.html/../../api.py",
        "/.%00/index.html",
        "/..\\api.py",
    ],
)
def test_the_page_serves_its_own_files_only(served: Served, path: str) -> None:
    status, body = ask(served, "GET", path, bearer())
    assert status == 404 and body["status"] == 404


@pytest.mark.parametrize("model", ["..", "%2e%2e", "base.serve", "..%2fbase", ".", "base%00"])
def test_no_other_directory_is_a_model(served: Served, model: str) -> None:
    assert ask(served, "GET", f"/api/v1/models/{model}/classes", bearer())[0] == 404


def test_lessons_read_no_folder_that_was_not_named(served: Served) -> None:
    problem = served.post("/lessons", {"folder": "/etc"}, 422)
    assert "--photos DIR" in problem["detail"]
