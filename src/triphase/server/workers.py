"""Processes that lessons run in; one is started beforehand, since it needs seconds until it can begin."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

from triphase import errors
from triphase.errors import TriphaseError

COMMAND = (sys.executable, "-m", "triphase.server.lesson_process")
MAX_LINE = 64 << 20  # bytes of one event, at most
SPARE_SECONDS = 300.0  # after which an unused spare process ends


class Workers:
    """Starts processes for lessons."""

    def __init__(self) -> None:
        self._spare: asyncio.Task[Process] | None = None
        self._timer: asyncio.TimerHandle | None = None

    async def start(self, request: dict[str, Any]) -> Process:
        """A process that does what a request says: the spare one, or a new one."""
        spare, self._spare = self._spare, None
        process = None
        if spare is not None:
            with suppress(OSError):  # it could not be started then
                process = await spare
        if process is None or process.returncode is not None:
            process = await _spawn()
        assert process.stdin is not None
        process.stdin.write(json.dumps(request).encode() + b"\n")
        return process

    def warm_up(self) -> None:
        """Start a process that waits for a request."""
        if self._spare is None:
            self._spare = asyncio.create_task(_spawn())
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(SPARE_SECONDS, self._end_spare)

    async def close(self) -> None:
        """End the spare process."""
        if self._timer is not None:
            self._timer.cancel()
        if self._spare is not None:
            with suppress(OSError):  # it has ended, or was never there
                process = await self._spare
                process.kill()
                await process.wait()

    def _end_spare(self) -> None:
        if self._spare is not None and self._spare.done():
            if self._spare.exception() is None:
                close_input(self._spare.result())
            self._spare = None


async def events(process: Process) -> AsyncIterator[dict[str, Any]]:
    """What a process reports, until it ends."""
    assert process.stdout is not None
    while line := await process.stdout.readline():
        yield json.loads(line)


def error_of(event: dict[str, Any]) -> TriphaseError:
    """The error that a process reported."""
    kind: type[TriphaseError] = getattr(errors, event.get("kind", ""), TriphaseError)
    return kind(event.get("sentence", "The lesson's process ended without an error message; try again."))


def close_input(process: Process) -> None:
    """Close the input of a process, which makes it end."""
    if process.stdin is not None:
        process.stdin.close()


async def _spawn() -> Process:
    # Threads that wait for each other sleep: by default they spin, on cores that answers need.
    environment = {"OMP_WAIT_POLICY": "PASSIVE", **os.environ}
    return await asyncio.create_subprocess_exec(
        *COMMAND, stdin=PIPE, stdout=PIPE, limit=MAX_LINE, start_new_session=True, env=environment
    )
