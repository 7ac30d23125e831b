"""Commands that show a model or go back to an older version, without PyTorch: status, history, classes, undo."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from triphase.app.store.schema import Version
from triphase.app.store.versions import WHERE_IT_BEGAN, Store, open_store
from triphase.app.timeline import describe
from triphase.cli.arguments import JSON, ModelFolder
from triphase.cli.printing import print_json, say
from triphase.cli.tables import cell, plain_table
from triphase.errors import BadData, CorruptState, Mismatch, few
from triphase.printable import count, percent
from triphase.state import folder_bytes

NEVER_UNKNOWN = 'no answer is "unknown" until more photos are taught'
LESSONS = ("taught", "taught_quick")  # events after which held-out photos have been evaluated


def status(model: ModelFolder, as_json: JSON = False) -> None:
    """Show the classes, version, memory and accuracy of a model."""
    store = open_store(model)
    version = store.version()
    size = folder_bytes(model)
    accuracy, accuracy_of = _accuracy(store, version)
    document = {
        **version.info,
        "accuracy": accuracy,
        "accuracy_of": accuracy_of,
        "model": str(model),
        "version": version.number,
        "created": version.created,
        "versions": store.version_numbers(),
        "bytes": size,
        "unfinished": (unfinished := _unfinished(store, version)) is not None,
    }
    if as_json:
        print_json(document)
        return
    info, memory = version.info, version.info["memory"]
    table = Table.grid(padding=(0, 2))
    kept = count(len(document["versions"]), "version")
    table.add_row("version", f"{version.number}, published {_local_time(version.created)}; {kept} kept")
    table.add_row("classes", cell(f"{len(info['classes'])}: {few(info['classes'])}"))
    table.add_row("taught", f"{count(info['taught'], 'photo')} in {count(info['lessons'], 'lesson')}")
    table.add_row("learner", f"{info['learner']} on {info['backbone']} at {info['image_size']} px")
    table.add_row("engine", f"{info.get('engine', 'torch')} on {info.get('device', 'cpu')}")
    table.add_row("memory", _memory(info["replay"], memory))
    shown = "not measured in this version" if accuracy is None else f"{percent(accuracy)} on {accuracy_of}"
    table.add_row("accuracy", shown)
    if 2 * memory.get("alike", 0) > memory["exemplars"]:
        table.add_row("", _alike_warning(memory))
    if not info.get("unknown", True):
        table.add_row("unknown", NEVER_UNKNOWN)
    table.add_row("on disk", _size(size))
    Console().print(table, highlight=False)
    if unfinished is not None:
        say(unfinished)


def _unfinished(store: Store, version: Version) -> str | None:
    """A sentence if work on this version is under way or was interrupted."""
    try:
        mark = store.directory.read_lesson()
    except (CorruptState, Mismatch):  # the next lesson starts again
        return None
    if mark is None or mark.parent != version.number:
        return None
    if mark.epochs:
        return "A consolidation is running or was interrupted; it goes on where it began: the command, or the page."
    return f"A lesson is running or was interrupted; it goes on {WHERE_IT_BEGAN}."


def history(model: ModelFolder, as_json: JSON = False) -> None:
    """List what was done to a model, version by version.

    Accuracy is that of the classes known before each lesson, on held-out photos.
    """
    store = open_store(model)
    current, kept, events = store.version(), store.version_numbers(), store.history()
    if as_json:
        print_json({"model": str(model), "version": current.number, "kept": kept, "events": events})
        return
    last = max(i for i, event in enumerate(events) if event["version"] == current.number)
    table = plain_table("version", "when", "what", "photos", "accuracy before", "after", "")
    for i, event in enumerate(events):
        lost = "" if event["version"] in kept else "no longer kept"
        table.add_row(
            str(event["version"]),
            _local_time(event["time"]),
            cell(_event_text(event)),
            f"{event['images']:,}" if "images" in event else "",
            percent(event["before"]) if event.get("before") is not None else "",
            percent(event["after"]) if event.get("after") is not None else "",
            "in use" if i == last else lost,
        )
    Console().print(table)


def classes(model: ModelFolder, as_json: JSON = False) -> None:
    """List the classes of a model, in order of arrival."""
    info = open_store(model).version().info
    counts = [{"name": name, **counts} for name, counts in zip(info["classes"], info["counts"], strict=True)]
    if as_json:
        print_json({"model": str(model), "classes": counts})
        return
    table = plain_table("class", "photos taught", "in memory", "held out")
    for c in counts:
        table.add_row(cell(c["name"]), f"{c['taught']:,}", f"{c['stored']:,}", f"{c['exemplars']:,}")
    Console().print(table)


def undo(model: ModelFolder, as_json: JSON = False) -> None:
    """Go back to the previous version, bit for bit; repeat it to go back further."""
    version = open_store(model).undo()
    names = version.info["classes"]
    print_change(
        as_json,
        model,
        version,
        f"Back at version {version.number}, published {_local_time(version.created)}, "
        f"with {count(len(names), 'class')}: {few(names)}.",
    )


def print_change(as_json: bool, model: Path, version: Version, sentence: str, **more: Any) -> None:
    if as_json:
        print_json({"model": str(model), "version": version.number, "classes": version.info["classes"], **more})
    else:
        say(sentence)


def _event_text(event: dict[str, Any]) -> str:
    """An event in words; "..." stands for a name that was forgotten everywhere."""
    kind = str(event["event"])
    if kind == "taught":
        forced = " (by force)" if event.get("forced") else ""
        return f"taught {few(list(event['classes']))}{forced}"
    if kind == "moved":
        return f"moved photos to {few(list(event['classes'])) or '...'}"
    words: dict[str, str] = {
        "taught_quick": "taught in part (--quick)",
        "renamed": f"renamed {event.get('old') or '...'} to {event.get('new') or '...'}",
        "forgot": "forgot a class",
        "consolidated": "consolidated",
        "untaught": "removed photos",
        "undone": f"went back from version {event.get('undid')}",
        "saved": "saved by a program",
    }
    return words.get(kind, kind)


def _memory(replay: str, memory: dict[str, int]) -> str:
    if replay == "none":
        return "none: nothing is stored of any photo"
    kind = "pixels" if replay == "raw" else "features"
    held = f"{memory['samples']:,} of at most {memory['capacity']:,} photos as {kind} ({_size(memory['bytes'])})"
    return f"{held}; {memory['exemplars']:,} of them held out for evaluation"


def _accuracy(store: Store, version: Version) -> tuple[float | None, str | None]:
    """The accuracy of a version and on which photos: of the classes known before the last lesson, or of all.

    It is of all classes if fewer than two were known before, and after a consolidation.
    """
    accuracy, own = version.info.get("accuracy"), describe(store, version.number)[2]
    of_known = accuracy, "held-out photos of the classes known before the last lesson"
    if accuracy is not None and accuracy != own.share:
        return of_known
    events = [event["event"] for event in store.history() if event["version"] == version.number]
    last = next((kind for kind in reversed(events) if kind != "undone"), None)
    if accuracy is not None and last in LESSONS:
        return of_known
    if own.share is None or (accuracy is None and last not in LESSONS):
        return None, None
    return own.share, count(own.n, "held-out photo")


def _alike_warning(memory: dict[str, int]) -> str:
    share = f"{memory['alike']:,} of {memory['exemplars']:,} held-out photos"
    return f"but {share} look like training photos: expect less on photos of other places and days"


def _size(n: int) -> str:
    return f"{n / 1e6:,.1f} MB"


def _local_time(time: str) -> str:
    """A recorded time as local time."""
    try:
        return datetime.fromisoformat(time).astimezone().strftime("%Y-%m-%d %H:%M")
    except ValueError as error:
        raise BadData(f"The time {time!r} in the history cannot be read.") from error
