"""The learners by name: how a benchmark makes each of them and what a sweep searches."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from types import MappingProxyType
from typing import Any, Literal

from triphase.bench.benchmarks import Grid
from triphase.context import Context
from triphase.data.memory import Memory
from triphase.errors import InvalidValue
from triphase.learners import (
    AR1,
    NCM,
    SLDA,
    TPC,
    Anchored,
    BiC,
    DepthSLDA,
    DERpp,
    FineTune,
    Joint,
    Learner,
    RanPAC,
)
from triphase.models import SplitClassifier

SET_BY_BENCHMARK = ("model", "memory", "seed", "pretrained", "context")  # arguments that are no options


@dataclass(frozen=True)
class LearnerSpec:
    """One learner: its class, and how a benchmark uses it."""

    make: Callable[..., Learner]
    memory: Literal["needed", "optional", "unused"]
    lr: Literal["searched", "if asked", "unused"] = "searched"  # if asked: by --grid lr only
    plain_first: bool = False  # E_1 is trained, if at all, by plain cross-entropy: one run of it serves them all
    stores_first: Mapping[str, Any] = field(default_factory=dict)  # options with which E_1 also fills the memory
    from_grid: tuple[str, ...] = ()  # options whose default is the middle of the benchmark's grid
    joint: bool = False  # sees the whole stream as one experience
    open_choices: Grid = field(default_factory=dict)  # options on which the learner's papers and code disagree


LEARNER_SPECS: dict[str, LearnerSpec] = {
    "tpc": LearnerSpec(TPC, "optional"),
    "ar1": LearnerSpec(AR1, "optional", plain_first=True, open_choices={"mean": ("global", "class")}),
    "bic": LearnerSpec(BiC, "needed", from_grid=("stage2_epochs",)),
    "derpp": LearnerSpec(DERpp, "needed", plain_first=True, stores_first={"logits": "online"}),
    "finetune": LearnerSpec(FineTune, "unused", plain_first=True),
    "replay": LearnerSpec(FineTune, "needed", plain_first=True),
    "joint": LearnerSpec(Joint, "unused", lr="if asked", joint=True),
    "ncm": LearnerSpec(NCM, "unused", lr="unused", plain_first=True),
    "slda": LearnerSpec(SLDA, "unused", lr="unused", plain_first=True),
    "slda_depths": LearnerSpec(DepthSLDA, "unused", lr="unused", plain_first=True),
    "ranpac": LearnerSpec(RanPAC, "unused", lr="unused", plain_first=True),
    "anchored": LearnerSpec(Anchored, "optional"),
}


def learner_spec(name: str) -> LearnerSpec:
    """The learner of that name.

    >>> learner_spec("replay").memory
    'needed'
    """
    if name not in LEARNER_SPECS:
        raise InvalidValue(f"No learner is called {name!r}; there are {', '.join(LEARNER_SPECS)}.")
    return LEARNER_SPECS[name]


def is_joint(name: str) -> bool:
    """Whether the learner of that name sees the whole stream as one experience; False for names not known here."""
    return name in LEARNER_SPECS and LEARNER_SPECS[name].joint


def trains(name: str, *, pretrained: bool) -> bool:
    """Whether a learner trains at all: closed forms take a pre-trained network as it is."""
    return learner_spec(name).lr != "unused" or not pretrained


def shares_first(name: str, own: Mapping[str, Any], *, pretrained: bool) -> bool:
    """Whether E_1 is trained by plain cross-entropy alone, so that one run of it serves several learners."""
    spec = learner_spec(name)
    stores = any(own.get(option) == value for option, value in spec.stores_first.items())
    return spec.plain_first and trains(name, pretrained=pretrained) and not stores


@cache
def learner_options(name: str) -> MappingProxyType[str, inspect.Parameter]:
    """The options that a learner has beside those of the benchmark.

    >>> list(learner_options("slda"))
    ['shrinkage', 'crops']
    """
    parameters = inspect.signature(learner_spec(name).make, eval_str=True).parameters
    return MappingProxyType({n: p for n, p in parameters.items() if n not in SET_BY_BENCHMARK})


def check_learner_options(name: str, own: Mapping[str, Any]) -> None:
    """Refuse options that the learner does not have, and words where it takes a number."""
    allowed = learner_options(name)
    unknown = [option for option in own if option not in allowed]
    if unknown:
        raise InvalidValue(
            f"The learner {name} has no option {', '.join(unknown)}; it has {', '.join(allowed) or 'none'}."
        )
    for option, value in own.items():
        wanted = allowed[option].annotation
        for number, words in ((int, "a whole number"), (float, "a finite number")):
            may_lack = wanted == number | None and value is None
            if wanted in (number, number | None) and not may_lack and not _is_number(value, number):
                raise InvalidValue(f"{option} of the learner {name} must be {words}, got {value!r}.")


def _is_number(value: object, number: type) -> bool:
    whole = isinstance(value, int) and not isinstance(value, bool)
    return whole or (number is float and isinstance(value, float) and math.isfinite(value))


def make_learner(
    name: str,
    model: SplitClassifier,
    memory: Memory | None,
    own: Mapping[str, Any],
    *,
    seed: int = 0,
    pretrained: bool = True,
    context: Context | None = None,
) -> Learner:
    """The learner of that name, with options of its own."""
    spec = learner_spec(name)
    check_learner_options(name, own)
    if spec.memory == "unused":
        memory = None
    elif spec.memory == "needed" and memory is None:
        raise InvalidValue(f"The learner {name} needs a memory; give --memory, or take finetune.")
    try:
        return spec.make(model, memory, seed=seed, pretrained=pretrained, context=context, **own)
    except TypeError as error:
        raise InvalidValue(f"The learner {name} refuses its options: {error}.") from error
