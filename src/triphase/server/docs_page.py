"""The documentation of the HTTP interface as a page, made from its schema without external files."""

from __future__ import annotations

import json
from html import escape
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import HTMLResponse, Response

router = APIRouter(include_in_schema=False)
STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
code, pre { font-size: 0.9em; } pre { overflow-x: auto; padding: 0.75rem; border: 1px solid; border-radius: 6px; }
h2 { margin-top: 2.5rem; text-transform: capitalize; } h3 { margin-bottom: 0.25rem; font-family: monospace; }
table { border-collapse: collapse; }
td, th { padding: 0.2rem 0.75rem 0.2rem 0; text-align: left; vertical-align: top; }
@media (prefers-color-scheme: dark) { body { background: #16181c; color: #e6e6e6; } a { color: #8ab4f8; } }
"""


@router.get("/api/v1/docs")
async def docs(request: Request) -> HTMLResponse:
    """The documentation of the API as HTML."""
    return HTMLResponse(render(request.app.openapi()))


@router.get("/api/v1/docs.css")
async def style() -> Response:
    """The style sheet."""
    return Response(STYLE, media_type="text/css")


def render(schema: dict[str, Any]) -> str:
    """The page for a schema."""
    groups: dict[str, list[str]] = {}
    for path, operations in schema["paths"].items():
        for method, operation in operations.items():
            groups.setdefault(operation.get("tags", ["other"])[0], []).append(_operation(method, path, operation))
    parts = [f"<h2>{escape(tag)}</h2>{''.join(operations)}" for tag, operations in groups.items()]
    shapes = [
        f'<h3 id="{escape(name)}">{escape(name)}</h3><pre>{escape(json.dumps(shape, indent=1))}</pre>'
        for name, shape in sorted(schema["components"]["schemas"].items())
    ]
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>triphase: HTTP interface</title>'
        '<meta name="viewport" content="width=device-width"><link rel="stylesheet" href="/api/v1/docs.css"></head>'
        f"<body><h1>HTTP interface</h1><p>{escape(schema['info']['description'])} "
        '<a href="/api/v1/openapi.json">The schema</a>.</p>'
        f"{''.join(parts)}<h2>Shapes</h2>{''.join(shapes)}</body></html>"
    )


def _operation(method: str, path: str, operation: dict[str, Any]) -> str:
    rows = [
        f"<tr><td><code>{escape(p['name'])}</code></td><td>{escape(p['in'])}</td>"
        f"<td>{escape(p.get('description', ''))}</td></tr>"
        for p in operation.get("parameters", [])
    ]
    body = _links(operation.get("requestBody", {}).get("content", {}))
    good = {status: answer for status, answer in operation["responses"].items() if status < "300"}
    answers = [f"{escape(status)} {_links(answer.get('content', {}))}" for status, answer in good.items()]
    return (
        f"<h3>{escape(method.upper())} {escape(path)}</h3><p>{escape(operation.get('description', ''))}</p>"
        f"<table>{''.join(rows)}</table>"
        f"<p>{'Body: ' + body + '. ' if body else ''}Answer: {', '.join(answers)}.</p>"
    )


def _links(content: dict[str, Any]) -> str:
    """What a body may consist of."""
    parts = []
    for media_type, about in content.items():
        name = about.get("schema", {}).get("$ref", "").rpartition("/")[2]
        shape = f' <a href="#{escape(name)}">{escape(name)}</a>' if name else ""
        parts.append(f"<code>{escape(media_type)}</code>{shape}")
    return " or ".join(parts)
