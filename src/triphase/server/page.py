"""The page: the files in `web`, served as they are."""

from __future__ import annotations

from pathlib import Path

from fastapi import APIRouter
from starlette.responses import FileResponse

from triphase.server.problems import NotFound

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


@router.api_route("/{file:path}", methods=["GET", "HEAD"])
async def show_file(file: str) -> FileResponse:
    """A file of the page."""
    if f"/{file}" not in paths():
        raise NotFound(f"There is nothing at /{file}; /api/v1/docs lists what there is.")
    path = WEB / (file or "index.html")
    return FileResponse(path, media_type=MEDIA_TYPES[path.suffix], headers={"Cache-Control": "no-cache"})
