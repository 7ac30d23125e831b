"""What tests of the model directory share: small models, and what is said about them."""

import errno
import math
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from triphase.app.store.history import Event
from triphase.app.store.schema import Version
from triphase.app.store.versions import Store
from triphase.randomness import generator
from triphase.state import State

PIXELS = b"the pixels of a cat, four by four, in three colours."[:48]
Info = dict[str, Any]
FORGOT = {"event": "forgot"}


def model(i: int, *classes: str) -> State:
    """The i-th model: parts that never change, one that always does, one with the pixels of a cat in it."""
    names = list(classes or ("cat", "dog"))
    n = len(names)
    pixels = torch.frombuffer(bytearray(PIXELS), dtype=torch.uint8).view(3, 4, 4)
    nothing = torch.empty(0, dtype=torch.long)
    columns = {name: torch.arange(2) for name in ("id", "key")} | {"y": torch.tensor([0, n - 1])}
    columns |= {"split": torch.zeros(2, dtype=torch.int8), "x": torch.stack([pixels, pixels.flip(0, 1, 2)])}
    options = {"backbone": "small_cnn", "image_size": 4, "memory": 9, "replay": "raw", "learner": "ncm", "seed": 0}
    calibration = {"temperature": 1.0, "thresholds": [None]}
    weight = torch.randn(n, 3, generator=generator(i, "test"))
    member = {"max_width": None, "unit_length": True, "weight": weight, "bias": None, "whitening": None}
    return {
        "settings": {"learner": "ncm"},
        "known": list(range(n)),
        "loop": {"section": "", "best": math.inf},
        "llf": {"w": torch.randn(3, 4, generator=generator(0, "test"))},
        "csf": {},
        "head": {"weight": torch.randn(n, 3, generator=generator(i, "test")), "steps": [i, None, 0.1 * i]},
        "momentum": {},
        "memory": {"columns": columns, "floor": {}, "capacity": 9, "seed": 0},
        "taught": {
            "ids": torch.arange(2 * i),
            "labels": torch.zeros(2 * i, dtype=torch.long),
            "pending_ids": nothing,
            "pending_labels": nothing,
            "held_out": nothing,
        },
        "exemplars": {"ids": nothing, "features": torch.empty(0, 0, dtype=torch.float16)},
        "app": {
            "options": options,
            "names": names,
            "lessons": i,
            **calibration,
            "moments": [],
            "exemplar_correct": torch.empty(0, dtype=torch.bool),
            "covariance_reestimated": False,
        },
        "inference": {"backbone": "small_cnn", "image_size": 4, "names": names, **calibration},
        "inference_llf": {},
        "inference_scores": {"members": [member], "weights": [1.0], "stds": [None]},
    }


def info(i: int, *classes: str) -> Info:
    """What the version of the i-th model says about it."""
    names = list(classes or ("cat", "dog"))
    return {
        "classes": names,
        "counts": [{"taught": i, "stored": 1, "exemplars": 0} for _ in names],
        "backbone": "small_cnn",
        "image_size": 4,
        "learner": "ncm",
        "replay": "raw",
        "lessons": i,
        "memory": {"samples": 2, "capacity": 9, "bytes": 146, "exemplars": 0},
        "taught": 2 * i,
        "unknown": True,
        "accuracy": 0.5,
    }


def taught(i: int) -> Event:
    return {"event": "taught", "images": i, "classes": {"cat": i}, "before": None, "after": 0.9, "forced": False}


def fill(path: Path, n: int) -> Store:
    """A store with versions 1 to n."""
    store = Store(path)
    for i in range(1, n + 1):
        store.publish(model(i), info(i), taught(i))
    return store


def same(found: Any, expected: Any) -> bool:
    """Equal in structure, type and every bit."""
    if isinstance(expected, Tensor):
        return isinstance(found, Tensor) and found.dtype == expected.dtype and torch.equal(found, expected)
    if isinstance(expected, Mapping):
        return list(found) == list(expected) and all(same(found[key], expected[key]) for key in expected)
    if isinstance(expected, list):
        return len(found) == len(expected) and all(map(same, found, expected))
    return type(found) is type(expected) and bool(found == expected)


def all_files(path: Path) -> list[Path]:
    return sorted(file for file in path.rglob("*") if file.is_file())


def assert_tidy(store: Store) -> None:
    """Only what the contract allows, no part that no version needs, no version that was never in use."""
    allowed = re.compile(
        r"CURRENT|LOCK|history\.jsonl|versions/\d+\.json|(parts/[0-9a-f]{64}|thumbnails)\.safetensors"
    )
    names = [file.relative_to(store.path).as_posix() for file in all_files(store.path)]
    assert all(allowed.fullmatch(name) or name.startswith("work/") for name in names), names
    needed = {p.sha256 for n in store.version_numbers() for p in store.version(n).parts.values()}
    assert {file.stem for file in (store.path / "parts").glob("*")} == needed
    assert {*store.version_numbers()} <= {event["version"] for event in store.history()}


def without_cat(state: State, version: Version) -> tuple[State, Info]:
    if "cat" not in version.info["classes"]:
        return state, version.info
    return state_without_cat(state), {**version.info, "classes": ["dog"], "counts": version.info["counts"][1:]}


def state_without_cat(state: State) -> State:
    left = model(state["app"]["lessons"], "dog")
    left["memory"]["columns"]["x"].zero_()
    return left


def without_name(event: Event) -> Event:
    return {**event, "classes": {}} if "classes" in event else event


def traces_of_cat(store: Store) -> list[Path]:
    """The files in which there is still a name or an image of one."""
    words = (b"cat", PIXELS, PIXELS[::-1])
    found = [file for file in all_files(store.path) if file.name != "LOCK"]
    return [file for file in found if any(word in file.read_bytes() for word in words)]


def refusing(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
    """A function that finds the disk full wherever a path contains `name`, except for reading."""

    def call(*args: Any, **kwargs: Any) -> Any:
        if any(name in str(arg) for arg in args) and "rb" not in args:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(*args, **kwargs)

    return call
