"""The demo: TPC on digits, beside fine-tuning, replay and joint training."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import torch

from triphase.bench.benchmarks import find
from triphase.bench.run.options import RunOptions
from triphase.bench.run.setup import Setup, prepare
from triphase.context import Context

TITLE = "Digits in 5 experiences of 2 classes, memory of 100 images"
LEARNER_NAMES = ("tpc", "replay", "finetune", "joint")


def demo_runs(options: RunOptions, device: torch.device | None = None) -> Iterator[tuple[str, Setup]]:
    """The runs of the demo by learner; each is set up when its turn comes."""
    for learner in LEARNER_NAMES:
        yield learner, prepare(find("digits-5"), replace(options, learner=learner), Path(), Context(device=device))
