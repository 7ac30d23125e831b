"""A learner that knows what it was shown, streams of one-pixel images, and what tests of runs share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from triphase import TPC, Memory, Recipe, SplitClassifier, run
from triphase import state as files
from triphase.context import Context
from triphase.data.images import Images
from triphase.data.streams import Experience, Stream, class_incremental
from triphase.learners import Step, Tick
from triphase.models import linear_head
from triphase.testing import FIRST, REST, tiny_model, tiny_stream

RECIPE = Recipe(epochs=1)
LOSS = torch.tensor(1.0)
StopAtSave = Callable[..., None]


class Oracle:
    """Knows every class that it was shown, by the value of the one pixel. Just what the protocol asks for."""

    def __init__(self, n_classes: int) -> None:
        self.model = SplitClassifier(nn.Identity(), nn.Flatten(), linear_head(1, n_classes), image_size=1)
        self.context = Context()
        self.seen = torch.zeros(n_classes)

    def learn(self, experience: Experience, recipe: Recipe, tick: Tick = lambda step: None) -> None:
        self.seen[list(experience.classes)] = 1
        tick(Step("show", 1, 1, 1, 1, LOSS, recipe.lr))

    def logits(self, z: Tensor) -> Tensor:
        exact = nn.functional.one_hot(z.view(-1).long(), len(self.seen)).float()
        return exact.masked_fill(self.seen == 0, -torch.inf)

    def state_dict(self) -> dict[str, Any]:
        return {"seen": self.seen}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.seen = state["seen"]


class Refusing(Oracle):
    """Must not be asked to learn."""

    def learn(self, experience: Experience, recipe: Recipe, tick: Tick = lambda step: None) -> None:
        raise AssertionError(f"experience {experience.index} was learned again")


class Killed(BaseException):
    """Ends a run where nothing expects it."""


def pixels(n_classes: int, n: int = 3) -> Images:
    """n images of one pixel for each class; the pixel is the label."""
    labels = torch.arange(n_classes).repeat(n)
    return Images.from_array(labels.to(torch.uint8).view(-1, 1, 1, 1), labels)


def counted(n_experiences: int, first: int, then: int, **options: Any) -> Stream:
    n_classes = first + then * (n_experiences - 1)
    names = [f"class {c}" for c in range(n_classes)]
    return class_incremental(pixels(n_classes), pixels(n_classes), names, first=first, then=then, **options)


def weights(out: Path) -> dict[str, Tensor]:
    state = files.load(out / "weights.safetensors")
    return {f"{block}.{name}": tensor for block, part in state.items() for name, tensor in part.items()}


def assert_equal(found: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        assert torch.equal(found[name], tensor), name


def begun(out: Path, stop_at_save: StopAtSave) -> None:
    """A run of TPC that was stopped in its first experience."""
    stop_at_save(3)
    with pytest.raises(Killed):
        run(TPC(tiny_model(), Memory(12)), tiny_stream(), first=FIRST, rest=REST, out=out, save_every=0)
    stop_at_save(None)
