"""The route that downloads a model."""

from __future__ import annotations

import asyncio
from urllib.parse import quote

from fastapi import APIRouter
from starlette.responses import StreamingResponse

from triphase.app.store.versions import open_store
from triphase.server.archive import snapshot, zipped
from triphase.server.routes.common import MODEL, OneModel, problems

router = APIRouter(tags=["models"], responses=problems(422))


@router.get(
    MODEL + "/export",
    response_class=StreamingResponse,
    responses={200: {"content": {"application/zip": {"schema": {"type": "string", "format": "binary"}}}}},
)
async def export(model: OneModel) -> StreamingResponse:
    """The model directory as a zip."""
    files = await asyncio.to_thread(snapshot, open_store(model.path))
    disposition = f"attachment; filename*=UTF-8''{quote(model.name, safe='')}.zip"
    return StreamingResponse(
        zipped(files, model.name), media_type="application/zip", headers={"Content-Disposition": disposition}
    )
