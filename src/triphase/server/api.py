"""The application: routes, the page, and what guards them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from starlette.types import ASGIApp

from triphase import __version__
from triphase.server import docs_page, page, problems
from triphase.server.limits import Limits
from triphase.server.metrics import Metrics
from triphase.server.models import Models
from triphase.server.routes import drafts, health, lessons, models, predict
from triphase.server.schemas import Problem
from triphase.server.security import Access, Guard

DESCRIPTION = (
    "Teach an image classifier, ask it, and take back what it was taught. Errors are problem documents (RFC 9457)."
)


@dataclass(frozen=True)
class ServeOptions:
    """What is served, and what beyond answers is allowed."""

    model: Path | None = None
    models: Path | None = None
    photos: Path | None = None  # lessons may be made from folders below it
    limits: Limits = field(default_factory=Limits)


@dataclass(frozen=True)
class Application:
    """What a server runs."""

    asgi: ASGIApp
    app: FastAPI

    def close(self) -> None:
        """Let streams of events end, so that the server can."""
        self.app.state.closing = True


def create_app(options: ServeOptions, access: Access) -> Application:
    """The application for some models."""
    served = Models(options.model, options.models, options.limits)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        await served.start()
        yield
        await served.close()

    app = FastAPI(
        title="triphase",
        version=__version__,
        description=DESCRIPTION,
        lifespan=lifespan,
        openapi_url="/api/v1/openapi.json",
        docs_url=None,
        redoc_url=None,
        separate_input_output_schemas=False,
    )
    metrics = Metrics(served)
    app.state.models, app.state.photos, app.state.metrics = served, options.photos, metrics
    app.state.closing = False
    for part in (models, predict, drafts, lessons, health, docs_page, page):
        app.include_router(part.router)
    problems.install(app)
    _describe_problems(app)
    guarded = Guard(metrics.measured(app), access, options.limits, public={"/healthz", *page.paths()})
    return Application(guarded, app)


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
