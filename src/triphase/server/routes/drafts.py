"""Routes about drafts: photos for a lesson that is yet to begin."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import PurePosixPath
from typing import Annotated

from fastapi import APIRouter, File, Form, Path, UploadFile
from starlette.responses import Response

from triphase.errors import BadData, InvalidValue
from triphase.server.answering import Upload
from triphase.server.problems import Full
from triphase.server.routes.common import (
    JPEG,
    MODEL,
    OneModel,
    PhotoKey,
    check_count,
    name_of,
    problems,
    thumbnail_response,
)
from triphase.server.schemas import (
    DRAFT_NAME,
    Draft,
    DraftList,
    MovePhotos,
    PhotoIds,
    Uploaded,
    UploadedPhoto,
    UploadError,
)
from triphase.server.served_model import ServedModel
from triphase.server.zips import photos_in_zip

DRAFT = MODEL + "/drafts/{draft}"
DraftName = Annotated[str, Path(pattern=DRAFT_NAME)]
router = APIRouter(tags=["drafts"], responses=problems(422, 507))


@router.get(MODEL + "/drafts")
async def list_drafts(model: OneModel) -> DraftList:
    """The drafts that hold photos."""
    return DraftList(drafts=await asyncio.to_thread(model.drafts.summaries))


@router.get(DRAFT)
async def show_draft(model: OneModel, draft: DraftName) -> Draft:
    """The photos of a draft, oldest first."""
    return await asyncio.to_thread(model.drafts.get, draft)


@router.post(DRAFT + "/photos")
async def upload_photos(
    model: OneModel,
    draft: DraftName,
    files: Annotated[list[UploadFile], File()],
    label: Annotated[str | None, Form(max_length=1000)] = None,
) -> Uploaded:
    """Put photos into a draft; without a label, each file's name is CLASS/NAME."""
    check_count(files, model.drafts.limits)
    labels = [label or _folder_of(name_of(file)) for file in files]
    photos = (  # read one by one: all of them together may be large
        (label, Upload(name_of(file), file.file.read())) for label, file in zip(labels, files, strict=True)
    )
    model.lessons.warm_up()
    return await asyncio.to_thread(_add, model, draft, photos)


@router.post(DRAFT + "/zip")
async def upload_zip(model: OneModel, draft: DraftName, file: Annotated[UploadFile, File()]) -> Uploaded:
    """Put the photos of a zip of class folders into a draft."""
    model.lessons.warm_up()
    return await asyncio.to_thread(_add, model, draft, photos_in_zip(file.file, model.drafts.limits))


@router.post(DRAFT + "/move")
async def move_photos(model: OneModel, draft: DraftName, body: MovePhotos) -> Draft:
    """Put photos of a draft into another class."""
    await asyncio.to_thread(model.drafts.move, draft, body.photos, body.label)
    return await asyncio.to_thread(model.drafts.get, draft)


@router.post(DRAFT + "/remove")
async def remove_photos(model: OneModel, draft: DraftName, body: PhotoIds) -> Draft:
    """Remove photos from a draft."""
    await asyncio.to_thread(model.drafts.remove, draft, body.photos)
    return await asyncio.to_thread(model.drafts.get, draft)


@router.delete(DRAFT, status_code=204)
async def delete_draft(model: OneModel, draft: DraftName) -> None:
    """Remove all of a draft."""
    await asyncio.to_thread(model.drafts.delete, draft)


@router.get(DRAFT + "/thumbnails/{photo}", response_class=Response, responses=JPEG)
async def show_thumbnail(model: OneModel, draft: DraftName, photo: PhotoKey) -> Response:
    """A photo of a draft, at most 128 pixels wide and high."""
    content = await asyncio.to_thread(model.drafts.read, draft, photo)
    return await thumbnail_response(model, content)


def _add(model: ServedModel, draft: str, photos: Iterable[tuple[str, Upload]]) -> Uploaded:
    """Put photos into a draft as far as the quota goes."""
    uploaded = Uploaded(added=[], moved=[], repeated=0, errors=[])
    left = model.drafts.room(model.work)
    for label, upload in photos:
        if len(upload.content) > left:
            raise Full(
                f"Uploads may take {model.drafts.limits.draft_bytes:,} bytes altogether, and they are used up: "
                "teach or delete what was uploaded before."
            )
        try:
            added = model.drafts.add(draft, label, upload.name, upload.content)
        except (BadData, InvalidValue) as error:
            uploaded.errors.append(UploadError(name=upload.name, error=str(error)))
            continue
        photo = UploadedPhoto(id=added.id, label=added.label, name=upload.name)
        if added.was is None:
            uploaded.added.append(photo)
            left -= len(upload.content)
        elif added.was != added.label:
            uploaded.moved.append(photo)
        else:
            uploaded.repeated += 1
    if uploaded.errors and not (uploaded.added or uploaded.moved or uploaded.repeated):
        raise BadData(" ".join(error.error for error in uploaded.errors[:3]))
    return uploaded


def _folder_of(name: str) -> str:
    folders = PurePosixPath(name.replace("\\", "/")).parts[:-1]
    if not folders:
        raise InvalidValue(f"{name} has no class: send the field label, or name the file CLASS/{name}.")
    return folders[-1]
