"""What routes share: the model that a path names, and files of a request."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Annotated, Any, TypeVar

from fastapi import Depends, Path, Request, UploadFile
from starlette.responses import Response

from triphase.app.store.schema import Version
from triphase.app.thumbnails import SIDE, thumbnail_of
from triphase.data.decoding import decode_bytes
from triphase.server.answering import Upload
from triphase.server.limits import Limits
from triphase.server.models import Models
from triphase.server.problems import Refused
from triphase.server.schemas import PHOTO_ID, Changed
from triphase.server.served_model import ServedModel
from triphase.server.unfinished import check_not_quick

Result = TypeVar("Result")
MODEL = "/api/v1/models/{model}"
JPEG: dict[int | str, dict[str, Any]] = {
    200: {"content": {"image/jpeg": {"schema": {"type": "string", "format": "binary"}}}}
}
PhotoKey = Annotated[str, Path(pattern=PHOTO_ID)]
ESCAPED = {"%22": '"', "%0D": "\r", "%0A": "\n"}  # in names of files: the HTML standard escapes no more


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """What a route may answer besides its own answer, for the schema."""
    content = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
    every = (400, 401, 403, 404, 408, 409, 411, 413, 421, 500, 503)
    return {status: {"description": "A problem", "content": content} for status in sorted({*every, *statuses})}


def models_of(request: Request) -> Models:
    """The models of the server."""
    models: Models = request.app.state.models
    return models


async def served_model(
    request: Request, model: Annotated[str, Path(description="Name of the model's directory")]
) -> ServedModel:
    """The model that the path names."""
    return await models_of(request).get(model)


AnyModel = Annotated[Models, Depends(models_of)]
OneModel = Annotated[ServedModel, Depends(served_model)]


async def read_uploads(files: Sequence[UploadFile], limits: Limits) -> list[Upload]:
    """The files of a request."""
    check_count(files, limits)
    return [Upload(name_of(file), await file.read()) for file in files]


def name_of(file: UploadFile) -> str:
    """The name of an uploaded file, with the quotes and line breaks that browsers escape.

    >>> from io import BytesIO
    >>> name_of(UploadFile(BytesIO(), filename="6%22 nail/100%25.jpg"))
    '6" nail/100%25.jpg'
    """
    name = file.filename or "photo"
    for escaped, character in ESCAPED.items():
        name = name.replace(escaped, character)
    return name


def check_count(files: Sequence[UploadFile], limits: Limits) -> None:
    """Refuse more files than a request may hold."""
    if len(files) > limits.files:
        raise Refused(413, f"A request may hold {limits.files} files; send them in several.")


async def change(model: ServedModel, work: Callable[[], Result], *, quick_too: bool = False) -> Result:
    """Change a model while no lesson runs; answers come from the new version when this is done.

    A quick version whose lesson has not ended is changed with `quick_too` only.
    """
    model.lessons.check_idle()
    with model.lessons.changing():
        if not quick_too:
            await asyncio.to_thread(check_not_quick, model.path, model.lessons.records)
        result = await asyncio.to_thread(work)
        await model.on_published()
    return result


def changed(version: Version, images: int | None = None) -> Changed:
    """The answer to a change."""
    return Changed(version=version.number, classes=version.info["classes"], images=images)


def jpeg_response(picture: bytes) -> Response:
    """A JPEG that a browser may cache: an id always stands for the same content."""
    return Response(
        picture, media_type="image/jpeg", headers={"Cache-Control": "private, max-age=86400, immutable"}
    )


async def thumbnail_response(model: ServedModel, content: bytes) -> Response:
    """A photo as a thumbnail, made where answers are computed."""
    loop = asyncio.get_running_loop()
    return jpeg_response(await loop.run_in_executor(model.pools.answers, _thumbnail_of_bytes, content))


def _thumbnail_of_bytes(content: bytes) -> bytes:
    return thumbnail_of(decode_bytes(content, "The photo", (SIDE,))[0])
