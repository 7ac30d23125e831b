"""Routes about photos that wait for a label."""

from __future__ import annotations

import asyncio

from fastapi import APIRouter
from starlette.responses import Response

from triphase.app.photo_keys import photo_id
from triphase.server.inbox_schemas import InboxList, LabelPhotos
from triphase.server.problems import NotFound
from triphase.server.routes.common import (
    JPEG,
    MODEL,
    OneModel,
    PhotoKey,
    jpeg_response,
    problems,
    thumbnail_response,
)
from triphase.server.schemas import PhotoIds

router = APIRouter(tags=["inbox"], responses=problems(422, 507))


@router.get(MODEL + "/inbox")
async def list_inbox(model: OneModel) -> InboxList:
    """Photos that answers were unsure of, those whose label would teach most first."""
    return await model.unsure.ranked()


@router.post(MODEL + "/inbox/label", status_code=204)
async def label_photos(model: OneModel, body: LabelPhotos) -> None:
    """Move photos of the inbox into a draft, as a class."""
    await asyncio.to_thread(model.unsure.label, body.photos, body.label, model.drafts, body.draft)


@router.post(MODEL + "/inbox/remove", status_code=204)
async def remove_from_inbox(model: OneModel, body: PhotoIds) -> None:
    """Delete photos of the inbox."""
    await asyncio.to_thread(model.unsure.inbox.remove, [photo_id(key) for key in body.photos])


@router.delete(MODEL + "/inbox", status_code=204)
async def clear_inbox(model: OneModel) -> None:
    """Delete all photos of the inbox."""
    await asyncio.to_thread(model.unsure.inbox.clear)


@router.get(MODEL + "/inbox/thumbnails/{photo}", response_class=Response, responses=JPEG)
async def show_inbox_thumbnail(model: OneModel, photo: PhotoKey) -> Response:
    """A photo of the inbox, at most 128 pixels wide and high."""
    content = await asyncio.to_thread(model.unsure.read, photo)
    return await thumbnail_response(model, content)


@router.get(MODEL + "/thumbnails/{photo}", tags=["review"], response_class=Response, responses=JPEG)
async def show_taught_thumbnail(model: OneModel, photo: PhotoKey) -> Response:
    """A taught photo, at most 128 pixels wide and high, if the server has kept that."""
    pictures = await asyncio.to_thread(model.pictures.current)
    picture = pictures.get(photo_id(photo))
    if picture is None:
        raise NotFound(f"There is no thumbnail of the photo {photo}. {pictures.note}".strip())
    return jpeg_response(picture)
