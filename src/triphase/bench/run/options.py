"""RunOptions: what a user may change about a benchmark. Flags, sweeps and reports derive from its fields."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from triphase.bench.learners import LEARNER_SPECS, check_learner_options
from triphase.bench.ranges import parse_ranges
from triphase.data.partial_labels import check_share
from triphase.errors import InvalidValue
from triphase.models.split import Precision


@dataclass(frozen=True)
class OptionInfo:
    """What the command line, sweeps and reports need to know about one option."""

    help: str
    flag: str = ""  # on the command line; empty: the field's name
    minimum: int | None = None
    choices: tuple[str, ...] = ()
    sweep: Literal["fixed", "searched", "per job"] = "fixed"  # per job: set by the sweep, no flag of its own there
    affects_first: bool = True  # False: E_1 is the same whatever the value
    recorded_as: tuple[str, ...] = ()  # dotted names in the settings of a run
    compared: Literal["freely", "equal", "equal with memory", "averaged"] = "freely"  # between runs of a report
    caveat: str = ""  # what a report says about a value other than the default


def _option(default: Any, help: str, **info: Any) -> Any:
    """A field of RunOptions."""
    return field(default=default, metadata={"info": OptionInfo(help, **info)})


@dataclass(frozen=True)
class RunOptions:
    """What a user may change about a benchmark; None keeps the benchmark's own value."""

    learner: str = _option(
        "tpc", f"One of {', '.join(LEARNER_SPECS)}.", sweep="per job", recorded_as=("learner",), affects_first=False
    )
    order: int = _option(
        0,
        "Class order; 0 is for tuning, 1 to 3 for results.",
        minimum=0,
        sweep="per job",
        recorded_as=("order",),
        compared="averaged",
    )
    seed: int = _option(
        0,
        "Random seed; the class order does not depend on it.",
        recorded_as=("seed", "memory.seed"),
        compared="averaged",
    )
    epochs: int | None = _option(
        None,
        "Epochs of every experience.",
        minimum=1,
        recorded_as=("first.epochs", "rest.epochs"),
        compared="equal",
    )
    epochs_scale: float = _option(
        1.0,
        "Scale of the epochs: 0.1 is a tenth, but 3 at least.",
        recorded_as=("epochs_scale",),
        compared="equal",
        caveat="schedule × {:g}",
    )
    lr: float | None = _option(None, "Learning rate of the head.", sweep="searched", recorded_as=("rest.lr",))
    csf_lr: float | None = _option(None, "Learning rate of csf, if it differs.", recorded_as=("rest.csf_lr",))
    weight_decay: float | None = _option(
        None, "Weight decay below the head.", recorded_as=("rest.weight_decay",), compared="equal"
    )
    memory: int | None = _option(
        None,
        "Samples in the replay memory.",
        affects_first=False,
        recorded_as=("memory.capacity",),
        compared="equal with memory",
    )
    replay: str = _option(
        "raw",
        "What the memory holds: raw, latent or none.",
        choices=("raw", "latent", "none"),
        affects_first=False,
        recorded_as=("memory.store",),
        compared="equal with memory",
    )
    latent_dtype: Literal["float32", "float16"] = _option(
        "float32", "Precision of latents in the memory.", affects_first=False, recorded_as=("memory.dtype",)
    )
    n_mbe: int | None = _option(
        None,
        "Images of the experience in a minibatch.",
        affects_first=False,
        recorded_as=("rest.n_mbe",),
        compared="equal with memory",
    )
    n_mbr: int | None = _option(
        None,
        "Images of the memory in a minibatch.",
        affects_first=False,
        recorded_as=("rest.n_mbr",),
        compared="equal with memory",
    )
    augment: str | None = _option(
        None, "Augmentation: none, flip, crop+flip or rrc+flip.", recorded_as=("rest.augment",), compared="equal"
    )
    trainable: Literal["csf", "all"] = _option(
        "csf", "What learners other than TPC train.", recorded_as=("rest.trainable",)
    )
    latents: Literal["float32", "float16", "off"] = _option(
        "float32", "How latents of a frozen llf are stored.", recorded_as=("rest.latents",)
    )
    views: int = _option(
        0, "Random crops kept per image; 0 draws new ones each time.", minimum=0, recorded_as=("rest.views",)
    )
    backbone: str | None = _option(
        None, "Network instead of the benchmark's own.", recorded_as=("backbone",), compared="equal"
    )
    image_size: int | None = _option(
        None, "Side of the images in pixels.", minimum=1, recorded_as=("image_size",), compared="equal"
    )
    weights: Path | None = _option(None, "File of pre-trained weights.", recorded_as=("weights",), compared="equal")
    norm: Literal["bn", "brn"] = _option(
        "bn", "Batch normalisation or renormalisation.", recorded_as=("norm",), compared="equal"
    )
    head: str = _option(
        "fixed",
        "Head: fixed (all classes from the start) or incremental.",
        choices=("fixed", "incremental"),
        recorded_as=("head",),
        compared="equal",
    )
    precision: Precision = _option(
        "float32",
        "Precision of activations; on the CPU, not of a frozen llf.",
        recorded_as=("precision",),
        compared="equal",
    )
    compiled: bool = _option(False, "Compile csf with torch.compile.", flag="--compile", recorded_as=("compiled",))
    engine: Literal["torch", "onnx"] = _option(
        "torch", "Engine of the frozen blocks: PyTorch or ONNX Runtime.", recorded_as=("engine",), compared="equal"
    )
    per_class: int | None = _option(
        None,
        "Training images per class.",
        minimum=1,
        recorded_as=("per_class",),
        compared="equal",
        caveat="{} training images a class",
    )
    labelled: float | None = _option(
        None,
        "Share of the training images that have a label.",
        recorded_as=("labelled",),
        compared="equal",
        caveat="labels for {:.0%} of the training images",
    )
    classes: str | None = _option(
        None,
        "Classes to use, by label: 50-99 or 0,3,7.",
        recorded_as=("classes",),
        compared="equal",
        caveat="classes {} alone",
    )
    evaluate_every: int | None = _option(None, "Evaluate after every N-th experience only.", minimum=1)
    skip_bad: bool = _option(False, "Skip photos that cannot be read.")
    experiences: int | None = _option(
        None,
        "Learn only the first N experiences.",
        minimum=1,
        sweep="per job",
        recorded_as=("experiences",),
        caveat="the first {} experiences alone",
    )
    first_from: Path | None = _option(
        None,
        "Run (finetune, --experiences 1) to take the first experience from.",
        sweep="per job",
        recorded_as=("first_from",),
    )
    learner_options: tuple[tuple[str, Any], ...] = _option(
        (),
        "Option of the learner as NAME=VALUE, such as t=0.3.",
        flag="--set",
        sweep="per job",
        affects_first=False,
    )

    def __post_init__(self) -> None:
        check_learner_options(self.learner, self.own)
        if not 0 < self.epochs_scale < math.inf:
            raise InvalidValue(f"--epochs-scale must be above 0 and finite, got {self.epochs_scale}.")
        if self.epochs is not None and self.epochs_scale != 1:
            raise InvalidValue("--epochs and --epochs-scale contradict each other: give one of them.")
        if self.labelled is not None:
            check_share(self.labelled)
        if self.classes is not None:
            parse_ranges("--classes", self.classes)
        for name, info in option_infos().items():
            _check(flag(name), getattr(self, name), info)

    @property
    def own(self) -> dict[str, Any]:
        """The learner's own options by name."""
        return dict(self.learner_options)

    def arguments(self) -> list[str]:
        """The options as words of the command line of `triphase bench run`.

        >>> RunOptions(order=1, lr=0.1, learner_options=(("t", 0.3), ("masking", "none"))).arguments()
        ['--order', '1', '--lr', '0.1', '--set', 't=0.3', '--set', 'masking=none']
        """
        words: list[str] = []
        for f in fields(self):
            value = getattr(self, f.name)
            if f.name == "learner_options":
                for name, own in value:
                    words += [flag(f.name), f"{name}={own if isinstance(own, str) else json.dumps(own)}"]
            elif value != f.default:
                words += [flag(f.name)] if value is True else [flag(f.name), str(value)]
        return words


@cache
def option_infos() -> MappingProxyType[str, OptionInfo]:
    """What is known about each option, by name."""
    return MappingProxyType({f.name: f.metadata["info"] for f in fields(RunOptions)})


def flag(name: str) -> str:
    """How an option is called on the command line.

    >>> flag("per_class"), flag("compiled")
    ('--per-class', '--compile')
    """
    return option_infos()[name].flag or f"--{name.replace('_', '-')}"


def default(name: str) -> Any:
    """The default value of an option."""
    return RunOptions.__dataclass_fields__[name].default


def recorded(*compared: str) -> list[str]:
    """The settings of a run, by dotted name, that hold the options which reports compare in one of these ways."""
    infos = option_infos().values()
    return [name for info in infos if not compared or info.compared in compared for name in info.recorded_as]


def upgraded(settings: Mapping[str, Any]) -> dict[str, Any]:
    """What an earlier version recorded, as this one records it: --bfloat16 became --precision.

    >>> upgraded({"bfloat16": False, "order": 0}), upgraded({"bfloat16": "True"})
    ({'order': 0, 'precision': 'float32'}, {'precision': 'bfloat16'})
    """
    if "bfloat16" not in settings:
        return dict(settings)
    kept = {name: value for name, value in settings.items() if name != "bfloat16"}
    return kept | {"precision": "bfloat16" if str(settings["bfloat16"]) == "True" else "float32"}


def _check(flag: str, value: Any, info: OptionInfo) -> None:
    if info.minimum is not None and value is not None and value < info.minimum:
        rule = "must not be negative" if info.minimum == 0 else f"must be at least {info.minimum}"
        raise InvalidValue(f"{flag} {rule}, got {value}.")
    if info.choices and value not in info.choices:
        raise InvalidValue(f"{flag} is one of {', '.join(info.choices)}, got {value!r}.")
