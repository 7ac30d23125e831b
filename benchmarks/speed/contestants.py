"""Who is measured: triphase, the same minibatches in a bare loop, and a bare loop that gets latents for free."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from torch.nn import functional as F
from workload import Workload, sgd, timed

from triphase import DERpp, FineTune, Memory, run
from triphase.bench.run.evaluation import TestImages
from triphase.context import Context
from triphase.data import training_latents
from triphase.data.batches import Batches
from triphase.data.feature_cache import encode, latent_views, unpack
from triphase.learners.training import set_trainable

Draws = list[list[tuple[Tensor, Tensor, Tensor]]]  # per experience: rows, slots, flips of each step


def triphase_run(load: Workload, name: str = "replay", save: bool = True, context: Context | None = None) -> float:
    """`run` as anyone would call it: decoding, checkpoints on disk and an evaluation of 100 images included."""
    learner: FineTune | DERpp
    if name == "replay":
        learner = load.learner(context)
    else:
        learner = DERpp(load.model(), Memory(load.memory), alpha=0.1, beta=0.5, context=context)
    with tempfile.TemporaryDirectory() as folder, timed() as seconds:
        out = Path(folder) / "run" if save else None
        run(learner, load.stream, first=load.first, rest=load.rest, out=out)
    return seconds[0]


def triphase_beyond_latents(load: Workload, save: bool = True) -> tuple[float, float]:
    """Seconds of the whole run, and without what the limit does not do: make latents, and evaluate."""
    outside = [0.0]

    def timing(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            with timed() as seconds:
                result = function(*arguments, **options)
            outside[0] += seconds[0]
            return result

        return call

    with (
        patch.object(training_latents, "latent_views", timing(latent_views)),
        patch.object(TestImages, "predict", timing(TestImages.predict)),
    ):
        whole = triphase_run(load, save=save)
    return whole, whole - outside[0]


def same_draws(load: Workload) -> tuple[Draws, list[Tensor], list[Tensor]]:
    """The minibatches that triphase draws, and what its memory holds before each experience."""
    learner = load.learner()
    memory = learner.memory
    assert memory is not None
    draws: Draws = []
    held_x, held_y = [], []
    for experience in load.stream.experiences:
        recipe = load.first if experience.index == 1 else load.rest
        learner.model.freeze("llf")
        batches = Batches(learner.model, experience, memory, recipe, seed=0)
        steps = [(e, s) for e in range(recipe.epochs) for s in range(batches.n_mixed)]
        experience_draws = []
        for epoch, step in steps:
            rows, slots = batches._sampler.mixed(epoch, step)
            views = batches._draw(rows, slots, (epoch, step)).views
            assert views is not None
            experience_draws.append((rows, slots, views))
        draws.append(experience_draws)
        held_x.append(memory["x"] if "x" in memory.columns else torch.empty(0))
        held_y.append(memory["y"])
        images = experience.images
        memory.add(images.labels, images.ids, lambda rows, images=images: {"x": images.read(rows)})  # type: ignore[misc]
    return draws, held_x, held_y


def bare_loop(
    load: Workload, draws: Draws, x: list[tuple[Tensor, Tensor]], held: tuple[list[Tensor], list[Tensor]]
) -> float:
    """A plain loop: whole network forward, csf and head backward, nothing kept. Pixels are ready in memory."""
    model = load.model()
    model.train()
    set_trainable(model, llf=False, csf=True)
    with timed() as seconds:
        for steps, (pixels, labels), held_x, held_y in zip(draws, x, *held, strict=True):
            optimizer = sgd(model)
            for rows, slots, views in steps:
                batch, y = pixels[rows], labels[rows]
                if len(slots):
                    batch, y = torch.cat([batch, held_x[slots]]), torch.cat([y, held_y[slots]])
                batch = torch.where((views == 1).view(-1, 1, 1, 1), batch.flip(3), batch)
                with torch.no_grad():
                    z = model.encode(batch)
                loss = F.cross_entropy(model.tail(z), y)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
    return seconds[0]


def free_latents(
    load: Workload, draws: Draws, x: list[tuple[Tensor, Tensor]], held: tuple[list[Tensor], list[Tensor]]
) -> float:
    """The limit: a bare loop over latents that somebody else has computed."""
    model = load.model()
    model.train()
    set_trainable(model, llf=False, csf=True)
    stores = [encode(model, len(p), p.__getitem__, 2) for p, _ in x]
    held_z = [encode(model, len(h), h.__getitem__, 2) if len(h) else h for h in held[0]]
    with timed() as seconds:
        for steps, (_, labels), store, replay, held_y in zip(draws, x, stores, held_z, held[1], strict=True):
            optimizer = sgd(model)
            for rows, slots, views in steps:
                z, y = store[rows, views[: len(rows)]], labels[rows]
                if len(slots):
                    z = torch.cat([z, replay[slots, views[len(rows) :]]])
                    y = torch.cat([y, held_y[slots]])
                loss = F.cross_entropy(model.tail(unpack(z)), y)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
    return seconds[0]


def costs(load: Workload, x: Tensor, repeat: int = 5) -> tuple[float, float, float]:
    """Seconds per image of llf forward (L), csf and head forward and backward (C), and their forward alone."""
    model = load.model()
    model.train()
    set_trainable(model, llf=False, csf=True)
    optimizer, batch = sgd(model), x[:128].repeat(-(-128 // len(x)), 1, 1, 1)[:128]
    y = torch.zeros(128, dtype=torch.long)

    def llf() -> Tensor:
        with torch.no_grad():
            return model.encode(batch)

    z = llf()

    def csf() -> None:
        loss = F.cross_entropy(model.tail(z), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    def forward() -> Tensor:
        with torch.no_grad():
            return model.tail(z)

    return _median(llf, repeat) / 128, _median(csf, repeat) / 128, _median(forward, repeat) / 128


def _median(function: Callable[[], object], repeat: int) -> float:
    function()
    results = []
    for _ in range(repeat):
        with timed() as seconds:
            function()
        results.append(seconds[0])
    return sorted(results)[repeat // 2]
