"""The options of a new model, and how they are parsed."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from triphase.app.store.state_schema import MAX_SEED, MIN_SEED
from triphase.errors import InvalidValue, Mismatch
from triphase.learners import NCM, SLDA, TPC, Anchored
from triphase.learners.protocol import Teachable

MAX_SIZE = 1024  # pixels: the side of an image
MAX_MEMORY = 10**15  # samples or bytes
AUTO = "auto"  # a backbone: the network that suits the first photos, see `triphase.app.network`
UNITS = {"": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9}


@dataclass(frozen=True)
class TeachableLearner:
    """A learner that models can be made with."""

    make: Callable[..., Teachable]
    feature_multiple: int = 0  # closed-form features kept of an exemplar, at most, in multiples of the network's D


LEARNERS: dict[str, TeachableLearner] = {
    "anchored": TeachableLearner(partial(Anchored, adapted="discriminant"), feature_multiple=2),
    "tpc": TeachableLearner(TPC),
    "slda": TeachableLearner(SLDA, feature_multiple=1),
    "ncm": TeachableLearner(NCM),
}


@dataclass(frozen=True)
class ModelOptions:
    """The options of a model; fixed from its first lesson on."""

    backbone: str = "efficientnet_lite0"
    image_size: int | None = None  # None: what suits the backbone and the first photos
    memory: int | str = "200MB"  # samples, or bytes as in "200MB"
    replay: Literal["raw", "latent", "none"] = "latent"
    learner: str = "anchored"
    seed: int = 0
    weights: str | None = None  # file that the network's weights were read from; None: those that come with it

    def __post_init__(self) -> None:
        if self.replay not in ("raw", "latent", "none"):
            raise InvalidValue(f"replay is 'raw', 'latent' or 'none', got {self.replay!r}.")
        if self.learner == "ranpac":
            raise InvalidValue("ranpac mixes all classes in one matrix, so none could be forgotten; take slda.")
        if self.learner not in LEARNERS:
            raise InvalidValue(f"No learner is called {self.learner!r} here; there are {', '.join(LEARNERS)}.")
        if not isinstance(self.backbone, str):
            raise InvalidValue(f"backbone is the name of a network, got {self.backbone!r}.")
        object.__setattr__(self, "seed", _integer("seed", self.seed))
        if self.image_size is not None:
            object.__setattr__(self, "image_size", _integer("image_size", self.image_size))
        if self.image_size is not None and not 1 <= self.image_size <= MAX_SIZE:
            raise InvalidValue(f"An image is 1 to {MAX_SIZE} pixels wide and high, not {self.image_size}.")
        if not MIN_SEED <= self.seed <= MAX_SEED:
            raise InvalidValue("seed must be at least -2**63 and less than 2**64: give a number with fewer digits.")
        if self.weights is not None:
            object.__setattr__(self, "weights", str(self.weights))
        parse_memory(self.memory)
        if not isinstance(self.memory, (int, str)):
            object.__setattr__(self, "memory", _integer("memory", self.memory))

    def check_agreement(self, image_size: int, given: dict[str, Any]) -> None:
        """Refuse options that differ from those that a model was made with; `image_size` is its own."""
        for name, value in given.items():
            if (name, value) in (("image_size", None), ("backbone", AUTO)):  # whatever suits
                continue
            was = image_size if name == "image_size" else getattr(self, name)
            same = value in (was, getattr(self, name)) or (name == "weights" and str(value) == was)
            if name == "memory":
                same = parse_memory(value) == parse_memory(was)
            if not same:
                raise Mismatch(
                    f"This model was made with {name.replace('_', '-')} {was}, not {value}: "
                    "leave the option out, or teach a new model."
                )


def _integer(name: str, value: Any) -> int:
    """An integer of any type, such as numpy's, as an int, which JSON can hold."""
    try:
        if not isinstance(value, bool):
            return operator.index(value)
    except TypeError:
        pass
    raise InvalidValue(f"{name} must be a whole number, got {value!r}.")


def parse_memory(memory: int | str) -> tuple[int, bool]:
    """The number, and whether it is one of bytes.

    >>> parse_memory(1500), parse_memory("200MB")
    ((1500, False), (200000000, True))
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMG]B|)\s*", str(memory), re.IGNORECASE)
    number = float(match[1]) * UNITS[match[2].upper()] if match else 0
    if number > MAX_MEMORY:
        raise InvalidValue(f"memory is at most {MAX_MEMORY:,} samples or bytes; give less.")
    if match is None or number < 1 or (not match[2] and number != int(number)):
        raise InvalidValue(f"memory is a number of samples, or of bytes as in '200MB', got {memory!r}.")
    return int(number), bool(match[2])
