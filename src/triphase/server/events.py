"""The events of a lesson: stored on disk and sent to clients, each from where it left off."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from triphase.server.problems import Refused

MEDIA_TYPE = "text/event-stream"
HEARTBEAT = 15.0  # seconds without an event after which a comment shows that the server is there
POLL = 0.5  # seconds between two checks whether the server is closing


class LessonEvent(NamedTuple):
    """One event; ids count from 1."""

    id: int
    kind: str
    data: dict[str, Any]


class EventLog:
    """Events in the order in which they happened."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._events = _read(file)
        self._changed = asyncio.Event()

    def __len__(self) -> int:
        return len(self._events)

    def append(self, kind: str, data: dict[str, Any]) -> None:
        """Record an event, and wake all waiting clients."""
        event = LessonEvent(len(self._events) + 1, kind, data)
        self._events.append(event)
        with suppress(OSError), open(self._file, "a", encoding="utf-8") as file:  # a full disk stops no lesson
            file.write(json.dumps(event._asdict()) + "\n")
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    def after(self, last: int) -> list[LessonEvent]:
        """The events after `last`."""
        return self._events[max(0, last) :]

    async def wait(self, last: int, seconds: float) -> list[LessonEvent]:
        """The events after `last`, as soon as there is one; none if `seconds` pass before."""
        if len(self._events) <= last:
            try:
                await asyncio.wait_for(self._changed.wait(), seconds)
            except asyncio.TimeoutError:
                pass
        return self.after(last)


class Subscribers:
    """The clients that receive events of lessons; their number is limited, to leave connections for predictions."""

    def __init__(self, most: int) -> None:
        self._most, self._now = most, 0

    def respond(self, events: AsyncIterator[bytes]) -> Response:
        """Add a client: the response that streams events to it; refused if there are too many."""
        if self._now >= self._most:
            sentence = f"{self._most} connections follow lessons already; close some of them, or try again later."
            raise Refused(503, sentence, {"Retry-After": "5"})
        self._now += 1
        return _EventResponse(events, self._leave)

    def _leave(self) -> None:
        self._now -= 1


class _EventResponse(StreamingResponse):
    """A stream of events that runs a clean-up when the client disconnects."""

    def __init__(self, events: AsyncIterator[bytes], leave: Callable[[], None]) -> None:
        super().__init__(events, media_type=MEDIA_TYPE)
        self._leave = leave

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._leave()


async def stream(
    log: EventLog, last: int, is_over: Callable[[], bool], is_closing: Callable[[], bool]
) -> AsyncIterator[bytes]:
    """Server-sent events after `last`, until the lesson is over or the server ends."""
    silent = 0.0
    yield b"retry: 1000\n\n"
    while not is_closing():
        over = is_over()  # checked before reading, so that no event is missed
        events = log.after(last) if over else await log.wait(last, POLL)
        for event in events:
            yield _encode(event)
            last = event.id
        if over:
            return
        silent = 0.0 if events else silent + POLL
        if silent >= HEARTBEAT:
            yield b": still here\n\n"
            silent = 0.0


def _encode(event: LessonEvent) -> bytes:
    return f"id: {event.id}\nevent: {event.kind}\ndata: {json.dumps(event.data)}\n\n".encode()


def _read(file: Path) -> list[LessonEvent]:
    """The events that a file holds; a line that was cut off by a crash is left out."""
    if not file.exists():
        return []
    events: list[LessonEvent] = []
    text = file.read_text(encoding="utf-8", errors="replace")
    if text and not text.endswith("\n"):
        with open(file, "a", encoding="utf-8") as torn:
            torn.write("\n")
    for line in text.splitlines():
        try:
            document = json.loads(line)
            events.append(LessonEvent(len(events) + 1, str(document["kind"]), dict(document["data"])))
        except (ValueError, KeyError, TypeError):
            continue
    return events
