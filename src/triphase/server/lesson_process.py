"""A lesson in a process of its own: a request on standard input, events as JSON lines on standard output.

SIGTERM stops it without loss, and so does the end of standard input, which is the end of the server.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TextIO, TypeVar

import torch

from triphase.app.consolidate import consolidate, consolidated_since
from triphase.app.lesson_checkpoint import LessonCheckpoint
from triphase.app.plan import LessonSettings
from triphase.app.teach import dry_run, teach
from triphase.app.thumbnails import Thumbnails, thumbnail
from triphase.app.thumbnails import add as add_thumbnails
from triphase.context import Context
from triphase.data.sources.files import file_id
from triphase.data.sources.folder import class_folders
from triphase.device import make_deterministic
from triphase.errors import BadData, Busy, TriphaseError, TriphaseWarning

NICENESS = 5  # answers go first
MAX_THUMBNAILS = 20_000  # of one lesson
Event = dict[str, Any]
Result = TypeVar("Result")


def main() -> None:
    """Wait for a request, do what it says, and report how it ended."""
    line, channel = sys.stdin.readline(), _take_stdout()
    if line:
        _serve(json.loads(line), _reporter(channel))
    os._exit(0)  # unloading all modules would take a tenth of a second, and nothing is left to write


def _serve(request: dict[str, Any], report: Callable[[Event], None]) -> None:
    if hasattr(os, "nice"):
        os.nice(NICENESS)
    signal.signal(signal.SIGTERM, _stop)
    threading.Thread(target=_stop_with_the_server, daemon=True).start()
    _report_warnings(report)
    try:
        last = _run(request, report)
    except KeyboardInterrupt:
        last = {"event": "stopped"}
    except TriphaseError as error:
        last = {"event": "error", "kind": type(error).__name__, "sentence": str(error)}
    except Exception as error:
        traceback.print_exc()
        sentence = f"The lesson failed ({type(error).__name__}: {error}); the server's output says where."
        last = {"event": "error", "kind": "TriphaseError", "sentence": sentence}
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    report(last)


def _run(request: dict[str, Any], report: Callable[[Event], None]) -> Event:
    work = {"plan": _plan, "lesson": _teach, "consolidation": _consolidate}[request["work"]]
    context = Context(engine="auto", device=request["device"])
    if context.device is not None and context.device.type == "cuda":
        make_deterministic()
    threads = LessonCheckpoint.recorded_threads(Path(request["model"]))
    if threads is not None:  # another number of threads would give another model
        torch.set_num_threads(threads)
    return work(request, context, report)


def _plan(request: dict[str, Any], context: Context, report: Callable[[Event], None]) -> Event:
    model, photos, settings = Path(request["model"]), Path(request["photos"]), LessonSettings(**request["settings"])
    return {
        "event": "plan",
        "plan": dry_run(model, photos, request["options"], settings, context=context).to_json(),
    }


def _teach(request: dict[str, Any], context: Context, report: Callable[[Event], None]) -> Event:
    model, photos, settings = Path(request["model"]), Path(request["photos"]), LessonSettings(**request["settings"])
    outcome = retry_while_busy(
        lambda: teach(model, photos, request["options"], settings, on_event=_Progress(report), context=context),
        request["patience"],
    )
    if request["thumbnails"] and outcome.refusal is None:
        with suppress(KeyboardInterrupt):  # the lesson is published, so it cannot be stopped any more
            outcome.notes.extend(_add_thumbnails(model, photos))
    return {"event": "outcome", "outcome": outcome.to_json(), "refusal": outcome.refusal}


def _consolidate(request: dict[str, Any], context: Context, report: Callable[[Event], None]) -> Event:
    model, minutes, parent = Path(request["model"]), request["settings"]["minutes"], request["parent"]

    def work() -> Event:
        if parent is not None and (published := consolidated_since(model, parent)) is not None:
            return published
        return consolidate(model, minutes, on_event=_Progress(report), device=context.device).to_json()

    return {"event": "outcome", "outcome": retry_while_busy(work, request["patience"]), "refusal": None}


def retry_while_busy(work: Callable[[], Result], seconds: float) -> Result:
    """Do work on a model as soon as its lock is free, or fail with Busy after `seconds`."""
    end = time.monotonic() + seconds
    while True:
        try:
            return work()
        except Busy:
            if time.monotonic() >= end:
                raise
        time.sleep(0.2)


def _add_thumbnails(model: Path, photos: Path) -> list[str]:
    """Keep thumbnails of the photos of a lesson that have none yet; returns a sentence if they cannot be kept."""
    try:
        known, found = Thumbnails.open(model).pictures, {}
        files = [file for folder in class_folders(photos) for file in folder.images]
        with suppress(KeyboardInterrupt):  # those that are made by then are kept
            for file in files[:MAX_THUMBNAILS]:
                with suppress(BadData):  # the lesson was told to skip it
                    if (id_ := file_id(file)) not in known:
                        found[id_] = thumbnail(file)
        if found:
            add_thumbnails(model, found)
    except (TriphaseError, OSError) as error:
        return [f"The page shows no pictures of the new photos, because they cannot be kept: {error}"]
    return []


class _Progress:
    """Adds to each step how fast the lesson goes, and how long it will take at this speed."""

    def __init__(self, report: Callable[[Event], None]) -> None:
        self._report = report
        self._steps: dict[str, int] = {}  # planned, of each phase
        self._minibatch = 0
        self._phase, self._begun, self._done_before = "", 0.0, 0

    def __call__(self, event: Event) -> None:
        if event["event"] == "begin":
            self._steps, self._minibatch = event["steps"], event["minibatch"]
        if event["event"] == "step":
            event = event | self._speed(event)
        self._report(event)

    def _speed(self, event: Event) -> Event:
        done, now = (event["epoch"] - 1) * event["steps"] + event["step"], time.perf_counter()
        if event["phase"] != self._phase:
            self._phase, self._begun, self._done_before = event["phase"], now, done
        seconds, steps = now - self._begun, done - self._done_before
        if steps <= 0 or seconds <= 0:
            return {"images_per_second": None, "seconds_left": None}
        later = [n for phase, n in self._steps.items() if phase > event["phase"]]  # "I" < "II" < "III"
        left = event["epochs"] * event["steps"] - done + sum(later)
        return {
            "images_per_second": round(self._minibatch * steps / seconds, 1),
            "seconds_left": round(left * seconds / steps, 1),
        }


def _take_stdout() -> TextIO:
    """Standard output for events alone: whatever else is printed goes to standard error."""
    channel = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return channel


def _reporter(channel: TextIO) -> Callable[[Event], None]:
    lock = threading.Lock()

    def report(event: Event) -> None:
        try:
            with lock:
                channel.write(json.dumps(event) + "\n")
                channel.flush()
        except BrokenPipeError:  # the server is gone; the end of standard input stops the lesson
            pass

    return report


def _report_warnings(report: Callable[[Event], None]) -> None:
    warnings.simplefilter("ignore")
    warnings.simplefilter("always", TriphaseWarning)

    def show(message: Warning | str, *about: object, **more: object) -> None:
        report({"event": "warning", "sentence": str(message)})

    warnings.showwarning = show


def _stop(signum: int, frame: object) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise KeyboardInterrupt


def _stop_with_the_server() -> None:
    sys.stdin.read()
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # ctrl-C in the server's terminal: the server decides
    main()
