"""What the server counts, in Prometheus' format."""

from __future__ import annotations

import time
from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from triphase.server.models import Models

BUCKETS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30)


class Metrics:
    """Counts of one server; nothing is shared with other servers of the process."""

    def __init__(self, models: Models) -> None:
        self._registry = CollectorRegistry()
        labels = ("method", "route", "status")
        self._requests = Counter("triphase_requests", "Requests answered", labels, registry=self._registry)
        self._seconds = Histogram(
            "triphase_request_seconds", "Time until an answer", labels[:2], buckets=BUCKETS, registry=self._registry
        )
        self._registry.register(_ModelState(models))

    def exposition(self) -> tuple[bytes, str]:
        """All of it, and its media type."""
        return generate_latest(self._registry), CONTENT_TYPE_LATEST

    def measured(self, app: ASGIApp) -> ASGIApp:
        """The same application, counted."""

        async def asgi(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] != "http":
                await app(scope, receive, send)
                return
            begun, status = time.perf_counter(), 500

            async def counted(message: Message) -> None:
                nonlocal status
                if message["type"] == "http.response.start":
                    status = message["status"]
                await send(message)

            try:
                await app(scope, receive, counted)
            finally:
                route = getattr(scope.get("route"), "path", "none")  # not the path, of which there are too many
                self._requests.labels(scope["method"], route, status).inc()
                self._seconds.labels(scope["method"], route).observe(time.perf_counter() - begun)

        return asgi


class _ModelState:
    """Version, classes and running lessons of the models, read on each request."""

    def __init__(self, models: Models) -> None:
        self._models = models

    def collect(self) -> Iterable[Metric]:
        version = GaugeMetricFamily("triphase_model_version", "Version in use", labels=["model"])
        running = GaugeMetricFamily("triphase_lesson_running", "Whether a lesson is running", labels=["model"])
        for model in self._models.opened():
            current = model.answering.version
            version.add_metric([model.name], float("nan") if current is None else current)
            running.add_metric([model.name], float(model.lessons.running is not None))
        return [version, running]
