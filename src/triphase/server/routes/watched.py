"""The route that tells what was seen in a watched folder."""

from __future__ import annotations

from fastapi import APIRouter, Request

from triphase.server.problems import NotFound
from triphase.server.routes.common import MODEL, OneModel, problems
from triphase.server.schemas import Watched
from triphase.server.watch import Watcher

router = APIRouter(tags=["predict"], responses=problems())


@router.get(MODEL + "/watched")
async def list_watched(model: OneModel, request: Request) -> Watched:
    """Answers about photos that appeared in the watched folder, newest first."""
    watcher: Watcher | None = request.app.state.watcher
    if watcher is None or watcher.model is not model:
        raise NotFound("No folder is watched for this model; start the server with --watch DIR.")
    return Watched(answers=list(watcher.answers))
