"""The stream of a benchmark: its images, divided into experiences, in one of its class orders."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from triphase.bench.benchmarks import Benchmark
from triphase.bench.datasets import Dataset, class_order, load
from triphase.bench.ranges import parse_ranges
from triphase.bench.run.options import RunOptions, flag
from triphase.data import sources
from triphase.data.images import select_classes, subsample
from triphase.data.partial_labels import hide_labels
from triphase.data.streams import Stream, class_incremental, stream, with_repetition
from triphase.errors import InvalidValue
from triphase.models import backbone


def make_stream(benchmark: Benchmark, options: RunOptions, data: Path) -> Stream:
    """The stream of a benchmark in one of its class orders, of which --labelled hides labels."""
    whole = _labelled_stream(benchmark, options, data)
    return whole if options.labelled is None else hide_labels(whole, options.labelled, options.seed)


def _labelled_stream(benchmark: Benchmark, options: RunOptions, data: Path) -> Stream:
    size = image_size(benchmark, options)
    if benchmark.shape is None:
        return _published_stream(benchmark, options, data, size)
    train, test, names = load(benchmark.dataset, data, size, options.skip_bad)
    if options.per_class is not None:
        train = subsample(train, options.per_class)  # the same images whichever classes are left out
    order = class_order(benchmark.dataset, len(names), options.order)
    if options.classes is not None:
        order = _chosen_classes(benchmark, options.classes, order)
        train, test = (select_classes(images, order) for images in (train, test))
    return _divided_stream(benchmark, options, (train, test, names), benchmark.shape, order)


def _divided_stream(
    benchmark: Benchmark, options: RunOptions, dataset: Dataset, shape: tuple[int, int, int], order: Sequence[int]
) -> Stream:
    """A dataset divided into experiences of a shape A/B-C."""
    n_experiences, first, then = shape
    protocol: dict[str, Any] = {
        "n_experiences": n_experiences,
        "first": first,
        "order": order,
        "n_classes_known": options.head == "fixed",
        "evaluation": benchmark.evaluation,
        "evaluate_after": _evaluation_points(benchmark, options),
    }
    if benchmark.repetition:
        return with_repetition(*dataset, per_experience=then, seed=options.order, **protocol)
    return class_incremental(*dataset, then=then, **protocol)


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
    """Side of the images in pixels: the one asked for, the network's own, or the benchmark's."""
    if options.backbone is None:
        return options.image_size or benchmark.image_size
    own = backbone(options.backbone)
    return own.sized(options.image_size or (own.photo_size if own.own_size else benchmark.image_size))
