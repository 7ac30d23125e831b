"""Consolidate a model when nobody waits: csf is trained anew on everything that is stored.

The result takes the place of the version in use only if the held-out photos say that it is better.
"""

from __future__ import annotations

import copy
import time
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

from triphase.app.learning import calibrate
from triphase.app.lesson_checkpoint import LessonCheckpoint
from triphase.app.manage import changing
from triphase.app.model import Model
from triphase.app.plan import KEEP
from triphase.app.publishing import version_state
from triphase.app.scan import Watch
from triphase.data.feature_cache import unpack
from triphase.data.recipe import Recipe
from triphase.device import explain_out_of_memory
from triphase.errors import CannotWrite, InvalidValue
from triphase.learners.protocol import Consolidates

EPOCHS = 8  # without a limit of minutes
MAX_EPOCHS = 32  # however many minutes there are
BATCH = 32
TRIAL_STEPS = 3  # minibatches by which an epoch is timed


@dataclass(frozen=True)
class Judgement:
    """What held-out photos say about a model."""

    correct: int
    n: int
    log_likelihood: float  # mean, of the true classes

    @property
    def accuracy(self) -> float:
        """The share that is recognised."""
        return self.correct / self.n

    def better_than(self, other: Judgement) -> bool:
        """More likely on average, and none fewer recognised."""
        return self.log_likelihood > other.log_likelihood and self.correct >= other.correct


@dataclass(frozen=True)
class Consolidation:
    """What became of a consolidation."""

    published: bool
    version: int  # in use afterwards
    before: Judgement
    after: Judgement
    epochs: int
    samples: int  # stored, that were trained on
    seconds: float
    notes: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """For --json."""
        found = asdict(self)
        for name, judgement in (("before", self.before), ("after", self.after)):
            found[name]["accuracy"] = judgement.accuracy
        return found


def consolidate(
    path: Path,
    minutes: float | None = None,
    *,
    keep: int = KEEP,
    watch: Watch = lambda event: None,
    device: str | torch.device | None = None,
) -> Consolidation:
    """Train csf anew on what is stored, for about so many minutes, and publish it if it is better.

    Killed at any instant, the same call goes on. Nothing is published, and nothing changes, if it is not better.
    """
    if minutes is not None and not minutes > 0:
        raise InvalidValue(f"minutes must be above 0, got {minutes}.")
    started, notes = time.perf_counter(), list[str]()
    with changing(path, device) as (store, model, version):
        learner, samples = _check(model)
        calibrate(model)
        before = judge(model)
        checkpoint = LessonCheckpoint(
            store, f"consolidate {minutes}".encode(), model, epochs=_epochs(model, samples, minutes)
        )
        checkpoint.resume(notes, watch)
        recipe = Recipe(epochs=checkpoint.epochs, lr=0.1, csf_lr=0.03, n_mbe=BATCH)
        watch({"event": "begin", "images": samples, "classes": len(model.names)})
        with checkpoint.saving(), explain_out_of_memory("go on with the same command and --device cpu"):
            learner.consolidate(recipe, checkpoint.tick(watch))
        calibrate(model)
        after = judge(model)
        with suppress(CannotWrite):  # of a state that nobody needs any more
            checkpoint.close()
        published = after.better_than(before)
        if published:
            event = {"event": "consolidated", "before": before.accuracy, "after": after.accuracy}
            info = version.info | model.describe() | {"accuracy": after.accuracy}
            version = store.publish(version_state(model), info, event)
            store.prune(keep)
        store.discard_work()
    seconds = time.perf_counter() - started
    return Consolidation(published, version.number, before, after, recipe.epochs, samples, seconds, notes)


def judge(model: Model) -> Judgement:
    """How a model that was just calibrated does on its exemplars."""
    _, y, _ = model.exemplars()
    log_p = model.calibration.probabilities(model.exemplar_logits[1]).clamp(min=1e-12).log()
    correct = int(model.exemplar_correct.sum())
    return Judgement(correct, len(y), float(log_p.gather(1, y.view(-1, 1)).mean()))


def _check(model: Model) -> tuple[Consolidates, int]:
    """The learner and how many samples it can be trained on, if there is anything to consolidate and judge by."""
    if not isinstance(model.learner, Consolidates):
        raise InvalidValue(f"The learner {model.options.learner} has nothing to consolidate; anchored has.")
    if model.memory is None or len(samples := model.memory.slots()) == 0:
        raise InvalidValue("Nothing is stored of what was taught (--replay none), so nothing can be consolidated.")
    if len(model.exemplars()[1]) == 0:
        raise InvalidValue(
            "No photo was held out, so nobody could tell whether the model got better: teach more photos first."
        )
    if len(model.names) < 2:
        raise InvalidValue("With a single class there is nothing to tell apart: teach a second one first.")
    return model.learner, len(samples)


def _epochs(model: Model, samples: int, minutes: float | None) -> int:
    """Passes over what is stored; with a limit as many as fit into it by a short trial, at least one."""
    if minutes is None:
        return EPOCHS
    assert model.memory is not None
    slots = model.memory.slots()[:BATCH]
    network, z = copy.deepcopy(model.network), unpack(model.latents_of(model.stored(slots)).float())
    z = z.to(network.device)
    seconds = []
    with network.awake():
        network.unfreeze("csf")
        for _ in range(TRIAL_STEPS):
            begun = time.perf_counter()
            network.train().tail(z).square().mean().backward()
            seconds.append(time.perf_counter() - begun)
    per_epoch = min(seconds) * samples / len(slots)
    return max(1, min(MAX_EPOCHS, int(60 * minutes / per_epoch)))
