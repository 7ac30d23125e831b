"""The learners by name: how each is made, what it needs, and what of it is searched."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
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

SET_BY_US = ("model", "memory", "seed", "pretrained", "context")  # arguments of learners that are not theirs to set


@dataclass(frozen=True)
class LearnerSpec:
    """One learner: its class, and how a benchmark deals with it."""

    make: Callable[..., Learner]
    memory: Literal["needed", "optional", "unused"]
    lr: Literal["searched", "if asked", "unused"] = "searched"  # if asked: by --grid lr only
    plain_first: bool = False  # trains E_1, if it trains it at all, with plain cross-entropy: learners share that
    open_choices: Grid = field(default_factory=dict)  # what the rival's own papers and code disagree on (SPEC 9.5)


LEARNERS: dict[str, LearnerSpec] = {
    "tpc": LearnerSpec(TPC, "optional"),
    "ar1": LearnerSpec(AR1, "optional", plain_first=True, open_choices={"mean": ("global", "class")}),
    "bic": LearnerSpec(BiC, "needed"),
    "derpp": LearnerSpec(DERpp, "needed", plain_first=True),
    "finetune": LearnerSpec(FineTune, "unused", plain_first=True),
    "replay": LearnerSpec(FineTune, "needed", plain_first=True),
    "joint": LearnerSpec(Joint, "unused", lr="if asked"),
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
    if name not in LEARNERS:
        raise InvalidValue(f"No learner is called {name!r}; there are {', '.join(LEARNERS)}.")
    return LEARNERS[name]


def shares_first(name: str, own: Mapping[str, Any], *, pretrained: bool) -> bool:
    """Whether E_1 is trained, and by plain cross-entropy alone, so that one run of it serves several learners."""
    kind = learner_spec(name)
    trained = kind.lr != "unused" or not pretrained  # closed forms take a pre-trained network as it is
    return kind.plain_first and trained and own.get("logits") != "online"  # online: something is stored meanwhile


@cache
def own_options(name: str) -> tuple[str, ...]:
    """The options that a learner has beside those of the benchmark.

    >>> own_options("slda")
    ('shrinkage',)
    """
    return tuple(
        option for option in inspect.signature(learner_spec(name).make).parameters if option not in SET_BY_US
    )


def check_options(name: str, own: Mapping[str, Any]) -> None:
    """Refuse options that the learner does not have, with a list of those it has, and what should be a number."""
    allowed = own_options(name)
    unknown = [option for option in own if option not in allowed]
    if unknown:
        raise InvalidValue(
            f"The learner {name} has no option {', '.join(unknown)}; it has {', '.join(allowed) or 'none'}."
        )
    kinds = inspect.signature(learner_spec(name).make, eval_str=True).parameters
    for option, value in own.items():
        wanted = kinds[option].annotation
        for kind, said in ((int, "a whole number"), (float, "a finite number")):
            may_lack = wanted == kind | None and value is None
            if wanted in (kind, kind | None) and not may_lack and not _is_number(value, kind):
                raise InvalidValue(f"{option} of the learner {name} must be {said}, got {value!r}.")


def _is_number(value: object, kind: type) -> bool:
    whole = isinstance(value, int) and not isinstance(value, bool)
    return whole or (kind is float and isinstance(value, float) and math.isfinite(value))


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
    kind = learner_spec(name)
    check_options(name, own)
    if kind.memory == "unused":
        memory = None
    elif kind.memory == "needed" and memory is None:
        raise InvalidValue(f"The learner {name} needs a memory; give --memory, or take finetune.")
    try:
        return kind.make(model, memory, seed=seed, pretrained=pretrained, context=context, **own)
    except TypeError as error:
        raise InvalidValue(f"The learner {name} refuses its options: {error}.") from error
