"""Training time: learning alone, over restarts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from torch import Tensor

from oracle import (
    LOSS,
    RECIPE,
    Killed,
    Oracle,
    counted,
)
from triphase import Recipe, run
from triphase.bench.run import runner, timing
from triphase.data.streams import Experience
from triphase.events import Event
from triphase.learners import Step, Tick


def test_time_is_that_of_learning_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Evaluation, saving and drawing do not count (the paper times training)."""
    now = [0.0]

    class Slow(Oracle):
        def learn(self, experience: Experience, recipe: Recipe, tick: Tick = lambda step: None) -> None:
            now[0] += 2
            self.seen[list(experience.classes)] = 1
            tick(Step("one", 1, 1, 1, 1, LOSS, 0.1))
            now[0] += 3
            tick(Step("two", 1, 1, 1, 1, LOSS, 0.1))
            now[0] += 1

        def logits(self, z: Tensor) -> Tensor:
            now[0] += 1000
            return super().logits(z)

        def state_dict(self) -> dict[str, Any]:
            now[0] += 100
            return super().state_dict()

    def on_event(event: Event) -> None:
        now[0] += 10

    for module in (runner, timing):
        monkeypatch.setattr(module, "time", SimpleNamespace(perf_counter=lambda: now[0]))
    report = run(Slow(4), counted(2, 2, 2), first=RECIPE, out=tmp_path / "run", on_event=on_event, save_every=0)
    assert report.phase_seconds == {"one": 4.0, "two": 8.0}
    assert report.train_seconds == 12.0


def test_time_goes_on_counting_after_a_restart(
    stop_at_save: Callable[..., None], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    now = [0.0]

    class Slow(Oracle):
        def learn(self, experience: Experience, recipe: Recipe, tick: Tick = lambda step: None) -> None:
            now[0] += 5
            super().learn(experience, recipe, tick)

    for module in (runner, timing):
        monkeypatch.setattr(module, "time", SimpleNamespace(perf_counter=lambda: now[0]))
    stop_at_save(2)
    with pytest.raises(Killed):
        run(Slow(6), counted(3, 2, 2), first=RECIPE, out=tmp_path / "run", save_every=0)
    now[0] += 10_000
    stop_at_save(None)
    report = run(Slow(6), counted(3, 2, 2), first=RECIPE, out=tmp_path / "run", save_every=0)
    assert report.train_seconds == 15.0
