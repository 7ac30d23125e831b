"""Learn a lesson: its recipe, the quick and the whole lesson, and the calibration that ends both."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from triphase.app import occasions, ood
from triphase.app.calibration import fit_temperature, fit_thresholds, fit_weight, thresholds_from_moments
from triphase.app.hold_out import Lesson
from triphase.app.leave_out import leave_out_distances
from triphase.app.model import Model, labels_by_id
from triphase.app.options import parse_memory
from triphase.app.refit import exemplar_features
from triphase.data.batches import Batches
from triphase.data.feature_cache import latents
from triphase.data.images import Images
from triphase.data.recipe import Recipe
from triphase.device import explain_out_of_memory
from triphase.learners import TPC
from triphase.learners.protocol import QuickLearner, Tick, WeighsMembers, ignore

N_MB = 32  # samples in a minibatch, new and replayed ones


def recipe_for(n: int, n_memory: int) -> Recipe:
    """The recipe for a lesson of n photos with n_memory samples to replay: it depends on the amount of data alone.

    Minibatches are small and of random crops, half of them replayed where the memory allows. Each phase passes over
    half of the lesson, or a few minibatches: what a lesson costs depends on the lesson alone. Few photos get more
    epochs, and a model that has seen little altogether gets more replay and more steps.
    benchmarks/results/photos_rule.md says how it was chosen.
    """
    little = n + min(4 * n, n_memory) < 256 and n_memory < 512
    ratio = min(4.0 if little else 1.0, n_memory / n)
    steps, max_epochs = (24, 20) if little else (12, 10)
    n_mbe = max(1, round(N_MB / (1 + ratio)))
    return Recipe(
        epochs=min(max_epochs, max(3, math.ceil(steps * n_mbe / n))),
        lr=0.1,
        csf_lr=0.05,
        n_mbe=n_mbe,
        n_mbr=N_MB - n_mbe,
        mixed=max(n // 2, 128),
        balanced=max(n // 2, 256),
        latent_crops="small",
    )


def lesson_recipe(model: Model, lesson: Lesson) -> Recipe:
    """The recipe of a lesson; exemplars are never replayed and do not count, and the memory must have room."""
    if model.memory is not None:
        model.memory.check_room(len(lesson.names))
    n_memory = 0 if model.memory is None else len(model.memory.slots())
    return recipe_for(max(1, len(lesson.experience.training)), n_memory)


def planned_steps(model: Model, lesson: Lesson, recipe: Recipe) -> dict[str, int]:
    """How many optimiser steps each phase of a lesson will take; nothing for learners without phases."""
    tpc = getattr(model.learner, "tpc", model.learner)
    n = len(lesson.experience.training)
    if not isinstance(tpc, TPC) or n == 0:
        return {}
    epochs = tpc.epochs(recipe.epochs, novel=not set(lesson.experience.classes) <= tpc.known)
    n_all = n + len(lesson.experience.unlabelled) if tpc.unlabelled == "pseudo" else n  # at most
    steps, steps_2 = (math.ceil(min(m, recipe.mixed or m) / recipe.n_mbe) for m in (n, n_all))
    if model.memory is None:
        return {"I": epochs[0] * steps, "II": epochs[1] * steps_2}
    samples = min(model.memory.capacity or n, n + len(model.memory.slots()))
    balanced = min(samples, recipe.balanced or samples)
    return {
        "I": epochs[0] * steps,
        "II": epochs[1] * steps_2,
        "III": epochs[2] * math.ceil(balanced / recipe.n_mb_balanced),
    }


def learn(model: Model, lesson: Lesson, recipe: Recipe, tick: Tick = ignore) -> None:
    """Learn a lesson to the end; after a crash, continue where the state was saved."""
    experience = lesson.experience
    if experience.held_out is None and model.memory is not None:
        nothing = torch.zeros(len(experience.images), dtype=torch.bool)
        experience = replace(experience, held_out=nothing)
    if len(experience.training):  # else there are only near-duplicates of exemplars
        with explain_out_of_memory("go on with the same command and --device cpu"):
            model.learner.learn(experience, recipe, tick)
        if model.memory is not None and not model.learner_uses_memory:
            batches = Batches(
                model.network, experience, model.memory, recipe, seed=model.options.seed, context=model.context
            )
            batches.update_memory()
    model.names, model.lessons = list(lesson.names), experience.index
    model.taught |= labels_by_id(experience.images)
    if experience.held_out is not None:
        model.held_out |= set(experience.images.ids[experience.held_out].tolist())
    model.pending = {}
    _calibrate_on(model, experience.images)


def learn_quick(model: Model, lesson: Lesson, recipe: Recipe) -> None:
    """Learn a lesson by closed form alone, in seconds; `learn` does the rest."""
    assert isinstance(model.learner, QuickLearner), "the plan refuses --quick for the other learners"
    model.learner.learn_quick(lesson.experience, recipe)
    model.names, model.pending = list(lesson.names), labels_by_id(lesson.experience.images)
    moments = model.calibration.moments
    _calibrate_on(model, lesson.experience.images)
    model.calibration = replace(model.calibration, moments=moments)  # `learn` will count these photos


def _calibrate_on(model: Model, images: Images) -> None:
    """Calibrate on the exemplars, or on moments of what was just learned where none are kept."""
    if model.memory is None:
        distances, y = leave_out_distances(model, images)
        if distances.shape[1] == 0:
            distances, y = model.scores(latents(model.network, images, context=model.context))[1], images.labels
        learned = [ood.moments(column, y, len(model.names)) for column in distances.unbind(1)]
        known = model.calibration.moments or [ood.moments(c[:0], y[:0], 0) for c in distances.unbind(1)]
        merged = tuple(ood.merge(a, b) for a, b in zip(known, learned, strict=True))
        model.calibration = replace(model.calibration, moments=merged)
    calibrate(model)


def calibrate(model: Model) -> None:
    """Fit temperature and thresholds to the exemplars, or thresholds to the moments where none are kept."""
    calibration = model.calibration
    if calibration.moments:
        calibration = replace(calibration, thresholds=thresholds_from_moments(calibration.moments))
    ids, y, stored = model.exemplars()
    model.exemplar_logits, model.exemplar_correct = (ids, torch.empty(0, 0)), torch.empty(0, dtype=torch.bool)
    z = model.latents_of(stored)
    f = exemplar_features(model, ids, z)
    n_kept = _room_for(model, f)
    model.exemplar_features = ids[:n_kept], f[:n_kept]
    if len(y):
        _, parts, ood_scores = model.member_scores(z, f.float() if f.numel() else None)
        weight, temperature = _fit(model, parts, y)
        if isinstance(model.learner, WeighsMembers) and weight is not None:
            model.learner.weight = weight
        logits = _cross_fitted(model, parts, y, _halves(model, ids, y, z), temperature)
        model.exemplar_logits, model.exemplar_correct = (ids, logits), logits.argmax(1) == y
        calibration = replace(calibration, temperature=temperature, thresholds=fit_thresholds(ood_scores))
    model.calibration = calibration


def _fit(model: Model, parts: Sequence[Tensor], y: Tensor) -> tuple[float | None, float]:
    """The weight of the second member, if there is one, and the temperature of the weighted sum."""
    if len(parts) == 1 or not isinstance(model.learner, WeighsMembers):
        return None, fit_temperature(parts[0], y)
    weight = fit_weight(parts[0], parts[1], y, model.learner.constant_weight)
    return weight, fit_temperature(parts[0] + weight * parts[1], y)


def _cross_fitted(model: Model, parts: Sequence[Tensor], y: Tensor, second: Tensor, temperature: float) -> Tensor:
    """(n, classes): logits of exemplars by what was fitted to the other half, so that evaluation stays fair.

    Divided by the temperature of all of them, they give the probabilities that the other half's would.
    """
    logits = torch.empty_like(parts[0])
    for judged in (second, ~second):
        fitted = ~judged if bool((~judged).any()) else judged
        weight, own = _fit(model, [part[fitted] for part in parts], y[fitted])
        total = parts[0] if weight is None else parts[0] + weight * parts[1]
        logits[judged] = total[judged] * (temperature / own)
    return logits


def _halves(model: Model, ids: Tensor, y: Tensor, z: Tensor) -> Tensor:
    """(n,) bool: which exemplars are in the second half; photos of one occasion are in the same."""
    unknown = torch.full((len(y),), torch.nan, dtype=torch.double)
    occasion = occasions.groups(occasions.embeddings(model.network, z), unknown, y, torch.arange(len(y)))
    return ids[occasion] % 2 == 1


def _room_for(model: Model, f: Tensor) -> int:
    """How many features of exemplars fit into the bytes that samples leave; the others are computed again."""
    number, in_bytes = parse_memory(model.options.memory)
    if not in_bytes or model.memory is None or f.numel() == 0:
        return len(f)
    return max(0, number - model.memory.nbytes) // f[0].nbytes
