"""The second part of the demo: lessons on generated drawings, "unknown", a refused lesson, and undo."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageDraw

from triphase.app.predictor import Predictor
from triphase.app.store.versions import open_store
from triphase.app.teach import teach
from triphase.context import Context

SIZE, SCALE = 96, 4  # pixels of a drawing, and how much finer it is drawn
PER_CLASS = 15
TAUGHT_FIRST = ("circle", "triangle", "star")
POINTS = {"triangle": (3, 1.0), "square": (4, 1.0), "star": (5, 0.4), "cross": (4, 0.25)}  # corners, inner radius


@dataclass(frozen=True)
class DemoStep:
    """One command of the demo and its result."""

    command: str
    result: str


def run_demo(folder: Path, seed: int = 0, device: torch.device | None = None) -> Iterator[DemoStep]:
    """Teach drawings in a new folder, one command at a time; the model and the drawings stay there."""
    model, random = folder / "model", np.random.default_rng(seed)
    for shape in TAUGHT_FIRST:
        _draw_class(folder / "shapes" / shape, shape, random)
    yield _teach(folder, "shapes", f"three shapes, {PER_CLASS} drawings of each", device)
    known, strange = folder / "new-star.png", folder / "new-cross.png"
    draw("star", random).save(known)
    draw("cross", random).save(strange)
    yield _predict(model, known, "a new star")
    yield _predict(model, strange, "a cross, which it never saw")
    _draw_class(folder / "shapes" / "cross", "cross", random)
    yield _teach(folder, "shapes", "the same folder with crosses in it", device)
    yield _predict(model, strange, "the cross again")
    for shape, wrong in zip((*TAUGHT_FIRST, "cross"), ("cross", *TAUGHT_FIRST), strict=True):
        _draw_class(folder / "mixed-up" / wrong, shape, random)
    yield _teach(folder, "mixed-up", "drawings in the wrong folders", device)
    version = open_store(model).undo()
    yield DemoStep(f"triphase undo {model}", f"version {version.number} is back: it knows no cross")


def draw(shape: str, random: np.random.Generator) -> Image.Image:
    """A shape of some size and colour, anywhere on a page of some other colour."""
    page, ink = random.integers(150, 256, 3), random.integers(0, 120, 3)
    picture = Image.new("RGB", (SIZE * SCALE, SIZE * SCALE), tuple(page.tolist()))
    radius = SIZE * SCALE * random.uniform(0.25, 0.4)
    x, y = (random.uniform(radius, SIZE * SCALE - radius) for _ in range(2))
    pen = ImageDraw.Draw(picture)
    if shape == "circle":
        pen.ellipse((x - radius, y - radius, x + radius, y + radius), fill=tuple(ink.tolist()))
    else:
        corners, inner = POINTS[shape]
        turn, n = random.uniform(0, math.tau), 2 * corners
        radii = [radius * (inner if i % 2 and inner < 1 else 1.0) for i in range(n)]
        kept = range(n) if inner < 1 else range(0, n, 2)
        around = [(radii[i], turn + math.tau * i / n) for i in kept]
        pen.polygon([(x + r * math.cos(a), y + r * math.sin(a)) for r, a in around], fill=tuple(ink.tolist()))
    return picture.resize((SIZE, SIZE), Image.Resampling.LANCZOS)


def _draw_class(folder: Path, shape: str, random: np.random.Generator) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(PER_CLASS):
        draw(shape, random).save(folder / f"{shape}-{number:02d}.png")


def _teach(folder: Path, photos: str, what: str, device: torch.device | None) -> DemoStep:
    context = Context(engine="auto", device=device)
    outcome = teach(folder / "model", folder / photos, context=context)
    result = outcome.refusal or f"learned {what} in {outcome.seconds:.0f} s"
    return DemoStep(f"triphase teach {folder / 'model'} {folder / photos}", result)


def _predict(model: Path, file: Path, what: str) -> DemoStep:
    (answer,) = Predictor.open(model).answer_files([file])
    assert not isinstance(answer, str)
    sure = "" if not answer.known else f", {answer.probability:.0%}"
    return DemoStep(f"triphase predict {model} {file}", f"{what}: {answer.label}{sure}")
