"""The paper's four benchmarks, digits, and A/B-C over any dataset: tables of settings, and what makes them runs."""

from __future__ import annotations

import hashlib
import inspect
import math
import re
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from triphase.data import sources
from triphase.data.images import Images
from triphase.data.memory import Memory
from triphase.data.recipe import Recipe
from triphase.data.streams import Stream, class_incremental, joint, per_class, seeded_order, stream
from triphase.errors import BadData, InvalidValue, TriphaseWarning
from triphase.learners import TPC, FineTune, Joint, Learner
from triphase.models import SplitClassifier, build, rebuild_batchnorm
from triphase.randomness import keys

LEARNERS = ("tpc", "finetune", "replay", "joint")
DATASETS = ("digits", "cifar100", "core50", "imagenet", "folder")
CALIBRATION_IMAGES = 256
SET_BY_US = ("model", "memory", "seed", "pretrained")  # arguments of learners that are not theirs to set


@dataclass(frozen=True)
class Benchmark:
    """One row of the paper's tables of hyper-parameters (Tables 7 and 8); SPEC 1.5 and 6 where it is silent."""

    name: str
    dataset: str
    shape: tuple[int, int, int] | None  # A experiences, B classes first, C after; None: from lists
    backbone: str
    image_size: int
    memory: int
    first: Recipe
    rest: Recipe
    lr_grid: tuple[float, ...]
    pretrained: bool = True
    evaluation: Literal["seen", "all"] = "seen"
    evaluate_after: tuple[int, ...] = ()
    weights: str = ""  # the file of pre-trained weights to look for in the data folder

    @property
    def title(self) -> str:
        """As the paper writes it."""
        names = {"core50": "CORe50", "imagenet": "ImageNet", "cifar100": "CIFAR100", "digits": "Digits"}
        names["folder"] = "Photos"
        shape = "NICv2 391/10-1" if self.shape is None else "{}/{}-{}".format(*self.shape)
        return f"{names[self.dataset]} {shape}"


def _core50(name: str, shape: tuple[int, int, int] | None, n_mbe: int, n_mbr: int) -> Benchmark:
    first = Recipe(epochs=4, lr=0.005, n_mbe=128, weight_decay=5e-4, augment="flip")
    return Benchmark(
        name,
        dataset="core50",
        shape=shape,
        backbone="mobilenet_v1",
        image_size=128,
        memory=1500,
        first=first,
        rest=replace(first, n_mbe=n_mbe, n_mbr=n_mbr),
        lr_grid=(0.05, 0.02, 0.005, 0.002, 0.0005),
        evaluation="all",
        weights="mobilenet_v1_folded.safetensors",
    )


BENCHMARKS: dict[str, Benchmark] = {
    benchmark.name: benchmark
    for benchmark in (
        _core50("core50-41", (41, 10, 1), 158, 98),
        Benchmark(
            "imagenet-100",
            dataset="imagenet",
            shape=(100, 10, 10),
            backbone="resnet18",
            image_size=224,
            memory=20_000,
            first=Recipe(epochs=35, lr=0.005, n_mbe=128, weight_decay=1e-4, augment="rrc+flip"),
            rest=Recipe(epochs=35, lr=0.005, n_mbe=50, n_mbr=78, weight_decay=1e-4, augment="rrc+flip"),
            lr_grid=(0.01, 0.005, 0.001),
            evaluate_after=(*range(1, 97, 5), 100),
            weights="resnet18_places365.pth.tar",
        ),
        Benchmark(
            "cifar100-11",
            dataset="cifar100",
            shape=(11, 50, 5),
            backbone="resnet32",
            image_size=32,
            memory=2000,
            first=Recipe(
                epochs=200, lr=0.1, n_mbe=128, weight_decay=2e-4, augment="crop+flip", lr_schedule="patience"
            ),
            rest=Recipe(epochs=150, lr=0.01, n_mbe=142, n_mbr=114, weight_decay=2e-4, augment="crop+flip"),
            lr_grid=(0.1, 0.05, 0.01, 0.005, 0.001, 0.0005),
            pretrained=False,
        ),
        _core50("core50-nicv2-391", None, 42, 214),
        Benchmark(
            "digits-5",
            dataset="digits",
            shape=(5, 2, 2),
            backbone="small_cnn",
            image_size=8,
            memory=100,
            first=Recipe(epochs=20, lr=0.005, csf_lr=0.01, n_mbe=32),
            rest=Recipe(epochs=20, lr=0.005, csf_lr=0.01, n_mbe=32, n_mbr=32),
            lr_grid=(0.02, 0.01, 0.005),
        ),
    )
}

_PHOTOS = Recipe(epochs=4, lr=0.1, n_mbe=128, augment="flip")
_DEFAULTS: dict[str, dict[str, Any]] = {  # of DATASET:A/B-C
    "digits": {"backbone": "small_cnn", "image_size": 8, "memory": 100, "first": BENCHMARKS["digits-5"].first},
    "cifar100": {"backbone": "efficientnet_lite0", "image_size": 96, "memory": 1000, "first": _PHOTOS},
    "core50": {"backbone": "efficientnet_lite0", "image_size": 128, "memory": 1500, "first": _PHOTOS},
    "imagenet": {"backbone": "efficientnet_lite0", "image_size": 224, "memory": 20_000, "first": _PHOTOS},
    "folder": {"backbone": "efficientnet_lite0", "image_size": 128, "memory": 1000, "first": _PHOTOS},
}


def find(name: str) -> Benchmark:
    """A benchmark by its name, or DATASET:A/B-C.

    >>> find("cifar100:10/10-10").shape
    (10, 10, 10)
    """
    if name in BENCHMARKS:
        return BENCHMARKS[name]
    match = re.fullmatch(r"(\w+):(\d+)/(\d+)-(\d+)", name)
    if match is None or match[1] not in DATASETS:
        raise InvalidValue(
            f"No benchmark is called {name!r}; there are {', '.join(BENCHMARKS)}, "
            f"and DATASET:A/B-C with a dataset of {', '.join(DATASETS)}."
        )
    defaults = _DEFAULTS[match[1]]
    shape = (int(match[2]), int(match[3]), int(match[4]))
    if min(shape) < 1:
        raise InvalidValue(f"{name} must have at least 1 experience, 1 class first and 1 class in each other one.")
    lr_grid = (0.3, 0.1, 0.03)
    return Benchmark(name, dataset=match[1], shape=shape, rest=defaults["first"], lr_grid=lr_grid, **defaults)


@dataclass(frozen=True)
class Options:
    """What a person may change about a benchmark; None keeps the benchmark's own value."""

    learner: str = "tpc"
    order: int = 0
    seed: int = 0
    epochs_scale: float = 1.0
    epochs: int | None = None
    lr: float | None = None
    csf_lr: float | None = None
    n_mbe: int | None = None
    n_mbr: int | None = None
    augment: str | None = None
    trainable: Literal["csf", "all"] = "csf"
    latents: Literal["float32", "float16", "off"] = "float32"
    views: int = 0
    memory: int | None = None
    replay: Literal["raw", "latent", "none"] = "raw"
    latent_dtype: Literal["float32", "float16"] = "float32"
    backbone: str | None = None
    image_size: int | None = None
    weights: Path | None = None
    norm: Literal["bn", "brn"] = "bn"
    head: Literal["fixed", "incremental"] = "fixed"
    bfloat16: bool = False
    compiled: bool = False
    per_class: int | None = None
    skip_bad: bool = False  # leave out photos that cannot be read
    learner_options: tuple[tuple[str, Any], ...] = ()  # keyword arguments of the learner's class

    def __post_init__(self) -> None:
        if self.learner not in LEARNERS:
            raise InvalidValue(f"No learner is called {self.learner!r}; there are {', '.join(LEARNERS)}.")
        if not 0 < self.epochs_scale < math.inf:
            raise InvalidValue(f"--epochs-scale must be above 0 and finite, got {self.epochs_scale}.")
        for name in ("epochs", "per_class", "image_size"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise InvalidValue(f"--{name.replace('_', '-')} must be at least 1, got {value}.")
        for name, allowed in (("replay", ("raw", "latent", "none")), ("head", ("fixed", "incremental"))):
            if getattr(self, name) not in allowed:
                raise InvalidValue(f"--{name} is one of {', '.join(allowed)}, got {getattr(self, name)!r}.")


@dataclass(frozen=True)
class Setup:
    """Everything that `run` needs."""

    learner: Learner
    stream: Stream
    first: Recipe
    rest: Recipe
    settings: dict[str, Any]


def prepare(benchmark: Benchmark, options: Options, data: Path) -> Setup:
    """Load the data and build model and learner, all as the benchmark says unless an option says otherwise."""
    size = options.image_size or benchmark.image_size
    source = make_stream(benchmark, options, data, size)
    capacity = benchmark.memory if options.memory is None else options.memory
    if options.replay == "none" or options.learner == "finetune":
        capacity = 0
    first, rest = recipes(benchmark, options, source, capacity)
    weights = _weights(benchmark, options, data)
    model = _model(benchmark, options, size, source, weights)  # calibrated on E_1, for joint training too
    if options.learner == "joint":
        source = joint(source)
        model.grow(source.n_classes or 0)
    dtype = torch.float16 if options.latent_dtype == "float16" else torch.float32
    store: Literal["raw", "latent"] = "latent" if options.replay == "latent" else "raw"
    memory = Memory(capacity, seed=options.seed, store=store, dtype=dtype) if capacity else None
    if memory is not None and options.learner in ("tpc", "replay"):
        memory.check_room(len(source.names))
    learner = make_learner(options, model, memory, pretrained=benchmark.pretrained)
    if isinstance(learner, TPC):  # refuse too few epochs here, before a run is begun
        for recipe in (first, rest):
            learner.epochs(recipe.epochs, novel=True)
    backbone = options.backbone or benchmark.backbone
    settings = {"benchmark": benchmark.name, "order": options.order, "backbone": backbone, "image_size": size}
    settings |= {"per_class": options.per_class, "epochs_scale": options.epochs_scale, "norm": options.norm}
    model.accelerate(bfloat16=options.bfloat16, compiled=options.compiled)
    settings |= {"bfloat16": options.bfloat16, "compiled": options.compiled}
    settings |= {"head": options.head, "weights": None if weights is None else _digest(weights)}
    return Setup(learner, source, first, rest, settings)


def make_learner(
    options: Options, model: SplitClassifier, memory: Memory | None, *, pretrained: bool = True
) -> Learner:
    """The learner of that name."""
    classes: dict[str, Callable[..., Learner]] = {"tpc": TPC, "joint": Joint}
    if options.learner in ("joint", "finetune"):
        memory = None
    elif options.learner == "replay" and memory is None:
        raise InvalidValue("The learner replay needs a memory; give --memory, or take finetune.")
    make = classes.get(options.learner, FineTune)
    allowed = [name for name in inspect.signature(make).parameters if name not in SET_BY_US]
    unknown = [name for name, _ in options.learner_options if name not in allowed]
    if unknown:
        raise InvalidValue(
            f"The learner {options.learner} has no option {', '.join(unknown)}; "
            f"it has {', '.join(allowed) or 'none'}."
        )
    try:
        return make(model, memory, seed=options.seed, pretrained=pretrained, **dict(options.learner_options))
    except TypeError as error:
        raise InvalidValue(f"The learner {options.learner} refuses its options: {error}.") from error


def recipes(benchmark: Benchmark, options: Options, source: Stream, capacity: int) -> tuple[Recipe, Recipe]:
    """The recipes of the first and of the later experiences."""
    both: list[Recipe] = []
    for recipe in (benchmark.first, benchmark.rest):
        epochs = options.epochs or max(3, round(recipe.epochs * options.epochs_scale))
        patient = recipe.lr_schedule == "patience"  # the first rate of from-scratch training is not searched
        changes: dict[str, Any] = {"epochs": epochs, "trainable": options.trainable}
        changes |= {"latents": options.latents, "views": options.views}
        changes |= {"lr": options.lr} if options.lr is not None and not patient else {}
        changes |= {"csf_lr": options.csf_lr} if options.csf_lr is not None and not patient else {}
        changes |= {"augment": options.augment} if options.augment is not None else {}
        both.append(replace(recipe, **changes))
    first, rest = both
    if benchmark.name not in BENCHMARKS and len(source.experiences) > 1:
        n_mbe, n_mbr = minibatch_ratio(len(source.experiences[1].images), capacity, first.n_mbe)
        rest = replace(rest, n_mbe=n_mbe, n_mbr=n_mbr)
    if capacity == 0:
        rest = replace(rest, n_mbe=rest.n_mbe + rest.n_mbr, n_mbr=0)
    changes = {name: value for name in ("n_mbe", "n_mbr") if (value := getattr(options, name)) is not None}
    return first, replace(rest, **changes)


def minibatch_ratio(n_s: int, n_replay: int, n_mb: int) -> tuple[int, int]:
    """n_mbe : n_mbr = n_s : n_replay (Eq. 12).

    >>> minibatch_ratio(2400, 1500, 256)
    (158, 98)
    """
    n_mbe = min(max(1, round(n_mb * n_s / (n_s + n_replay))), n_mb)
    return n_mbe, n_mb - n_mbe


def make_stream(benchmark: Benchmark, options: Options, data: Path, size: int) -> Stream:
    """The stream of a benchmark in one of its class orders."""
    if benchmark.dataset == "core50" and benchmark.shape is None:
        lessons, test, names = sources.core50_nicv2(data, options.order, size)
        return stream(lessons, test, names, n_classes=_rows(options, len(names)), evaluation="all")
    assert benchmark.shape is not None
    train, test, names = _load(benchmark.dataset, data, size, options.skip_bad)
    if options.per_class is not None:
        train = per_class(train, options.per_class)
    n_experiences, first, then = benchmark.shape
    return class_incremental(
        train,
        test,
        names,
        first=first,
        then=then,
        order=class_order(benchmark.dataset, len(names), options.order),
        n_experiences=n_experiences,
        known_size=options.head == "fixed",
        evaluation=benchmark.evaluation,
        evaluate_after=benchmark.evaluate_after,
    )


def class_order(dataset: str, n_classes: int, order: int) -> Sequence[int]:
    """Class orders by published seeds; order 0 of CIFAR-100 is iCaRL's, of digits 0 to 9.

    >>> class_order("cifar100", 100, 0)[:5]
    [68, 56, 78, 8, 23]
    """
    if dataset == "core50":
        return sources.core50_41_order(order)
    if dataset == "cifar100" and order == 0:
        classes = np.arange(n_classes)
        np.random.RandomState(1993).shuffle(classes)
        return [int(c) for c in classes]
    return list(range(n_classes)) if dataset == "digits" and order == 0 else seeded_order(n_classes, order)


def _load(dataset: str, data: Path, size: int, skip_bad: bool) -> tuple[Images, Images, list[str]]:
    if dataset == "folder":
        photos = sources.folder(data, size, skip_bad=skip_bad)
        if photos.skipped:
            count = f"{len(photos.skipped)} of {len(photos.skipped) + len(photos.images)}"
            warnings.warn(
                f"{count} photos cannot be read and were left out, the first is {photos.skipped[0]}.",
                TriphaseWarning,
                stacklevel=2,
            )
        return *_held_out(photos.images, photos.names), photos.names
    if dataset == "digits":
        train, test, names = sources.digits()
    elif dataset == "cifar100":
        train, test, names = sources.cifar100(data)
    elif dataset == "core50":
        return sources.core50_classes(data, size)
    else:
        return sources.imagenet(data, size=round(size * 256 / 224))
    return train.resized(size), test.resized(size), names


def _held_out(images: Images, names: list[str]) -> tuple[Images, Images]:
    """One photo in five of each class, drawn by its id, is for testing; the rest is for training."""
    tested = torch.zeros(len(images), dtype=torch.bool)
    for label in images.labels.unique().tolist():
        members = (images.labels == label).nonzero().view(-1)
        if len(members) < 2:
            raise BadData(f"Class {names[label]} has one photo only; give at least 2, one of them for testing.")
        by_key = members[keys(0, images.ids[members]).argsort()]
        tested[by_key[: max(1, len(members) // 5)]] = True
    return images.select((~tested).nonzero().view(-1)), images.select(tested.nonzero().view(-1))


def _rows(options: Options, n_classes: int) -> int | None:
    return n_classes if options.head == "fixed" else None


def _weights(benchmark: Benchmark, options: Options, data: Path) -> Path | None:
    """The file of pre-trained weights: the one named, or the benchmark's own if it is in the data folder."""
    own = options.backbone in (None, benchmark.backbone) and benchmark.weights
    found = data / benchmark.weights
    return found if options.weights is None and own and found.exists() else options.weights


def _digest(path: Path) -> str:
    """Two files of weights are the same exactly if this is."""
    if not path.is_file():
        raise BadData(f"There is no file of weights at {path}; check --weights.")
    return hashlib.blake2b(path.read_bytes(), digest_size=16).hexdigest()


def _model(
    benchmark: Benchmark, options: Options, size: int, source: Stream, weights: Path | None
) -> SplitClassifier:
    name = options.backbone or benchmark.backbone
    arguments: dict[str, Any] = {"image_size": size, "weights": weights, "seed": options.seed, "norm": options.norm}
    if name == "small_cnn":  # the one network that also takes grey images
        arguments["channels"] = source.experiences[0].images.read(torch.tensor([0])).shape[1]
    model = build(name, source.n_classes or 0, **arguments)
    if name.startswith("mobilenet") and weights is not None:
        images = source.experiences[0].images
        some = torch.linspace(0, len(images) - 1, min(CALIBRATION_IMAGES, len(images))).long()
        rebuild_batchnorm(model, images.read(some))
    return model
