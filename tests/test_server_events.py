"""Those who follow a lesson: as many as there is room for, and no more."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from starlette.types import Message

from triphase.server.events import Subscribers
from triphase.server.problems import Refused


async def events() -> AsyncIterator[bytes]:
    yield b": nothing\n\n"


async def never() -> Message:
    await asyncio.Event().wait()
    raise AssertionError


async def gone() -> Message:
    return {"type": "http.disconnect"}


async def ignore(message: Message) -> None:
    pass


async def broken(message: Message) -> None:
    raise OSError("the connection is gone")


def test_one_more_is_refused_until_another_has_left() -> None:
    subscribers, scope = Subscribers(2), {"type": "http", "asgi": {"spec_version": "2.3"}}

    async def follow() -> None:
        for receive, send in ((never, ignore), (gone, ignore), (never, broken)):
            first, second = subscribers.respond(events()), subscribers.respond(events())
            with pytest.raises(Refused, match="2 connections follow lessons already; close some") as full:
                subscribers.respond(events())
            assert full.value.status == 503 and full.value.headers == {"Retry-After": "5"}
            for response in (first, second):
                try:
                    await response(scope, receive, send)
                except Exception:
                    assert send is broken

    with ThreadPoolExecutor(1) as pool:  # this thread may have an event loop already: that of a browser
        pool.submit(asyncio.run, follow()).result()
