"""The process of a lesson: it waits for a model that is being left, and says how it ended."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from lessons import World
from triphase.app.thumbnails import Thumbnails
from triphase.context import Context
from triphase.errors import Busy
from triphase.server import lesson_process
from triphase.server.lesson_process import retry_while_busy
from triphase.server.workers import Workers

REQUEST = {"work": "lesson", "settings": {}, "options": {}, "patience": 0, "parent": None, "thumbnails": True}
REQUEST |= {"device": "cpu"}


def test_work_is_tried_again_while_somebody_else_is_at_work(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[float] = []
    monkeypatch.setattr(time, "sleep", waited.append)

    def work() -> str:
        if len(waited) < 2:
            raise Busy("Somebody is at work.")
        return "done"

    assert retry_while_busy(work, 60) == "done" and len(waited) == 2
    waited.clear()
    with pytest.raises(Busy):
        retry_while_busy(work, 0)


def run(request: dict[str, Any]) -> list[dict[str, Any]]:
    command = [sys.executable, "-m", "triphase.server.lesson_process"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(json.dumps(request) + "\n")
        process.stdin.flush()
        events: list[dict[str, Any]] = []
        while line := process.stdout.readline():
            events.append(json.loads(line))
        process.stdin.close()
        assert process.wait(60) == 0
    return events


def test_it_reports_an_outcome_or_an_error(world: World) -> None:
    events = run({**REQUEST, "model": str(world.base), "photos": str(world.two)})
    assert events[-1]["event"] == "outcome" and events[-1]["outcome"]["version"] == 2
    assert events[-1]["refusal"] is None
    events = run({**REQUEST, "model": str(world.base), "photos": str(world.two / "nowhere")})
    assert events == [{"event": "error", "kind": "BadData", "sentence": events[0]["sentence"]}]
    assert "no folder" in events[0]["sentence"]


def test_a_published_lesson_is_done_even_if_it_is_stopped_while_thumbnails_are_made(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped_at_the_third(photo: Path) -> bytes:
        made.append(photo)
        if len(made) == 3:
            raise KeyboardInterrupt
        return b"a picture"

    made: list[Path] = []
    monkeypatch.setattr(lesson_process, "thumbnail", stopped_at_the_third)
    event = lesson_process._teach(request_for(world), Context(), lambda event: None)
    assert event["event"] == "outcome" and event["outcome"]["published"]
    assert len(Thumbnails.open(world.base).pictures) == 2


def test_a_published_lesson_is_done_even_if_its_thumbnails_cannot_be_kept(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def busy(model: Path, pictures: object) -> None:
        raise Busy("Somebody is at work.")

    monkeypatch.setattr(lesson_process, "add_thumbnails", busy)
    event = lesson_process._teach(request_for(world), Context(), lambda event: None)
    assert event["event"] == "outcome" and event["outcome"]["published"]
    assert event["outcome"]["notes"][-1].endswith("Somebody is at work.")


def request_for(world: World) -> dict[str, Any]:
    return {**REQUEST, "model": str(world.base), "photos": str(world.two)}


def test_a_process_that_was_started_beforehand_ends_if_nobody_needs_it() -> None:
    async def scenario() -> None:
        workers = Workers()
        workers.warm_up()
        workers.warm_up()
        assert workers._spare is not None
        spare = await workers._spare
        workers._end_spare()
        assert await spare.wait() == 0 and workers._spare is None
        await workers.close()

    with ThreadPoolExecutor(1) as pool:  # tests of the page leave an event loop running in this thread
        pool.submit(asyncio.run, scenario()).result()
