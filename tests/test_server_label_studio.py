"""An ML backend of Label Studio: its requests are played by the test, and so is its web server."""

from __future__ import annotations

import base64
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest

from lessons import World
from serving import TOKEN, Served, serving
from triphase.errors import BadData, InvalidValue
from triphase.server.label_studio import Labelling, LabelStudio
from triphase.server.limits import Limits
from triphase.server.options import ServeOptions

CONFIG = """<View><Image name="photo" value="$image"/><Choices name="colour" toName="photo">
<Choice value="red"/><Choice value="green"/><Choice value="yellow"/></Choices></View>"""
STUDIO_TOKEN = "token-of-label-studio"


@dataclass
class Studio:
    """A web server with photos, which wants its token, and remembers what it was asked for."""

    url: str
    photos: dict[str, bytes]
    asked: list[str] = field(default_factory=list)


@pytest.fixture
def studio(world: World) -> Iterator[Studio]:
    photos = {
        f"/data/{c}.png": (world.test / c / "100.png").read_bytes() for c in ("red", "green", "blue", "yellow")
    }
    found = Studio("", photos)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:  # noqa: N802
            found.asked.append(self.path)
            if self.headers["Authorization"] != f"Token {STUDIO_TOKEN}":
                self.send_error(401)
            elif self.path == "/redirect.png":
                self.send_response(302)
                self.send_header("Location", "/data/red.png")
                self.end_headers()
            elif self.path in found.photos:
                self.send_response(200)
                self.end_headers()
                self.wfile.write(found.photos[self.path])
            else:
                self.send_error(404)

        def log_message(self, *about: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        found.url = f"http://127.0.0.1:{server.server_address[1]}"
        threading.Thread(target=server.serve_forever).start()
        yield found
        server.shutdown()


@pytest.fixture
def served(world: World, studio: Studio) -> Iterator[Served]:
    with serving(ServeOptions(world.base, label_studio=studio.url)) as served:
        yield served


def ask(served: Served, path: str, body: Any, status: int = 200) -> Any:
    """A request as Label Studio sends it, with Basic authentication."""
    credentials = base64.b64encode(f"triphase:{TOKEN}".encode()).decode()
    answer = httpx.post(
        served.url + path, json=body, headers={"Authorization": f"Basic {credentials}"}, follow_redirects=False
    )
    assert answer.status_code == status, answer.text
    return answer.json()


def setup(served: Served) -> Any:
    body = {
        "project": "1.1700000000",
        "schema": CONFIG,
        "hostname": "http://studio:8080",
        "access_token": STUDIO_TOKEN,
    }
    return ask(served, "/setup", body)


def predict(served: Served, *addresses: object) -> list[dict[str, Any]]:
    tasks = [{"id": i, "data": {"image": address}} for i, address in enumerate(addresses)]
    params = {"login": None, "password": None, "context": None}
    body = {"tasks": tasks, "model_version": "1", "project": "1.17", "label_config": CONFIG, "params": params}
    return ask(served, "/predict", body)["results"]  # type: ignore[no-any-return]


def chosen(result: dict[str, Any]) -> str | None:
    return result["result"][0]["value"]["choices"][0] if result["result"] else None


def test_health_and_setup(served: Served) -> None:
    answer = httpx.get(served.url + "/health", auth=("any", TOKEN))
    assert answer.json()["status"] == "UP"
    assert httpx.get(served.url + "/health").status_code == 401
    assert httpx.get(served.url + "/health", auth=("any", "wrong")).status_code == 401
    assert setup(served) == {"model_version": "1"}


def test_tasks_get_predictions_that_can_be_chosen(served: Served, studio: Studio) -> None:
    setup(served)
    results = predict(served, "/data/red.png", studio.url + "/data/green.png", "/data/blue.png")
    assert [chosen(result) for result in results] in (
        ["red", "green", None],
        ["red", None, None],
        [None, "green", None],
    )
    assert all(0 <= result["score"] <= 1 and result["model_version"] == "1" for result in results)
    part = next(result["result"][0] for result in results if result["result"])
    assert (part["from_name"], part["to_name"], part["type"]) == ("colour", "photo", "choices")


def test_photos_are_fetched_from_label_studio_alone(served: Served, studio: Studio, world: World) -> None:
    setup(served)
    elsewhere = [
        "http://169.254.169.254/latest/meta-data",
        f"file://{world.one}/red/0.png",
        studio.url.replace("127.0.0.1", "localhost") + "/data/red.png",
        studio.url.replace("http://", "https://") + "/data/red.png",
        studio.url.replace("http://", "http://user@") + "1/data/red.png",
        "//evil.example/red.png",
        "http://[broken",
        "ftp://127.0.0.1/x",
        7,
        None,
    ]
    assert [chosen(result) for result in predict(served, *elsewhere)] == [None] * len(elsewhere)
    assert studio.asked == []


def test_a_redirect_is_not_followed(served: Served, studio: Studio) -> None:
    setup(served)
    [result] = predict(served, "/redirect.png")
    assert result["result"] == [] and studio.asked == ["/redirect.png"]
    assert "redirects elsewhere" in result["error"]


def test_a_token_that_label_studio_refuses_is_said(served: Served) -> None:
    [result] = predict(served, "/data/red.png")
    assert "status 401: set LABEL_STUDIO_API_KEY" in result["error"]


def test_annotations_become_a_lesson(served: Served, studio: Studio, world: World) -> None:
    setup(served)
    for number in range(100, 105):
        studio.photos[f"/data/{number}.png"] = (world.test / "yellow" / f"{number}.png").read_bytes()
        choice = {"from_name": "colour", "to_name": "photo", "type": "choices", "value": {"choices": ["yellow"]}}
        body = {"action": "ANNOTATION_CREATED", "project": {"id": 1, "label_config": CONFIG}}
        body |= {"task": {"id": 9, "data": {"image": f"/data/{number}.png"}}, "annotation": {"result": [choice]}}
        assert ask(served, "/webhook", body, 201)["status"] == "Kept for the next lesson."
    assert len(served.get("/drafts/label-studio")["photos"]) == 5
    body = {
        "action": "ANNOTATION_CREATED",
        "project": {"id": 1, "label_config": CONFIG},
        "annotation": {"result": []},
    }
    assert "no single choice" in ask(served, "/webhook", body, 201)["status"]
    body |= {"task": {"data": {"image": "/data/none.png"}}, "annotation": {"result": [choice]}}
    assert "/data/none.png cannot be fetched" in ask(served, "/webhook", body, 201)["status"]
    assert ask(served, "/webhook", {"action": "PROJECT_UPDATED"}, 201)["status"] == "Nothing to do."
    number = ask(served, "/webhook", {"action": "START_TRAINING", "project": {"id": 1}}, 201)["lesson"]
    assert served.finished(number)["outcome"]["learned"] == 5
    assert "yellow" in [c["name"] for c in served.get("/classes")["classes"]]


ODD = ["x", 5, None, {"from_name": "colour", "value": None}, {"from_name": "colour", "value": "x"}]


@pytest.mark.parametrize("result", [5, "abc", {"a": 1}, *([part] for part in ODD)], ids=str)
def test_an_odd_annotation_is_no_choice(served: Served, result: object) -> None:
    body = {"action": "ANNOTATION_CREATED", "project": {"label_config": CONFIG}, "annotation": {"result": result}}
    assert "no single choice" in ask(served, "/webhook", body, 201)["status"]


def test_an_annotation_beyond_the_quota_is_refused_as_an_upload_is(world: World, studio: Studio) -> None:
    choice = {"from_name": "colour", "to_name": "photo", "type": "choices", "value": {"choices": ["red"]}}
    body = {"action": "ANNOTATION_CREATED", "project": {"label_config": CONFIG}, "annotation": {"result": [choice]}}
    body |= {"task": {"data": {"image": "/data/red.png"}}}
    with serving(ServeOptions(world.base, label_studio=studio.url, limits=Limits(draft_bytes=1))) as served:
        setup(served)
        assert "used up" in ask(served, "/webhook", body, 507)["detail"]


def test_several_models_have_a_backend_each(world: World, studio: Studio) -> None:
    with serving(ServeOptions(models=world.base.parent, label_studio=studio.url)) as served:
        assert "several models" in ask(served, "/setup", {"schema": CONFIG}, 422)["detail"]
        assert ask(served, "/api/v1/models/base/label-studio/setup", {"schema": CONFIG}) == {"model_version": "1"}
        assert httpx.get(served.url + "/api/v1/models/base", auth=("any", TOKEN)).status_code == 401


def test_without_a_label_studio_nothing_is_fetched(world: World) -> None:
    with serving(ServeOptions(world.base)) as served:
        body = {"tasks": [{"data": {"image": "/x.png"}}], "label_config": CONFIG}
        assert "--label-studio URL" in ask(served, "/predict", body, 422)["detail"]


@pytest.mark.parametrize("config", ["", "<View>", "<View/>", '<!DOCTYPE a [<!ENTITY b "c">]><View>&b;</View>'])
def test_a_configuration_without_choices_about_an_image_is_refused(config: str) -> None:
    with pytest.raises(InvalidValue):
        Labelling.parse(config)


@pytest.mark.parametrize("url", ["localhost:8080", "ftp://a", "http://", "http://u:p@host", "http://a/?b"])
def test_an_address_of_label_studio_is_an_origin(url: str) -> None:
    with pytest.raises(InvalidValue, match="--label-studio"):
        LabelStudio(url)


def test_a_photo_that_is_not_there_is_named(studio: Studio, tmp_path: Path) -> None:
    found = LabelStudio(studio.url)
    found.token = STUDIO_TOKEN
    with pytest.raises(BadData, match="status 404"):
        found.fetch("/data/none.png")
    found.token = "wrong"
    with pytest.raises(BadData, match="status 401"):
        found.fetch("/data/red.png")
