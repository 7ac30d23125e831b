"""What makes a benchmark a run: options, data, model and learner."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch

from triphase.bench.benchmarks import BENCHMARKS, Benchmark
from triphase.bench.datasets import as_ranges, class_order, lessons_with_repetition, load, parse_numbers
from triphase.bench.learners import learner_spec, make_learner, shares_first
from triphase.bench.run import shared_first
from triphase.bench.run.options import RunOptions
from triphase.bench.run.results import Report
from triphase.context import Context
from triphase.data import sources
from triphase.data.memory import Memory
from triphase.data.recipe import Recipe
from triphase.data.streams import Stream, class_incremental, joint, members, per_class, stream
from triphase.errors import BadData, InvalidValue, TriphaseWarning
from triphase.learners import ChecksRecipe, Learner
from triphase.models import SplitClassifier, build, lacks_statistics, rebuild_batchnorm

CALIBRATION_IMAGES = 256
STAGE2_EPOCHS = 100  # of BiC, where the benchmark has no grid of its own


@dataclass(frozen=True)
class Setup:
    """Everything that `run` needs."""

    learner: Learner
    stream: Stream
    first: Recipe
    rest: Recipe
    settings: dict[str, Any]
    before: Report | None = None  # of the run that learned the first experience, if another one did


def prepare(benchmark: Benchmark, options: RunOptions, data: Path, context: Context | None = None) -> Setup:
    """Load the data and build model and learner, all as the benchmark says unless an option says otherwise."""
    kind = learner_spec(options.learner)
    size = options.image_size or benchmark.image_size
    source = make_stream(benchmark, options, data, size)
    capacity = benchmark.memory if options.memory is None else options.memory
    if options.replay == "none" or kind.memory == "unused":
        capacity = 0
    first, rest = recipes(benchmark, options, source, capacity)
    weights = _weights(benchmark, options, data)
    model = _model(benchmark, options, size, source, weights)  # calibrated on E_1, for joint training too
    settings = {"benchmark": benchmark.name, "order": options.order, "image_size": size}
    settings |= {"backbone": options.backbone or benchmark.backbone, "norm": options.norm, "head": options.head}
    settings |= {"per_class": options.per_class, "epochs_scale": options.epochs_scale}
    settings |= {"bfloat16": options.bfloat16, "compiled": options.compiled}
    settings |= {"weights": None if weights is None else _digest(weights)}
    if options.classes is not None:
        settings |= {"classes": as_ranges(parse_numbers("--classes", options.classes))}
    before = None
    if options.first_from is not None:
        before, first = _learned_before(benchmark, options, source, first, settings, model)
        learned = shared_first.digest(options.first_from / "weights.safetensors")
        settings |= {"first_from": {"weights": learned, "epochs": before.settings["first"]["epochs"]}}
    if options.experiences is not None:
        source = _beginning(source, options.experiences)
        settings |= {"experiences": options.experiences}
    if options.learner == "joint":
        source = joint(source)
        model.grow(source.n_classes or 0)
    dtype = torch.float16 if options.latent_dtype == "float16" else torch.float32
    store: Literal["raw", "latent"] = "latent" if options.replay == "latent" else "raw"
    memory = Memory(capacity, seed=options.seed, store=store, dtype=dtype) if capacity else None
    if memory is not None:
        memory.check_room(len(source.names))
    own = _default_options(benchmark, options) | options.own
    learner = make_learner(
        options.learner,
        model,
        memory,
        own,
        seed=options.seed,
        pretrained=benchmark.pretrained,
        context=context,
    )
    if isinstance(learner, ChecksRecipe):  # before a run is begun
        for recipe in (first, rest):
            learner.check_recipe(recipe)
    model.accelerate(bfloat16=options.bfloat16, compiled=options.compiled)
    return Setup(learner, source, first, rest, settings, before)


def recipes(benchmark: Benchmark, options: RunOptions, source: Stream, capacity: int) -> tuple[Recipe, Recipe]:
    """The recipes of the first and of the later experiences."""
    both: list[Recipe] = []
    for recipe in (benchmark.first, benchmark.rest):
        epochs = options.epochs or scaled(recipe.epochs, options.epochs_scale, least=3)
        patient = recipe.lr_schedule == "patience"  # the first rate of from-scratch training is not searched
        changes: dict[str, Any] = {"epochs": epochs, "trainable": options.trainable}
        changes |= {"latents": options.latents, "views": options.views}
        changes |= {"lr": options.lr} if options.lr is not None and not patient else {}
        changes |= {"csf_lr": options.csf_lr} if options.csf_lr is not None and not patient else {}
        for name in ("augment", "weight_decay"):
            changes |= {name: getattr(options, name)} if getattr(options, name) is not None else {}
        both.append(replace(recipe, **changes))
    first, rest = both
    if benchmark.name not in BENCHMARKS and len(source.experiences) > 1:
        sizes = [len(experience.images) for experience in source.experiences[1:]]  # with repetition they vary
        n_mbe, n_mbr = minibatch_ratio(round(sum(sizes) / len(sizes)), capacity, first.n_mbe)
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


def make_stream(benchmark: Benchmark, options: RunOptions, data: Path, size: int) -> Stream:
    """The stream of a benchmark in one of its class orders."""
    fixed = options.head == "fixed"
    n, every, points = benchmark.n_experiences, options.evaluate_every, benchmark.evaluate_after
    points = points if every is None else tuple(sorted({*range(1, n, every), n}))
    if benchmark.shape is None:
        for name in ("per_class", "classes"):
            if getattr(options, name) is not None:
                flag = name.replace("_", "-")
                raise InvalidValue(f"{benchmark.name} is a published list of images: leave out --{flag}.")
        lessons, test, names = sources.core50_nicv2(data, options.order, size)
        n_classes = len(names) if fixed else None
        return stream(lessons, test, names, n_classes=n_classes, evaluation="all", evaluate_after=points)
    train, test, names = load(benchmark.dataset, data, size, options.skip_bad)
    if options.per_class is not None:
        train = per_class(train, options.per_class)  # the same images whichever classes are left out
    order = class_order(benchmark.dataset, len(names), options.order)
    if options.classes is not None:
        order = _only(options.classes, order)
        train, test = (images.select(members(images.labels, order)) for images in (train, test))
    if benchmark.repetition:
        lessons = lessons_with_repetition(train, names, order, benchmark.shape, options.order)
        n_classes = len(order) if fixed else None
        how = benchmark.evaluation
        return stream(lessons, test, names, n_classes=n_classes, evaluation=how, evaluate_after=points)
    n_experiences, first, then = benchmark.shape
    if options.classes is not None and len(order) < (wanted := first + then * (n_experiences - 1)):
        raise InvalidValue(f"{benchmark.name} needs {wanted} classes, but --classes leaves {len(order)}.")
    return class_incremental(
        train,
        test,
        names,
        first=first,
        then=then,
        order=order,
        n_experiences=n_experiences,
        known_size=fixed,
        evaluation=benchmark.evaluation,
        evaluate_after=points,
    )


def _only(classes: str, order: Sequence[int]) -> list[int]:
    """A class order without the classes that are not wanted."""
    wanted = set(parse_numbers("--classes", classes))
    if beyond := wanted - set(order):
        raise InvalidValue(f"--classes names class {min(beyond)}, but the dataset has 0 to {max(order)}.")
    return [c for c in order if c in wanted]


def _learned_before(
    benchmark: Benchmark,
    options: RunOptions,
    source: Stream,
    first: Recipe,
    settings: dict[str, Any],
    model: SplitClassifier,
) -> tuple[Report, Recipe]:
    """Take over E_1 from another run; what is left of its recipe is no epoch at all."""
    assert options.first_from is not None
    if not shares_first(options.learner, options.own, pretrained=benchmark.pretrained):
        raise InvalidValue(
            f"The learner {options.learner} does not train its first experience by plain cross-entropy alone, "
            "so no other run can do it; leave out --first-from."
        )
    expected = {"learner": "finetune", "experiences": 1, **settings, "first": first.to_json()}
    expected |= {"seed": options.seed, "pretrained": benchmark.pretrained}
    expected |= {"stream": _beginning(source, 1).fingerprint}
    return shared_first.take_over(model, options.first_from, expected), replace(first, epochs=0)


def _beginning(source: Stream, n: int) -> Stream:
    """The first n experiences, evaluated at the end of them too; the head is that of the whole stream."""
    n = min(n, len(source.experiences))
    points = sorted({*(i for i in source.evaluate_after if i < n), n})
    part = replace(source, experiences=source.experiences[:n], evaluate_after=tuple(points))
    if part.evaluation == "all":
        return part
    tested = (part.test.labels < part.n_seen[-1]).nonzero().view(-1)  # the latents of the others would not be used
    return replace(part, test=part.test.select(tested))


def scaled(epochs: int, scale: float, least: int = 1) -> int:
    """A schedule shortened or lengthened by --epochs-scale.

    >>> scaled(35, 0.1), scaled(4, 0.1, least=3)
    (4, 3)
    """
    return max(least, round(epochs * scale))


def _default_options(benchmark: Benchmark, options: RunOptions) -> dict[str, Any]:
    """RunOptions of a learner that follow from the benchmark: BiC's second stage is part of its schedule."""
    if options.learner != "bic":
        return {}
    grid = benchmark.grids.get("bic", {}).get("stage2_epochs", (STAGE2_EPOCHS,))
    return {"stage2_epochs": scaled(grid[len(grid) // 2], options.epochs_scale, least=3)}


def _weights(benchmark: Benchmark, options: RunOptions, data: Path) -> Path | None:
    """The file of pre-trained weights: the one named, or the benchmark's own if it is in the data folder."""
    if options.weights is not None or not benchmark.weights or options.backbone not in (None, benchmark.backbone):
        return options.weights
    found = data / benchmark.weights
    if not found.exists():
        warnings.warn(
            f"{benchmark.name} is meant for pre-trained weights, and {benchmark.weights} is not in {data}: the "
            "network starts at random, and llf stays so. `triphase data` says where to get the file.",
            TriphaseWarning,
            stacklevel=2,
        )
        return None
    return found


def _digest(path: Path) -> str:
    """Two files of weights are the same exactly if this is."""
    if not path.is_file():
        raise BadData(f"There is no file of weights at {path}; check --weights.")
    return shared_first.digest(path)


def _model(
    benchmark: Benchmark, options: RunOptions, size: int, source: Stream, weights: Path | None
) -> SplitClassifier:
    images = source.experiences[0].images
    model = build(
        options.backbone or benchmark.backbone,
        source.n_classes or 0,
        image_size=size,
        channels=images.read(torch.tensor([0])).shape[1],
        weights=weights,
        seed=options.seed,
        norm=options.norm,
    )
    if lacks_statistics(model):
        rows = torch.linspace(0, len(images) - 1, min(CALIBRATION_IMAGES, len(images))).long()
        rebuild_batchnorm(model, images.read(rows))
    return model
