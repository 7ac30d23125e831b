"""The application: routes, the page and their security."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from fastapi import FastAPI
from starlette.types import ASGIApp, Receive, Scope, Send

from triphase import __version__
from triphase.server import docs_page, page, problems
from triphase.server.events import Subscribers
from triphase.server.label_studio import LabelStudio
from triphase.server.limits import Limits
from triphase.server.metrics import Metrics
from triphase.server.models import Models
from triphase.server.options import ServeOptions
from triphase.server.routes import (
    drafts,
    export,
    health,
    inbox,
    label_studio,
    lessons,
    models,
    predict,
    review,
    watched,
)
from triphase.server.schemas import Problem
from triphase.server.security import Access, Guard
from triphase.server.watch import Watcher

DESCRIPTION = (
    "Teach an image classifier, ask it, and take back what it was taught. Errors are problem documents (RFC 9457)."
)


@dataclass(frozen=True)
class Application:
    """What a server runs."""

    asgi: ASGIApp
    app: FastAPI
    limits: Limits

    def close(self) -> None:
        """Let streams of events end, so that the server can."""
        self.app.state.closing = True


def create_app(options: ServeOptions, access: Access) -> Application:
    """The application for some models."""
    studio = None if options.label_studio is None else LabelStudio(options.label_studio)
    served = Models(options)
    try:
        watcher = None if options.watch is None else Watcher(options.watch, served.only())
    except BaseException:
        served.release()
        raise

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        await served.start()
        watching = None if watcher is None else asyncio.create_task(watcher.run())
        yield
        if watching is not None:
            watching.cancel()
        await served.close()

    app = FastAPI(
        title="triphase",
        version=__version__,
        description=DESCRIPTION,
        lifespan=lifespan,
        openapi_url="/api/v1/openapi.json",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        separate_input_output_schemas=False,
    )
    metrics = Metrics(served)
    app.state.models, app.state.photos, app.state.metrics = served, options.photos, metrics
    app.state.closing, app.state.watcher, app.state.subscribers = (
        False,
        watcher,
        Subscribers(options.limits.subscribers),
    )
    app.state.label_studio = studio
    for part in (
        models,
        predict,
        drafts,
        lessons,
        review,
        inbox,
        watched,
        export,
        label_studio,
        health,
        docs_page,
        page,
    ):
        app.include_router(part.router)
    problems.install(app)
    _describe_problems(app)
    public = {"/healthz", *page.paths()}
    guarded = Guard(_head_as_get(metrics.measured(app)), access, options.limits, public, basic=label_studio.PATHS)
    return Application(guarded, app, options.limits)


def _head_as_get(app: ASGIApp) -> ASGIApp:
    """The same application, which answers HEAD as GET; uvicorn leaves out the body."""

    async def asgi(scope: Scope, receive: Receive, send: Send) -> None:
        await app({**scope, "method": "GET"} if scope.get("method") == "HEAD" else scope, receive, send)

    return asgi


def _describe_problems(app: FastAPI) -> None:
    """Let the schema say what every error looks like, in place of FastAPI's own."""
    make = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            schema = make()
            parts = schema["components"]["schemas"]
            parts["Problem"] = Problem.model_json_schema()
            for operations in schema["paths"].values():
                for operation in operations.values():
                    if operation["responses"].get("422", {}).get("description") == "Validation Error":
                        del operation["responses"]["422"]
            parts.pop("HTTPValidationError", None)
            parts.pop("ValidationError", None)
            scheme = {"type": "http", "scheme": "bearer"}
            schema["components"]["securitySchemes"] = {"token": scheme}
            schema["security"] = [{"token": []}]
            app.openapi_schema = schema
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]
