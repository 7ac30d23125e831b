"""Routes about models: what they are, their versions, and changes to them."""

from __future__ import annotations

import asyncio
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Annotated

from fastapi import APIRouter, File, UploadFile

from triphase.app import manage
from triphase.app.store.versions import open_store
from triphase.data.sources.files import content_id
from triphase.errors import BadData, TriphaseError
from triphase.server.routes.common import MODEL, AnyModel, OneModel, change, changed, problems, read_uploads
from triphase.server.schemas import (
    Changed,
    Classes,
    Forget,
    ModelDescription,
    Models,
    ModelSummary,
    NewModel,
    Rename,
    Versions,
)

router = APIRouter(tags=["models"], responses=problems())
CHANGES = problems(409, 422, 507)


@router.get("/api/v1/models")
async def list_models(models: AnyModel) -> Models:
    """All models that are served."""
    found = []
    passed_over = () if models.folder is None else (TriphaseError,)
    for name in models.names():
        with suppress(*passed_over):  # of several, one that another server has, or that is damaged, hides no other
            found.append((await models.get(name)).summary())
    return Models(models=found, can_add=models.folder is not None)


@router.post("/api/v1/models", status_code=201, responses=problems(422))
async def make_model(body: NewModel, models: AnyModel) -> ModelSummary:
    """A model that is yet to be taught (with --models)."""
    return (await models.make(body.name)).summary()


@router.get(MODEL)
async def describe_model(model: OneModel) -> ModelDescription:
    """What a model is and knows."""
    return await asyncio.to_thread(model.description)


@router.get(MODEL + "/classes")
async def list_classes(model: OneModel) -> Classes:
    """The classes of a model, in order of arrival."""
    return Classes(classes=await asyncio.to_thread(model.classes))


@router.get(MODEL + "/versions")
async def list_versions(model: OneModel) -> Versions:
    """What happened to a model, and which version is in use."""
    return await asyncio.to_thread(model.versions)


@router.post(MODEL + "/undo", responses=CHANGES)
async def undo(model: OneModel) -> Changed:
    """Go back to the version before the one in use."""
    return changed(await change(model, lambda: open_store(model.path).undo(), quick_too=True))


@router.post(MODEL + "/rename", responses=CHANGES)
async def rename(model: OneModel, body: Rename) -> Changed:
    """Give a class another name."""
    return changed(await change(model, lambda: manage.rename(model.path, body.old, body.new)))


@router.post(MODEL + "/forget", responses=CHANGES)
async def forget(model: OneModel, body: Forget) -> Changed:
    """Take a class out of the version in use, or out of all."""
    return changed(await change(model, lambda: manage.forget(model.path, body.label, everywhere=body.everywhere)))


@router.post(MODEL + "/unteach", responses=CHANGES)
async def unteach(model: OneModel, files: Annotated[list[UploadFile], File()]) -> Changed:
    """Take photos, by content, out of memory, exemplars and statistics."""
    uploads = await read_uploads(files, model.drafts.limits)

    def take_back() -> manage.Untaught:
        known = model.taught_photos()
        taught = [upload for upload in uploads if content_id(upload.content) in known]
        if not taught:
            raise BadData("None of these photos was taught to this model: nothing to take back.")
        with tempfile.TemporaryDirectory(dir=model.work) as folder:
            places = []
            for number, upload in enumerate(taught):
                place = Path(folder, str(number))
                place.write_bytes(upload.content)
                places.append(place)
            return manage.unteach(model.path, places)

    done = await change(model, take_back)
    return changed(done.version, done.images)
