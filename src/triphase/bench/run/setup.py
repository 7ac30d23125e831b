"""From a benchmark and options to what `run` needs: data, model, learner and recipes."""

from __future__ import annotations

import hashlib
import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch

from triphase.bench.benchmarks import Benchmark
from triphase.bench.learners import is_joint, learner_spec, make_learner, trains
from triphase.bench.ranges import format_ranges, parse_ranges
from triphase.bench.run.benchmark_stream import image_size, make_stream
from triphase.bench.run.options import RunOptions
from triphase.bench.run.recipes import benchmark_defaults, recipes
from triphase.bench.run.results import Report
from triphase.bench.run.runner import run
from triphase.bench.run.shared_first import expected_settings, first_experiences, load_first
from triphase.context import Context
from triphase.data.batches import check_processes
from triphase.data.memory import Memory
from triphase.data.recipe import Recipe
from triphase.data.streams import Stream, joint
from triphase.errors import BadData, TriphaseWarning
from triphase.events import OnEvent, ignore_event
from triphase.image_size import scaling_of
from triphase.learners import ChecksRecipe, Learner
from triphase.maths.sampling import evenly_spaced
from triphase.models import SplitClassifier, build, lacks_statistics, placed, rebuild_batchnorm
from triphase.models.engine import engine_of

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

    def run(self, out: Path | None = None, *, on_event: OnEvent = ignore_event, save_every: float = 1.0) -> Report:
        """Learn the stream and evaluate; see `triphase.run`."""
        return run(
            self.learner,
            self.stream,
            first=self.first,
            rest=self.rest,
            out=out,
            settings=self.settings,
            before=self.before,
            on_event=on_event,
            save_every=save_every,
        )


def prepare(benchmark: Benchmark, options: RunOptions, data: Path, context: Context | None = None) -> Setup:
    """Load the data and build model and learner, as the benchmark says unless an option says otherwise."""
    context = Context() if context is None else context
    context.engine = options.engine
    source = make_stream(benchmark, options, data)
    memory = _memory(benchmark, options)
    first, rest = recipes(benchmark, options, source, 0 if memory is None else memory.capacity or 0)
    weights = _weights(benchmark, options, data)
    model = _model(benchmark, options, source, weights, context)  # calibrated on E_1, for joint training too
    settings, before = _settings(benchmark, options, weights), None
    if options.engine != "torch":
        settings["engine"] = _engine(context, model)
    if options.first_from is not None:
        expected = expected_settings(benchmark, options, source, first, settings)
        before = load_first(model, options.first_from, expected)
        learned = checksum(options.first_from / "weights.safetensors")
        settings["first_from"] = {"weights": learned, "epochs": first.epochs}
        first = replace(first, epochs=0)
    if options.experiences is not None:
        source = first_experiences(source, options.experiences)
        settings["experiences"] = options.experiences
    if is_joint(options.learner):
        source = joint(source)
        model.grow(source.n_classes or 0)
    if memory is not None:
        memory.check_room(len(source.names))
    learner = _learner(benchmark, options, model, memory, context)
    for recipe in (first, rest):  # before a run is begun
        if isinstance(learner, ChecksRecipe):
            learner.check_recipe(recipe)
        if trains(options.learner, pretrained=benchmark.pretrained):
            check_processes(context.processes, memory, recipe)
    model.accelerate(precision=options.precision, compiled=options.compiled)
    return Setup(learner, source, first, rest, settings, before)


def _engine(context: Context, model: SplitClassifier) -> str:
    """The engine of the frozen parts; warns if it is not the one that was asked for."""
    engine = engine_of(context, model.llf)
    if engine == "torch":
        sentence = f"ONNX Runtime offers nothing for {model.device.type} here: PyTorch runs the frozen parts."
        warnings.warn(sentence, TriphaseWarning, stacklevel=3)
    return engine


def _learner(
    benchmark: Benchmark,
    options: RunOptions,
    model: SplitClassifier,
    memory: Memory | None,
    context: Context | None,
) -> Learner:
    return make_learner(
        options.learner,
        model,
        memory,
        benchmark_defaults(benchmark, options.learner) | options.own,
        seed=options.seed,
        pretrained=benchmark.pretrained,
        context=context,
    )


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
        "precision": options.precision,
        "compiled": options.compiled,
        "weights": None if weights is None else checksum(weights),
    }
    if scaling := scaling_of(settings["image_size"]):
        settings["scaling"] = str(scaling)
    if options.labelled is not None:
        settings["labelled"] = options.labelled
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


def _model(
    benchmark: Benchmark, options: RunOptions, source: Stream, weights: Path | None, context: Context
) -> SplitClassifier:
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
        rebuild_batchnorm(model, images.read(evenly_spaced(len(images), CALIBRATION_IMAGES)))
    return placed(model, context)
