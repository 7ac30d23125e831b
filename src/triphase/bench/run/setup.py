"""From a benchmark and options to what `run` needs: data, model, learner and recipes."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch

from triphase.bench.benchmarks import Benchmark
from triphase.bench.datasets import class_order, load
from triphase.bench.learners import learner_spec, make_learner
from triphase.bench.ranges import format_ranges, parse_ranges
from triphase.bench.run.options import RunOptions, flag
from triphase.bench.run.recipes import recipes, schedule_options
from triphase.bench.run.results import Report
from triphase.bench.run.runner import Watch, run
from triphase.bench.run.shared_first import expected_settings, first_experiences, load_first
from triphase.context import Context
from triphase.data import sources
from triphase.data.images import Images
from triphase.data.memory import Memory
from triphase.data.recipe import Recipe
from triphase.data.streams import Stream, class_incremental, joint, members, per_class, stream, with_repetition
from triphase.errors import BadData, InvalidValue, TriphaseWarning
from triphase.learners import ChecksRecipe, Learner
from triphase.models import SplitClassifier, build, lacks_statistics, rebuild_batchnorm

CALIBRATION_IMAGES = 256


@dataclass(frozen=True)
class Setup:
    """A run that is ready to start."""

    learner: Learner
    stream: Stream
    first: Recipe
    rest: Recipe
    settings: dict[str, Any]
    before: Report | None = None  # of the run that learned the first experience, if another one did

    def run(self, out: Path | None = None, *, watch: Watch = lambda event: None, save_every: float = 1.0) -> Report:
        """Learn the stream and evaluate; see `triphase.run`."""
        return run(
            self.learner,
            self.stream,
            first=self.first,
            rest=self.rest,
            out=out,
            settings=self.settings,
            before=self.before,
            watch=watch,
            save_every=save_every,
        )


def prepare(benchmark: Benchmark, options: RunOptions, data: Path, context: Context | None = None) -> Setup:
    """Load the data and build model and learner, as the benchmark says unless an option says otherwise."""
    source = make_stream(benchmark, options, data)
    memory = _memory(benchmark, options)
    first, rest = recipes(benchmark, options, source, 0 if memory is None else memory.capacity or 0)
    weights = _weights(benchmark, options, data)
    model = _model(benchmark, options, source, weights)  # calibrated on E_1, for joint training too
    settings, before = _settings(benchmark, options, weights), None
    if options.first_from is not None:
        expected = expected_settings(benchmark, options, source, first, settings)
        before = load_first(model, options.first_from, expected)
        learned = checksum(options.first_from / "weights.safetensors")
        settings |= {"first_from": {"weights": learned, "epochs": first.epochs}}
        first = replace(first, epochs=0)
    if options.experiences is not None:
        source = first_experiences(source, options.experiences)
        settings |= {"experiences": options.experiences}
    if options.learner == "joint":
        source = joint(source)
        model.grow(source.n_classes or 0)
    if memory is not None:
        memory.check_room(len(source.names))
    own = schedule_options(benchmark, options) | options.own
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


def make_stream(benchmark: Benchmark, options: RunOptions, data: Path) -> Stream:
    """The stream of a benchmark in one of its class orders."""
    size = image_size(benchmark, options)
    if benchmark.shape is None:
        return _published_stream(benchmark, options, data, size)
    train, test, names = load(benchmark.dataset, data, size, options.skip_bad)
    if options.per_class is not None:
        train = per_class(train, options.per_class)  # the same images whichever classes are left out
    order = class_order(benchmark.dataset, len(names), options.order)
    if options.classes is not None:
        order = _chosen_classes(benchmark, options.classes, order)
        train, test = (images.select(members(images.labels, order)) for images in (train, test))
    return _divided_stream(benchmark, options, train, test, names, order)


def _divided_stream(
    benchmark: Benchmark,
    options: RunOptions,
    train: Images,
    test: Images,
    names: Sequence[str],
    order: Sequence[int],
) -> Stream:
    """A dataset divided into experiences as the benchmark's shape A/B-C says."""
    assert benchmark.shape is not None
    n_experiences, first, then = benchmark.shape
    protocol: dict[str, Any] = {
        "n_experiences": n_experiences,
        "first": first,
        "order": order,
        "known_size": options.head == "fixed",
        "evaluation": benchmark.evaluation,
        "evaluate_after": _evaluation_points(benchmark, options),
    }
    if benchmark.repetition:
        return with_repetition(train, test, names, per_experience=then, seed=options.order, **protocol)
    return class_incremental(train, test, names, then=then, **protocol)


def _published_stream(benchmark: Benchmark, options: RunOptions, data: Path, size: int) -> Stream:
    """CORe50 NICv2, whose experiences are published as lists of images."""
    for name in ("per_class", "classes"):
        if getattr(options, name) is not None:
            raise InvalidValue(f"{benchmark.name} is a published list of images: leave out {flag(name)}.")
    lessons, test, names = sources.core50_nicv2(data, options.order, size)
    return stream(
        lessons,
        test,
        names,
        n_classes=len(names) if options.head == "fixed" else None,
        evaluation=benchmark.evaluation,
        evaluate_after=_evaluation_points(benchmark, options),
    )


def _evaluation_points(benchmark: Benchmark, options: RunOptions) -> tuple[int, ...]:
    """Experiences after which to evaluate: the benchmark's own, or the first, every N-th and the last."""
    if options.evaluate_every is None:
        return benchmark.evaluate_after
    n = benchmark.n_experiences
    return tuple(sorted({*range(1, n, options.evaluate_every), n}))


def _chosen_classes(benchmark: Benchmark, classes: str, order: Sequence[int]) -> list[int]:
    """A class order of the classes that --classes names."""
    wanted = set(parse_ranges("--classes", classes))
    if beyond := wanted - set(order):
        raise InvalidValue(f"--classes names class {min(beyond)}, but the dataset has 0 to {max(order)}.")
    if benchmark.shape is not None and not benchmark.repetition:
        n_experiences, first, then = benchmark.shape
        if len(wanted) < (needed := first + then * (n_experiences - 1)):
            raise InvalidValue(f"{benchmark.name} needs {needed} classes, but --classes leaves {len(wanted)}.")
    return [c for c in order if c in wanted]


def image_size(benchmark: Benchmark, options: RunOptions) -> int:
    """Side of the images in pixels."""
    return options.image_size or benchmark.image_size


def checksum(path: Path) -> str:
    """The checksum of a file of weights."""
    return hashlib.blake2b(path.read_bytes(), digest_size=16).hexdigest()


def _memory(benchmark: Benchmark, options: RunOptions) -> Memory | None:
    """The replay memory, if there is one."""
    capacity = benchmark.memory if options.memory is None else options.memory
    if capacity == 0 or options.replay == "none" or learner_spec(options.learner).memory == "unused":
        return None
    dtype = torch.float16 if options.latent_dtype == "float16" else torch.float32
    store: Literal["raw", "latent"] = "latent" if options.replay == "latent" else "raw"
    return Memory(capacity, seed=options.seed, store=store, dtype=dtype)


def _settings(benchmark: Benchmark, options: RunOptions, weights: Path | None) -> dict[str, Any]:
    """What is recorded of a run beside what the learner and `run` record."""
    settings: dict[str, Any] = {
        "benchmark": benchmark.name,
        "order": options.order,
        "image_size": image_size(benchmark, options),
        "backbone": options.backbone or benchmark.backbone,
        "norm": options.norm,
        "head": options.head,
        "per_class": options.per_class,
        "epochs_scale": options.epochs_scale,
        "bfloat16": options.bfloat16,
        "compiled": options.compiled,
        "weights": None if weights is None else checksum(weights),
    }
    if options.classes is not None:
        settings["classes"] = format_ranges(parse_ranges("--classes", options.classes))
    return settings


def _weights(benchmark: Benchmark, options: RunOptions, data: Path) -> Path | None:
    """The file of pre-trained weights: the one named, or the benchmark's own if it is in the data folder."""
    if options.weights is not None and not options.weights.is_file():
        raise BadData(f"There is no file of weights at {options.weights}; check --weights.")
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


def _model(benchmark: Benchmark, options: RunOptions, source: Stream, weights: Path | None) -> SplitClassifier:
    images = source.experiences[0].images
    model = build(
        options.backbone or benchmark.backbone,
        source.n_classes or 0,
        image_size=image_size(benchmark, options),
        channels=images.read(torch.tensor([0])).shape[1],
        weights=weights,
        seed=options.seed,
        norm=options.norm,
    )
    if lacks_statistics(model):
        rows = torch.linspace(0, len(images) - 1, min(CALIBRATION_IMAGES, len(images))).long()
        rebuild_batchnorm(model, images.read(rows))
    return model
