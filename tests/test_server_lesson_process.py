"""The process of a lesson: it waits for a model that is being left, and says how it ended."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from lessons import World
from triphase.errors import Busy
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
