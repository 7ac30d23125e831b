"""The recipes of a run: the benchmark's own, changed by the options (Eq. 12 where the memory is another one)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from triphase.bench.benchmarks import BENCHMARKS, Benchmark
from triphase.bench.learners import learner_options, learner_spec
from triphase.bench.run.options import RunOptions
from triphase.data.recipe import Recipe
from triphase.data.streams import Stream

LEAST_EPOCHS = 3  # one for each phase of TPC


def recipes(benchmark: Benchmark, options: RunOptions, stream: Stream, capacity: int) -> tuple[Recipe, Recipe]:
    """The recipes of the first and of the later experiences, with a memory of that capacity."""
    first, rest = (_changed(recipe, options) for recipe in (benchmark.first, benchmark.rest))
    if _eq_12_applies(benchmark, capacity) and len(stream.experiences) > 1:
        sizes = [len(experience.images) for experience in stream.experiences[1:]]  # with repetition they vary
        n_mb = rest.n_mbe + rest.n_mbr
        n_mbe, n_mbr = minibatch_ratio(round(sum(sizes) / len(sizes)), capacity, n_mb)
        rest = replace(rest, n_mbe=n_mbe, n_mbr=n_mbr)
    given = {name: value for name in ("n_mbe", "n_mbr") if (value := getattr(options, name)) is not None}
    if capacity == 0 and "n_mbe" in given:
        given.setdefault("n_mbr", 0)
    rest = replace(rest, **given)
    return first, replace(rest, n_mbe=rest.n_mbe + rest.n_mbr, n_mbr=0) if capacity == 0 else rest


def minibatch_ratio(n_s: int, n_replay: int, n_mb: int) -> tuple[int, int]:
    """n_mbe : n_mbr = n_s : n_replay (Eq. 12).

    >>> minibatch_ratio(2400, 1500, 256)
    (158, 98)
    """
    n_mbe = min(max(1, round(n_mb * n_s / (n_s + n_replay))), n_mb)
    return n_mbe, n_mb - n_mbe


def scaled(epochs: int, scale: float) -> int:
    """Epochs of a schedule that is shortened or lengthened by --epochs-scale.

    >>> scaled(35, 0.1), scaled(4, 0.1)
    (4, 3)
    """
    return max(LEAST_EPOCHS, round(epochs * scale))


def benchmark_defaults(benchmark: Benchmark, learner: str) -> dict[str, Any]:
    """The learner's options whose default is the middle of the benchmark's grid.

    BiC's stage 2 fits two numbers to outputs that are computed once: it is not shortened by --epochs-scale.
    """
    found: dict[str, Any] = {}
    for name in learner_spec(learner).from_grid:
        grid = benchmark.grids.get(learner, {}).get(name, (learner_options(learner)[name].default,))
        found[name] = grid[len(grid) // 2]
    return found


def _changed(recipe: Recipe, options: RunOptions) -> Recipe:
    """One recipe with what the options say about it."""
    changes: dict[str, Any] = {
        "epochs": options.epochs or scaled(recipe.epochs, options.epochs_scale),
        "trainable": options.trainable,
        "latents": options.latents,
        "views": options.views,
    }
    given = ["augment", "weight_decay"]
    if recipe.lr_schedule != "patience":  # the rate of training from scratch has a schedule of its own
        given += ["lr", "csf_lr"]
    changes |= {name: value for name in given if (value := getattr(options, name)) is not None}
    return replace(recipe, **changes)


def _eq_12_applies(benchmark: Benchmark, capacity: int) -> bool:
    """Benchmarks with a name state their ratio for their own memory; any other memory has its own."""
    return benchmark.name not in BENCHMARKS or capacity not in (0, benchmark.memory)
