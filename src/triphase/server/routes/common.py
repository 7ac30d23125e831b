"""What routes share: the model that a path names, and files of a request."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import Depends, Path, Request, UploadFile

from triphase.server.answering import Upload
from triphase.server.limits import Limits
from triphase.server.models import Models, ServedModel
from triphase.server.problems import Refused
from triphase.server.schemas import Problem

MODEL = "/api/v1/models/{model}"


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """What a route may answer besides its own answer, for the schema."""
    content = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
    every = (400, 401, 403, 404, 408, 411, 413, 421, 500, 503)
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
    if len(files) > limits.files:
        raise Refused(413, f"A request may hold {limits.files} files; send them in several.")
    return [Upload(file.filename or "photo", await file.read()) for file in files]


__all__ = ["MODEL", "AnyModel", "OneModel", "Problem", "models_of", "problems", "read_uploads"]
