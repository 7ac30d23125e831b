"""Photos, models and commands that tests of lessons share."""

import contextlib
import io
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import torch
from PIL import Image
from torch.nn import functional as F

from command import Answer
from triphase.app.model import Model
from triphase.app.store.versions import Store
from triphase.cli import main
from triphase.data.memory import HELD_OUT
from triphase.randomness import generator

SMALL = ("--backbone", "small_cnn", "--image-size", "8", "--memory", "120")
COLOURS = {"red": (200, 40, 40), "green": (40, 200, 40), "blue": (40, 40, 200), "yellow": (200, 200, 40)}


def triphase(*arguments: object) -> Answer:
    """Call the command in this process, with no terminal but a wide page."""
    out, err = io.StringIO(), io.StringIO()
    argv, page = ["triphase", *map(str, arguments)], {"COLUMNS": "200"}
    with (
        patch.object(sys, "argv", argv),
        patch.dict(os.environ, page),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        pytest.raises(SystemExit) as end,
    ):
        main()
    assert "Traceback" not in err.getvalue()
    return Answer(int(end.value.code or 0), out.getvalue(), err.getvalue())


def done(*arguments: object) -> Answer:
    answer = triphase(*arguments)
    assert answer.status == 0, answer.err
    return answer


def paint(folder: Path, colour: str, numbers: range) -> None:
    """Pictures of one colour, no two alike in shape."""
    folder.mkdir(parents=True, exist_ok=True)
    for number in numbers:
        draw = generator(number, "picture", list(COLOURS).index(colour))
        shape = F.interpolate(torch.rand(1, 1, 4, 4, generator=draw), (12, 12), mode="bicubic")[0, 0]
        pixels = torch.tensor(COLOURS[colour]).view(1, 1, 3) + 100 * (shape.unsqueeze(2) - 0.5)
        Image.fromarray(pixels.clamp(0, 255).byte().numpy().astype(np.uint8)).save(folder / f"{number}.png")


@dataclass(frozen=True)
class World:
    one: Path  # three classes of 10 photos
    two: Path  # a new class, and 5 more photos of red
    test: Path  # never taught
    base: Path  # a model that was taught `one`


def make_world(root: Path) -> World:
    """Folders of photos, and a model that was taught the first of them."""
    world = World(root / "one", root / "two", root / "test", root / "base")
    for colour in ("red", "green", "blue"):
        paint(world.one / colour, colour, range(10))
    paint(world.two / "yellow", "yellow", range(10))
    paint(world.two / "red", "red", range(10, 15))
    for colour in COLOURS:
        paint(world.test / colour, colour, range(100, 105))
    done("teach", world.base, world.one, *SMALL)
    return world


def content(model: Path) -> dict[str, bytes]:
    """Every file of a model but its lock."""
    return {
        str(file.relative_to(model)): file.read_bytes()
        for file in model.rglob("*")
        if file.is_file() and file.name != "LOCK"
    }


def flat(value: Any, name: str = "") -> dict[str, Any]:
    """The leaves of a state by their path."""
    if isinstance(value, dict):
        return {path: leaf for key, item in value.items() for path, leaf in flat(item, f"{name}/{key}").items()}
    if isinstance(value, list):
        return flat(dict(enumerate(value)), name)
    return {name: value}


def assert_same_state(model: Path, other: Path) -> None:
    found, expected = (flat(Store(path).load()[0]) for path in (model, other))
    assert found.keys() == expected.keys()
    for name, leaf in expected.items():
        same = torch.equal(found[name], leaf) if isinstance(leaf, torch.Tensor) else found[name] == leaf
        assert same, name


def model_of(path: Path) -> Model:
    """The model in use."""
    return Model.from_state(Store(path).load()[0])


def versions(model: Path) -> list[int]:
    return Store(model).version_numbers()


def exemplars(model: Path) -> torch.Tensor:
    """Ids of the photos that are kept for measuring."""
    columns = Store(model).load()[0]["memory"]["columns"]
    ids: torch.Tensor = columns["id"][columns["split"] == HELD_OUT]
    return ids
