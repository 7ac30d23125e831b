"""The paper's four benchmarks, digits, and A/B-C over any dataset: tables of settings."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from triphase.data.recipe import Recipe
from triphase.errors import InvalidValue

DATASETS = ("digits", "cifar100", "core50", "imagenet", "folder", "hf")
NOTATIONS = {  # what `find` reads beside names
    "DATASET:A/B-C": "A experiences: B classes first, then C new ones each (cifar100:10/10-10)",
    "DATASET:nic-A/B-C": "the same with repetition: C classes each, new or known (cifar100:nic-79/10-5)",
}
Grid = Mapping[str, tuple[Any, ...]]  # values to search by name of a learner's option

DERPP_GRID: Grid = {"alpha": (0.1, 0.2, 0.5), "beta": (0.5, 1.0)}
CORE50_GRIDS: Mapping[str, Grid] = {"bic": {"stage2_epochs": (4, 8, 12)}, "derpp": DERPP_GRID}
# 8 steps of stage 2 are too few to fit two numbers, so 100 are tried as well
OTHER_GRIDS: Mapping[str, Grid] = {"bic": {"stage2_epochs": (8, 100)}, "derpp": DERPP_GRID}
NICV2 = 391  # experiences in the published lists


@dataclass(frozen=True)
class Benchmark:
    """One row of the paper's tables of hyper-parameters (Tables 7 and 8); docs/deviations.md where it is silent."""

    name: str
    dataset: str
    shape: tuple[int, int, int] | None  # A experiences, B classes first, C after; None: from lists
    backbone: str
    image_size: int
    memory: int
    first: Recipe
    rest: Recipe
    lr_grid: tuple[float, ...]
    grids: Mapping[str, Grid] = field(default_factory=dict)  # by learner: what is searched beside lr
    repetition: bool = False  # classes come back: C is how many an experience holds, new or known
    pretrained: bool = True
    evaluation: Literal["seen", "all"] = "seen"
    evaluate_after: tuple[int, ...] = ()
    weights: str = ""  # the file of pre-trained weights to look for in the data folder

    @property
    def title(self) -> str:
        """As the paper writes it."""
        names = {"core50": "CORe50", "imagenet": "ImageNet", "cifar100": "CIFAR100", "digits": "Digits"}
        names |= {"folder": "Photos", "hf": "Hugging Face"}
        shape = "NICv2 391/10-1" if self.shape is None else "{}/{}-{}".format(*self.shape)
        return f"{names[self.dataset]} {'NIC ' if self.repetition and self.shape else ''}{shape}"

    @property
    def n_experiences(self) -> int:
        """How many experiences it has."""
        return NICV2 if self.shape is None else self.shape[0]

    def to_json(self) -> dict[str, Any]:
        """What `triphase bench list --json` prints of it."""
        plain = ("name", "title", "backbone", "memory", "lr_grid", "grids", "evaluation")
        document = {name: getattr(self, name) for name in plain}
        return document | {"first": self.first.to_json(), "rest": self.rest.to_json()}


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
        grids=CORE50_GRIDS,
        repetition=shape is None,
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
            grids={"bic": {"stage2_epochs": (20, 35, 50)}, "derpp": DERPP_GRID},
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
            grids={"bic": {"stage2_epochs": (50, 100, 150)}, "derpp": DERPP_GRID},
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

_PHOTOS = Recipe(epochs=4, lr=0.03, n_mbe=128, augment="flip")
_DEFAULTS: dict[str, dict[str, Any]] = {  # of DATASET:A/B-C
    "digits": {"backbone": "small_cnn", "image_size": 8, "memory": 100, "first": BENCHMARKS["digits-5"].first},
    "cifar100": {"backbone": "efficientnet_lite0", "image_size": 96, "memory": 1000, "first": _PHOTOS},
    "core50": {"backbone": "efficientnet_lite0", "image_size": 128, "memory": 1500, "first": _PHOTOS},
    "imagenet": {"backbone": "efficientnet_lite0", "image_size": 224, "memory": 20_000, "first": _PHOTOS},
    "folder": {"backbone": "efficientnet_lite0", "image_size": 128, "memory": 1000, "first": _PHOTOS},
    "hf": {"backbone": "efficientnet_lite0", "image_size": 128, "memory": 1000, "first": _PHOTOS},
}


def find(name: str) -> Benchmark:
    """A benchmark by its name, or in one of the NOTATIONS.

    >>> find("cifar100:10/10-10").shape, find("cifar100:nic-79/10-5").title
    ((10, 10, 10), 'CIFAR100 NIC 79/10-5')
    """
    if name in BENCHMARKS:
        return BENCHMARKS[name]
    match = re.fullmatch(r"(\w+):(nic-)?(\d+)/(\d+)-(\d+)", name)
    if match is None or match[1] not in DATASETS:
        raise InvalidValue(
            f"No benchmark is called {name!r}; there are {', '.join(BENCHMARKS)}, "
            f"and {' and '.join(NOTATIONS)} with a dataset of {', '.join(DATASETS)}."
        )
    shape = (int(match[3]), int(match[4]), int(match[5]))
    if min(shape) < 1:
        raise InvalidValue(f"{name} must have at least 1 experience, 1 class first and 1 class in each other one.")
    return Benchmark(
        name,
        dataset=match[1],
        shape=shape,
        rest=_DEFAULTS[match[1]]["first"],
        lr_grid=(0.1, 0.03, 0.01),
        grids=OTHER_GRIDS,
        repetition=bool(match[2]),
        evaluation="all" if match[2] else "seen",  # as the paper evaluates NIC
        **_DEFAULTS[match[1]],
    )


def find_or_none(name: str) -> Benchmark | None:
    """A benchmark by its name, or None for a stream that is no benchmark."""
    try:
        return find(name)
    except InvalidValue:
        return None


def file_name(benchmark: str) -> str:
    """A benchmark's name without characters that folders cannot have.

    >>> file_name("cifar100:10/10-10")
    'cifar100-10-10-10'
    """
    return re.sub(r"[^\w.-]+", "-", benchmark)
