"""The process of a lesson: it waits for a model that is being left, and says how it ended."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from lessons import World
from triphase.errors import Busy
from triphase.server.lesson_process import patiently

REQUEST = {"settings": {}, "options": {}, "dry_run": False, "patience": 0, "thumbnails": True, "device": "cpu"}


def test_work_is_tried_again_while_somebody_else_is_at_work(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[float] = []
    monkeypatch.setattr(time, "sleep", waited.append)

    def work() -> str:
        if len(waited) < 2:
            raise Busy("Somebody is at work.")
        return "done"

    assert patiently(work, 60) == "done" and len(waited) == 2
    waited.clear()
    with pytest.raises(Busy):
        patiently(work, 0)


def run(*requests: dict[str, Any]) -> list[dict[str, Any]]:
    command = [sys.executable, "-m", "triphase.server.lesson_process"]
    lines = "".join(json.dumps(request) + "\n" for request in requests)
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(lines)
        process.stdin.flush()
        events: list[dict[str, Any]] = []
        while requests and (line := process.stdout.readline()):
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


def test_without_a_request_it_ends(tmp_path: Path) -> None:
    assert run() == []
