"""The page: the files in `web`, served as they are."""

from __future__ import annotations

from pathlib import Path

from fastapi import APIRouter, Request
from starlette.responses import FileResponse

WEB = Path(__file__).parent / "web"
MEDIA_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".ico": "image/x-icon",
    ".webmanifest": "application/manifest+json",
}
router = APIRouter(include_in_schema=False)


def paths() -> set[str]:
    """Where the files of the page are found; they hold nothing secret and need no token."""
    files = {path.relative_to(WEB).as_posix() for path in WEB.rglob("*") if path.suffix in MEDIA_TYPES}
    return {"/", *(f"/{file}" for file in files)}


async def show_file(request: Request) -> FileResponse:
    """A file of the page."""
    path = WEB / (request.url.path.removeprefix("/") or "index.html")
    return FileResponse(path, media_type=MEDIA_TYPES[path.suffix], headers={"Cache-Control": "no-cache"})


for place in sorted(paths()):  # and no others, so that every other path is what the other routes make of it
    router.add_api_route(place, show_file, methods=["GET", "HEAD"])
