"""Routes about what was taught: whether it is enough, which labels are doubtful, and how to correct them."""

from __future__ import annotations

import asyncio
from typing import Annotated

from fastapi import APIRouter, Query

from triphase.app import corrections
from triphase.app.photo_keys import photo_id
from triphase.server.review_schemas import (
    ClassAdviceList,
    HeldOutReport,
    MoveTaught,
    Suspects,
    TaughtPhotoList,
    TaughtPhotos,
)
from triphase.server.routes.common import MODEL, OneModel, change, changed, problems
from triphase.server.schemas import Changed

MAX_PAGE = 500  # photos of a class in one answer
router = APIRouter(tags=["review"], responses=problems(409, 422, 507))


@router.get(MODEL + "/photos")
async def list_photos(
    model: OneModel,
    label: Annotated[str, Query(min_length=1, max_length=1000, description="The class")],
    offset: Annotated[int, Query(ge=0, le=10**9, description="How many to pass over")] = 0,
    limit: Annotated[int, Query(ge=1, le=MAX_PAGE, description="How many to list")] = 60,
) -> TaughtPhotoList:
    """The taught photos of a class, the newest first."""
    return await asyncio.to_thread(model.photos, label, offset, limit)


@router.get(MODEL + "/review/held-out")
async def review_held_out(model: OneModel) -> HeldOutReport:
    """Accuracy, confusions and reliability on held-out photos."""
    return await asyncio.to_thread(model.reviewing.held_out)


@router.get(MODEL + "/review/classes")
async def review_classes(model: OneModel) -> ClassAdviceList:
    """For each class whether enough was taught, and what would help."""
    return await model.reviewing.run_in_pool(model.reviewing.classes)


@router.get(MODEL + "/review/suspects")
async def review_suspects(model: OneModel) -> Suspects:
    """Taught photos whose label is probably wrong."""
    return await model.reviewing.run_in_pool(model.reviewing.suspects)


@router.post(MODEL + "/review/confirm", status_code=204)
async def confirm_labels(model: OneModel, body: TaughtPhotos) -> None:
    """Remember that the labels of these photos are right."""
    await asyncio.to_thread(model.reviewing.confirm, body.photos)


@router.post(MODEL + "/move")
async def move_taught(model: OneModel, body: MoveTaught) -> Changed:
    """Let taught photos belong to another class, from what is stored of them."""
    ids = [photo_id(key) for key in body.photos]
    return changed(*await change(model, lambda: corrections.move(model.path, ids, body.label)))


@router.post(MODEL + "/take-back")
async def take_back(model: OneModel, body: TaughtPhotos) -> Changed:
    """Take photos back by id, from what is stored of them."""
    ids = [photo_id(key) for key in body.photos]
    return changed(*await change(model, lambda: corrections.take_back(model.path, ids)))
