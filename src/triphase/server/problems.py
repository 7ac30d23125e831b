"""Errors as problem documents (RFC 9457), with the sentences of the command line."""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from triphase.app.photo_keys import photo_key
from triphase.errors import (
    BadData,
    Busy,
    CannotWrite,
    CorruptState,
    Interrupted,
    InvalidValue,
    LockLost,
    Mismatch,
    PhotosNeeded,
    TriphaseError,
)
from triphase.printable import printable

STATUS: dict[type[TriphaseError], int] = {
    InvalidValue: 422,
    BadData: 422,
    Mismatch: 422,
    CorruptState: 409,
    CannotWrite: 507,
    Busy: 409,
    LockLost: 409,
    Interrupted: 409,
}
MEDIA_TYPE = "application/problem+json"
SHOWN_PROBLEMS = 5  # of one request, at most


class NotFound(TriphaseError):
    """There is no such model, draft, lesson or photo."""


class Full(TriphaseError):
    """A quota is used up."""


class Refused(TriphaseError):
    """A refused request, with its HTTP status."""

    def __init__(self, status: int, sentence: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(sentence)
        self.status, self.headers = status, headers or {}


def status_of(error: TriphaseError) -> int:
    """The HTTP status that fits an error."""
    if isinstance(error, Refused):
        return error.status
    if isinstance(error, NotFound):
        return 404
    if isinstance(error, Full):
        return 507
    return next((status for kind, status in STATUS.items() if isinstance(error, kind)), 422)


def problem(status: int, detail: str, **more: object) -> bytes:
    """A problem document, with members of its own."""
    title = HTTPStatus(status).phrase if status in HTTPStatus._value2member_map_ else "Error"
    document = {"type": "about:blank", "title": title, "status": status, "detail": printable(detail), **more}
    return json.dumps(document).encode()


def respond(status: int, detail: str, headers: dict[str, str] | None = None, **more: object) -> Response:
    """A response that carries a problem document."""
    return Response(problem(status, detail, **more), status, media_type=MEDIA_TYPE, headers=headers)


def install(app: FastAPI) -> None:
    """Answer every error of an application with a problem document."""

    @app.exception_handler(TriphaseError)
    async def on_triphase_error(request: Request, error: TriphaseError) -> Response:
        headers = error.headers if isinstance(error, Refused) else None
        more = {"photos": [photo_key(id_) for id_ in error.ids]} if isinstance(error, PhotosNeeded) else {}
        return respond(status_of(error), str(error), headers, **more)

    @app.exception_handler(HTTPException)
    async def on_http_error(request: Request, error: HTTPException) -> Response:
        if isinstance(error.__cause__, OSError):  # while a body was read, which is kept in a file if it is large
            return await on_os_error(request, error.__cause__)
        return respond(error.status_code, _sentence(error, request), dict(error.headers or {}))

    @app.exception_handler(RequestValidationError)
    async def on_validation_error(request: Request, error: RequestValidationError) -> Response:
        return respond(400, describe(error.errors()))

    @app.exception_handler(OSError)
    async def on_os_error(request: Request, error: OSError) -> Response:
        return respond(507, f"The server cannot read or write a file ({error.strerror}); look at its disk.")

    @app.exception_handler(Exception)
    async def on_unexpected_error(request: Request, error: Exception) -> Response:
        return respond(500, "This is an error in the server; its output says where. Please report it.")


def describe(errors: Any) -> str:
    """What is wrong with a request, in a sentence."""
    found = [f"{'.'.join(map(str, error['loc']))}: {_in_words(error['msg'])}" for error in errors[:SHOWN_PROBLEMS]]
    return f"The request is not what the schema says ({'; '.join(found)})."


def _in_words(message: str) -> str:
    """What a check of the schema says, without the words of the library."""
    if "UploadFile" in message:
        return "expected a file, which is a part with a file name"
    return message.removeprefix("Value error, ")


def _sentence(error: HTTPException, request: Request) -> str:
    if error.status_code == 404:
        return f"There is nothing at {request.url.path}; /api/v1/docs lists what there is."
    if error.status_code == 405:
        return f"{request.url.path} does not take {request.method}."
    if error.status_code == 400 and (error.__cause__ is not None or "multipart" in str(error.detail)):
        return (
            "The body of the request cannot be read; send JSON in UTF-8, or files as multipart/form-data, "
            "with file names of at most 255 characters."
        )
    return str(error.detail)
