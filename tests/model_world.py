"""A few painted photos, a small model of them, and the command line in this process."""

from __future__ import annotations

import contextlib
import io
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from unittest.mock import patch

import numpy as np
import torch
from PIL import Image
from torch.nn import functional as F

from command import Answer
from triphase.randomness import generator

SMALL = ("--backbone", "small_cnn", "--image-size", "8", "--memory", "120")
COLOURS = {"red": (200, 40, 40), "green": (40, 200, 40), "blue": (40, 40, 200), "yellow": (200, 200, 40)}
LONGEST = 60  # seconds of a command; each takes less than one


def paint(folder: Path, colour: str, numbers: range) -> None:
    """Pictures of one colour, no two alike in shape."""
    folder.mkdir(parents=True, exist_ok=True)
    for number in numbers:
        draw = generator(number, "picture", list(COLOURS).index(colour))
        shape = F.interpolate(torch.rand(1, 1, 4, 4, generator=draw), (12, 12), mode="bicubic")[0, 0]
        pixels = torch.tensor(COLOURS[colour]).view(1, 1, 3) + 100 * (shape.unsqueeze(2) - 0.5)
        Image.fromarray(pixels.clamp(0, 255).byte().numpy().astype(np.uint8)).save(folder / f"{number}.png")


@contextlib.contextmanager
def limited(seconds: int) -> Iterator[None]:
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


def triphase(*arguments: object) -> Answer:
    """What a command answers; anything but SystemExit passes through."""
    from triphase.cli import main

    out, err, status = io.StringIO(), io.StringIO(), 0
    with (
        patch.object(sys, "argv", ["triphase", *map(str, arguments)]),
        patch.dict(os.environ, {"COLUMNS": "200"}),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        limited(LONGEST),
    ):
        try:
            main()
        except SystemExit as end:
            status = int(end.code or 0)
    return Answer(status, out.getvalue(), err.getvalue())


def done(*arguments: object) -> Answer:
    answer = triphase(*arguments)
    assert answer.status == 0, answer.err
    return answer


def make_world(root: Path, *options: str) -> Path:
    """`one`, `two` and `test` are folders of photos; `model` has versions 1 to 4, in which red becomes scarlet."""
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
