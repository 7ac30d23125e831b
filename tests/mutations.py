"""Nonsense with valid checksums: structure-aware mutations of a model directory, and commands that must bear it."""

from __future__ import annotations

import contextlib
import copy
import json
import math
import os
import random
import re
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch import Tensor

from command import Answer
from lessons import SMALL, done, paint, triphase
from triphase import state as files
from triphase.app.store.checksums import FORMAT, sha256, with_checksum

VALUES: list[Any] = [
    None,
    True,
    -1,
    0,
    1,
    7,
    2**70,
    1.5,
    math.nan,
    math.inf,
    -math.inf,
    1e308,
    "",
    "x",
    "\x1b[31m",
    "\ud800",
    "../../outside",
    "unknown",
    "2026-01-01",
    [],
    {},
    [1, 2],
    [[]],
    {"x": 1},
    ["cat", "cat"],
]


def load_document(file: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(file.read_bytes())
    document.pop("checksum")
    return document


def save_document(file: Path, document: Any) -> None:
    file.write_bytes(with_checksum(document) + b"\n")


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every container in a tree with each of its keys."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in list(items):
        yield value, key
        yield from places(item)


def mutate_tree(tree: Any, draw: random.Random) -> str:
    """Change one place of a tree; what was done."""
    found = list(places(tree))
    if not found:
        return "nothing"
    container, key = draw.choice(found)
    kind = draw.choice(["drop", "null", "value", "value", "value", "near", "extra"])
    old = container[key]
    if isinstance(old, Tensor):
        container[key], kind = mutate_tensor(old, draw)
    elif kind == "drop":
        del container[key]
    elif kind == "extra" and isinstance(container, dict):
        container["extra"] = draw.choice(VALUES)
    elif kind == "near" and isinstance(old, int | float) and not isinstance(old, bool):
        container[key] = old + draw.choice([-1, 1, 0.5])
    elif kind == "near" and isinstance(old, list) and old:
        container[key] = draw.choice([old[:-1], old + old[:1], old[::-1]])
    else:
        container[key] = None if kind == "null" else copy.deepcopy(draw.choice(VALUES))
    return f"{kind} {key}"


TENSORS: dict[str, Callable[[Tensor], Any]] = {
    "nan": lambda t: _first(t, math.nan),
    "infinity": lambda t: _first(t, math.inf),
    "huge": lambda t: _first(t, 1e30),
    "negative": lambda t: -t.float().abs() - 1,
    "out of range": lambda t: _first(t, 10**6),
    "another dtype": lambda t: t.to(torch.int32 if t.is_floating_point() else torch.float64),
    "half": lambda t: t.half(),
    "a row less": lambda t: t[:-1] if t.dim() else t.view(1),
    "twice": lambda t: torch.cat([t, t]) if t.dim() else t.repeat(2),
    "truncated": lambda t: t.reshape(-1)[: t.numel() // 2],
    "another dimension": lambda t: t.unsqueeze(-1),
    "flat": lambda t: t.reshape(-1),
    "empty": lambda t: t.reshape(-1)[:0],
    "null": lambda t: None,
    "a list": lambda t: t.reshape(-1)[:5].tolist(),
    "a number": lambda t: 3,
}


def _first(tensor: Tensor, value: float) -> Tensor:
    """A copy with another first value, or the nearest that its type has."""
    changed = tensor.clone() if tensor.is_floating_point() or math.isfinite(value) else tensor.float()
    changed = changed.long() if changed.dtype == torch.bool else changed
    if math.isfinite(value):
        kind = torch.finfo if changed.is_floating_point() else torch.iinfo
        value = min(value, kind(changed.dtype).max)
    if changed.numel():
        changed.view(-1)[0] = value
    return changed


def mutate_tensor(tensor: Tensor, draw: random.Random) -> tuple[Any, str]:
    kind = draw.choice(list(TENSORS))
    return TENSORS[kind](tensor), kind


def numbers(model: Path) -> list[int]:
    return sorted(int(file.stem) for file in (model / "versions").glob("*.json"))


def in_use(model: Path) -> int:
    return int(load_document(model / "CURRENT")["version"])


def version_file(model: Path, number: int) -> Path:
    return model / "versions" / f"{number:06d}.json"


def read_part(model: Path, name: str, number: int | None = None) -> Any:
    document = load_document(version_file(model, number or in_use(model)))
    return files.load(model / "parts" / f"{document['parts'][name]['sha256']}.safetensors")["part"]


def write_part(model: Path, name: str, value: Any, number: int | None = None) -> None:
    """Let a version have another part, with all checksums right."""
    file = version_file(model, number or in_use(model))
    document, digest = load_document(file), sha256(value)
    files.save(model / "parts" / f"{digest}.safetensors", {"part": value})
    document["parts"][name] = {"sha256": digest, "bytes": 1}
    save_document(file, document)


def change_document(model: Path, draw: random.Random) -> str:
    choices = [model / "CURRENT", version_file(model, in_use(model)), draw.choice(list(model.glob("versions/*")))]
    file = draw.choice(choices)
    document = load_document(file)
    what = mutate_tree(document, draw)
    save_document(file, document)
    return f"{file.name}: {what}"


def change_history(model: Path, draw: random.Random) -> str:
    file = model / "history.jsonl"
    lines = file.read_bytes().splitlines()
    place = draw.randrange(len(lines))
    event = json.loads(lines[place])
    event.pop("checksum")
    what = mutate_tree(event, draw)
    lines[place] = with_checksum(event)
    file.write_bytes(b"".join(line + b"\n" for line in lines))
    return f"history {place}: {what}"


def change_part(model: Path, draw: random.Random) -> str:
    number = draw.choice([in_use(model), in_use(model), *numbers(model)])
    name = draw.choice(sorted(load_document(version_file(model, number))["parts"]))
    holder = {"part": read_part(model, name, number)}
    what = mutate_tree(holder, draw)
    write_part(model, name, holder.get("part"), number)
    return f"{name} of version {number}: {what}"


def swap_parts(model: Path, draw: random.Random) -> str:
    """Let a version have a part of another version, or one part in the place of another."""
    number, other = in_use(model), draw.choice(numbers(model))
    document, donor = load_document(version_file(model, number)), load_document(version_file(model, other))
    name = draw.choice(sorted(document["parts"]))
    taken = draw.choice([name, draw.choice(sorted(donor["parts"]))])
    if taken in donor["parts"]:
        document["parts"][name] = donor["parts"][taken]
    save_document(version_file(model, number), document)
    return f"{name} from {taken} of version {other}"


def change_kind(model: Path, draw: random.Random) -> str:
    """Put something else where a file was."""
    found = [file for file in sorted(model.rglob("*")) if file.name != "LOCK"]
    file = draw.choice(found)
    kind = draw.choice(["fifo", "folder", "link", "dangling", "device", "empty", "missing"])
    replace_by(file, kind)
    return f"{file.relative_to(model)} is a {kind}"


def replace_by(file: Path, kind: str) -> None:
    aside = file.parents[1] / "aside"
    shutil.rmtree(aside) if aside.is_dir() else aside.unlink(missing_ok=True)
    file.rename(aside)
    if kind == "fifo":
        os.mkfifo(file)
    elif kind == "folder":
        file.mkdir()
    elif kind == "empty":
        file.write_bytes(b"")
    elif kind != "missing":
        target = {"link": aside, "dangling": file.parent / "nowhere", "device": Path("/dev/zero")}[kind]
        file.symlink_to(target)


def change_lesson(model: Path, draw: random.Random) -> str:
    (model / "work").mkdir(exist_ok=True)
    mark = {"format": FORMAT, "lesson": "0" * 64, "parent": draw.choice([0, 1, 99]), "threads": 1}
    what = mutate_tree(mark, draw)
    save_document(model / "work" / "lesson.json", mark)
    return f"lesson: {what}"


KINDS: dict[str, Callable[[Path, random.Random], str]] = {
    "document": change_document,
    "history": change_history,
    "part": change_part,
    "swap": swap_parts,
    "kind": change_kind,
    "lesson": change_lesson,
}


# Commands

CLASSES = {"red", "scarlet", "green", "blue", "yellow", "azure", "unknown"}
COMMANDS: dict[str, list[str]] = {
    "status": [],
    "classes": [],
    "history": [],
    "predict": ["{test}/green/100.png"],
    "evaluate": ["{test}"],
    "undo": [],
    "rename": ["blue", "azure"],
    "forget": ["green"],
    "forget everywhere": ["scarlet", "--everywhere"],
    "unteach": ["{one}/green/1.png"],
    "teach": ["{more}", "--force"],
}
LONGEST = 60  # seconds of a command; each takes less than one


def make_world(root: Path, *options: str) -> Path:
    """Folders of photos, and a model with versions 1 to 4, in the second of which red becomes scarlet."""
    for colour in ("red", "green", "blue"):
        paint(root / "one" / colour, colour, range(8))
    paint(root / "two" / "yellow", "yellow", range(6))
    for colour in ("green", "blue"):
        paint(root / "test" / colour, colour, range(100, 103))
    paint(root / "more" / "green", "green", range(200, 204))
    done("teach", root / "model", root / "one", *SMALL, *options)
    done("rename", root / "model", "red", "scarlet")
    done("teach", root / "model", root / "two", "--force")
    done("unteach", root / "model", root / "one" / "blue" / "0.png")
    return root


def call(command: str, world: Path, model: Path, *more: str) -> Answer:
    """What a command of the list answers."""
    folders = {name: world / name for name in ("one", "two", "more", "test")}
    arguments = [argument.format(**folders) for argument in COMMANDS[command]]
    with _limited(LONGEST):
        return triphase(command.split()[0], model, *arguments, *more)


def assert_sane(answer: Answer) -> None:
    """A sentence and exit 1, or an answer and exit 0."""
    errors = [line for line in answer.err.splitlines() if line.startswith("error: ")]
    assert (answer.status, len(errors)) in ((0, 0), (1, 1)), answer
    assert "Traceback" not in answer.err and not re.search(r"\bnan\b", answer.out + answer.err), answer
    assert "\x1b" not in answer.out + answer.err, answer


def assert_sane_document(answer: Answer) -> None:
    """The same with --json."""
    assert_sane(answer)
    for row in answer.document().get("answers", []):
        assert row["label"] in CLASSES and 0 <= row["probability"] <= 1, row


@contextlib.contextmanager
def _limited(seconds: int) -> Iterator[None]:
    """Fail rather than hang."""

    def fail(number: int, frame: FrameType | None) -> None:
        raise AssertionError(f"The command takes more than {seconds} s.")

    before = signal.signal(signal.SIGALRM, fail)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
