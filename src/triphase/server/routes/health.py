"""Routes for monitoring."""

from __future__ import annotations

from typing import Literal

from fastapi import APIRouter, Request
from pydantic import BaseModel
from starlette.responses import Response

from triphase.server.routes.common import problems

router = APIRouter(tags=["health"])


class Health(BaseModel):
    """That the server answers."""

    status: Literal["ok"] = "ok"


@router.get("/healthz")
async def health() -> Health:
    """Whether the server answers; needs no token."""
    return Health()


@router.get(
    "/metrics",
    response_class=Response,
    responses={**problems(), 200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
)
async def metrics(request: Request) -> Response:
    """Requests, seconds, answers and lessons in Prometheus' format."""
    content, media_type = request.app.state.metrics.exposition()
    return Response(content, media_type=media_type)
