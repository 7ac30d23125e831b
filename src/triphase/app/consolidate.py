"""Consolidate a model: train csf again on everything that is stored.

The result replaces the version in use only if it is better on the held-out photos.
"""

from __future__ import annotations

import copy
import math
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
from triphase.app.plan import KEEP, LessonPrecision, check_consolidates
from triphase.app.publishing import clean_up, version_state
from triphase.app.store.versions import open_store
from triphase.data.feature_cache import unpack
from triphase.data.recipe import Recipe
from triphase.device import explain_out_of_memory
from triphase.errors import CannotWrite, InvalidValue
from triphase.events import OnEvent, ignore_event
from triphase.learners.protocol import Consolidates
from triphase.printable import percent

EPOCHS = 8  # without a limit of minutes
MAX_EPOCHS = 32  # however many minutes there are
BATCH = 32
TRIAL_STEPS = 3  # minibatches by which an epoch is timed


@dataclass(frozen=True)
class Judgement:
    """The performance of a model on its held-out photos."""

    correct: int
    n: int
    log_likelihood: float  # mean, of the true classes

    @property
    def accuracy(self) -> float:
        """The share that is recognised."""
        return self.correct / self.n

    def better_than(self, other: Judgement) -> bool:
        """Whether held-out photos are more likely on average, and no fewer of them are recognised."""
        return self.log_likelihood > other.log_likelihood and self.correct >= other.correct


@dataclass(frozen=True)
class Consolidation:
    """The result of a consolidation."""

    published: bool
    version: int  # in use afterwards
    before: Judgement
    after: Judgement
    epochs: int
    samples: int  # stored, that were trained on
    seconds: float
    notes: list[str] = field(default_factory=list)

    @property
    def verdict(self) -> str:
        """The result in one sentence or two."""
        return verdict(self.published, self.version, self.before.accuracy, self.after.accuracy)

    def to_json(self) -> dict[str, Any]:
        """For --json."""
        found = asdict(self) | {"verdict": self.verdict}
        for name, judgement in (("before", self.before), ("after", self.after)):
            found[name]["accuracy"] = judgement.accuracy
        return found


def consolidate(
    path: Path,
    minutes: float | None = None,
    *,
    keep: int = KEEP,
    on_event: OnEvent = ignore_event,
    device: str | torch.device | None = None,
    precision: LessonPrecision = "float32",
) -> Consolidation:
    """Train csf again on the stored samples, for about `minutes`, and publish the result if it is better.

    If it is killed, the same call continues it. If the result is not better, the model does not change.
    """
    if minutes is not None and not 0 < minutes < math.inf:
        raise InvalidValue(f"minutes must be above 0 and finite, got {minutes:g}.")
    started, notes = time.perf_counter(), list[str]()
    with changing(path, device) as (store, model, version):
        learner, samples = _check(model)
        calibrate(model)
        before = judge(model)
        model.network.accelerate(precision=precision)
        checkpoint = LessonCheckpoint(
            store, f"consolidate {minutes}".encode(), model, epochs=_epochs(model, samples, minutes)
        )
        checkpoint.resume(notes, on_event)
        recipe = Recipe(epochs=checkpoint.epochs, lr=0.1, csf_lr=0.03, n_mbe=BATCH, latent_crops="full")
        begin = {"event": "begin", "images": samples, "classes": len(model.names), "minibatch": BATCH}
        on_event(begin | {"steps": {"consolidate": recipe.epochs * math.ceil(samples / BATCH)}})
        with checkpoint.saving(), explain_out_of_memory("go on with the same command and --device cpu"):
            learner.consolidate(recipe, checkpoint.tick(on_event))
        calibrate(model)
        after = judge(model)
        with suppress(CannotWrite):  # a last checkpoint is no longer needed
            checkpoint.close()
        published = after.better_than(before)
        if published:
            event = {"event": "consolidated", "before": before.accuracy, "after": after.accuracy}
            info = version.info | model.describe() | {"accuracy": after.accuracy}
            version = store.publish(version_state(model), info, event)
        notes += clean_up(store, keep if published else None)
    seconds = time.perf_counter() - started
    return Consolidation(published, version.number, before, after, recipe.epochs, samples, seconds, notes)


def verdict(published: bool, version: int, before: float, after: float) -> str:
    """The result of a consolidation in words, from the accuracy on held-out photos before and after.

    >>> verdict(True, 3, 0.9, 0.95)
    'Better: 95.0 % of the held-out photos are recognised, 90.0 % were before. Version 3 is in use.'
    """
    now, then = percent(after), percent(before)
    if published and after > before:
        result = f"Better: {now} of the held-out photos are recognised, {then} were before."
    elif published:
        result = (
            f"Better: {now} of the held-out photos are recognised as before, and the right class is more probable."
        )
    elif after < before:
        result = f"No better: {now} of the held-out photos would be recognised, {then} are now."
    else:
        result = (
            f"No better: {now} of the held-out photos would be recognised, but the right class is less probable."
        )
    return f"{result} Version {version} {'is' if published else 'stays'} in use."


def consolidated_since(path: Path, parent: int) -> dict[str, Any] | None:
    """The result of a published consolidation of version `parent` whose process was killed; None without one."""
    events = [e for e in open_store(path).history() if e["event"] == "consolidated" and e["version"] > parent]
    if not events:
        return None
    version, before, after = (events[-1][key] for key in ("version", "before", "after"))
    accuracies = {"before": {"accuracy": before}, "after": {"accuracy": after}}
    return {"published": True, "version": version, "verdict": verdict(True, version, before, after), **accuracies}


def judge(model: Model) -> Judgement:
    """Evaluate a model, right after calibration, on its exemplars."""
    _, y, _ = model.exemplars()
    log_p = model.calibration.probabilities(model.exemplar_logits[1]).clamp(min=1e-12).log()
    correct = int(model.exemplar_correct.sum())
    return Judgement(correct, len(y), float(log_p.gather(1, y.view(-1, 1)).mean()))


def _check(model: Model) -> tuple[Consolidates, int]:
    """The learner and the number of its samples; refuses a model without anything to train or to evaluate on."""
    learner = check_consolidates(model)
    assert model.memory is not None
    if len(samples := model.memory.slots()) == 0:
        raise InvalidValue("All photos that are stored are held out, so there is nothing to train on.")
    if len(model.exemplars()[1]) == 0:
        raise InvalidValue(
            "No photo was held out, so it cannot be measured whether the model got better: teach more photos first."
        )
    if len(model.names) < 2:
        raise InvalidValue("With a single class there is nothing to tell apart: teach a second one first.")
    return learner, len(samples)


def _epochs(model: Model, samples: int, minutes: float | None) -> int:
    """Passes over what is stored; with a limit as many as fit into it by a short trial, at least one."""
    if minutes is None:
        return EPOCHS
    assert model.memory is not None
    slots = model.memory.slots()[:BATCH]
    network, z = copy.deepcopy(model.network), unpack(model.latents_of(model.stored(slots)).float())
    z = z.to(network.device)
    seconds = []
    network.unfreeze("csf")
    for _ in range(TRIAL_STEPS):
        begun = time.perf_counter()
        network.train().tail(z).square().mean().backward()
        seconds.append(time.perf_counter() - begun)
    per_epoch = min(seconds) * samples / len(slots)
    return max(1, min(MAX_EPOCHS, int(60 * minutes / per_epoch)))
