"""The examples of the documents run, and the schema says what the server does."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lessons import SMALL as SMALL_FLAGS
from lessons import World, done
from serving import TOKEN, Served, serving
from triphase.server.options import ServeOptions

DOCUMENT = Path(__file__).parents[1] / "docs" / "api.md"


@pytest.fixture
def place(world: World, tmp_path: Path) -> Path:
    """A folder as the examples expect it: a model, photos to teach, and a new one."""
    model = tmp_path / "my-model"
    done("teach", model, world.one, *SMALL_FLAGS)
    for colour in ("red", "green"):
        (tmp_path / "photos" / colour).mkdir(parents=True)
        for number in range(2):
            source = world.test / colour / f"{100 + number}.png"
            shutil.copy(source, tmp_path / "photos" / colour / f"{number}.png")
    shutil.copy(world.test / "red" / "104.png", tmp_path / "new.png")
    return tmp_path


def run(language: str, command: list[str], place: Path) -> str:
    [example] = re.findall(rf"```{language}\n(.*?)```", DOCUMENT.read_text(encoding="utf-8"), re.DOTALL)
    with serving(ServeOptions(place / "my-model")) as served:
        environment = {**os.environ, "URL": served.url, "TOKEN": TOKEN, "PYTHONPATH": ""}
        process = subprocess.run(
            [*command, example], cwd=place, env=environment, capture_output=True, text=True, timeout=600
        )
    assert process.returncode == 0, process.stderr
    return process.stdout


def test_the_example_with_curl_runs(place: Path) -> None:
    if shutil.which("curl") is None or shutil.which("bash") is None:
        pytest.skip("curl is not installed")
    out = run("bash", ["bash", "-euo", "pipefail", "-c"], place)
    assert '"learn":{"green":2,"red":2}' in out and '"best":"red"' in out
    assert (place / "my-model.zip").stat().st_size > 1000


def test_the_example_with_python_runs(place: Path) -> None:
    out = run("python", [sys.executable, "-c"], place)
    assert "event: taught_quick" in out and "event: state" in out
    assert "422 No class is called" in out


# --- the schema -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def served(original: World) -> Iterator[Served]:
    with serving(ServeOptions(original.base)) as served:
        yield served


@pytest.fixture(scope="module")
def schema(served: Served) -> dict[str, Any]:
    return served.client.get("/api/v1/openapi.json").json()  # type: ignore[no-any-return]


def operations(schema: dict[str, Any]) -> list[tuple[str, str, dict[str, Any]]]:
    return [(path, method, o) for path, methods in schema["paths"].items() for method, o in methods.items()]


def test_every_operation_is_described(schema: dict[str, Any]) -> None:
    found = operations(schema)
    assert len(found) > 40
    for path, method, operation in found:
        assert operation["description"].endswith("."), (path, method)
        good = [status for status in operation["responses"] if status.startswith("2")]
        assert good, (path, method)
        for status in good:
            if status != "204":
                assert operation["responses"][status]["content"], (path, method)
    ids = [operation["operationId"] for _, _, operation in found]
    assert len(set(ids)) == len(ids)


def test_every_error_of_the_schema_is_a_problem_document(schema: dict[str, Any]) -> None:
    for path, method, operation in operations(schema):
        errors = {s: r for s, r in operation["responses"].items() if not s.startswith("2")}
        assert errors or path == "/healthz", (path, method)
        for response in errors.values():
            assert list(response["content"]) == ["application/problem+json"]
    assert set(schema["components"]["schemas"]["Problem"]["required"]) == {"type", "title", "status", "detail"}


def test_every_reference_of_the_schema_leads_somewhere(schema: dict[str, Any]) -> None:
    def references(node: Any) -> Iterator[str]:
        if isinstance(node, dict):
            if isinstance(node.get("$ref"), str):
                yield node["$ref"]
            for value in node.values():
                yield from references(value)
        elif isinstance(node, list):
            for value in node:
                yield from references(value)

    for reference in set(references(schema)):
        kind, name = reference.removeprefix("#/components/").split("/")
        assert name in schema["components"][kind]


def test_every_route_of_the_document_is_in_the_schema(schema: dict[str, Any]) -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    named = set(re.findall(r"`(GET|POST|DELETE) (M?/?[^\s`?]*)", text))
    assert len(named) > 30
    known = {(m.upper(), re.sub(r"\{\w+\}", "{}", path)) for path, m, _ in operations(schema)}
    for method, path in named:
        full = re.sub(r"\{\w+\}", "{}", path.replace("M", "/api/v1/models/{}", 1) if path.startswith("M") else path)
        assert (method, full) in known, (method, path)


def test_the_docs_page_is_our_own(served: Served, schema: dict[str, Any]) -> None:
    page = served.client.get("/api/v1/docs")
    assert page.headers["content-type"].startswith("text/html")
    assert all(path in page.text.replace("&#x27;", "'") for path in schema["paths"])
    assert "<script" not in page.text and "style=" not in page.text
    assert not re.findall(r"(?:src|href)=\"(?:https?:)?//", page.text)
    assert served.client.get("/api/v1/docs.css").headers["content-type"].startswith("text/css")


def test_metrics_count_requests_by_route(served: Served) -> None:
    served.get("/classes")
    text = served.client.get("/metrics").text
    assert 'triphase_requests_total{method="GET",route="/api/v1/models/{model}/classes",status="200"}' in text
    assert 'triphase_model_version{model="base"}' in text and "triphase_request_seconds_bucket" in text


def test_a_folder_of_models_is_served(world: World) -> None:
    shutil.copytree(world.base, world.base.parent / "other")
    with serving(ServeOptions(models=world.base.parent)) as served:
        listed = served.client.get("/api/v1/models").json()["models"]
        assert [model["name"] for model in listed] == ["base", "other"]
        made = served.client.post("/api/v1/models", json={"name": "new one"})
        assert made.status_code == 201 and made.json()["version"] is None
        assert served.client.get("/api/v1/models/new%20one").json()["classes"] == []
        assert served.client.post("/api/v1/models", json={"name": "new one"}).status_code == 422
        for name in ("../evil", ".hidden", "a\\b", "x" * 300, "base.serve", "\x1b[31m", " ", "one"):
            assert served.client.post("/api/v1/models", json={"name": name}).status_code == 422, name
        assert served.client.get("/api/v1/models/one").status_code == 404
    assert not (world.base.parent / "new one.serve").exists()
