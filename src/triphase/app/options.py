"""How a model is made: what people may choose, and what they may write for it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from triphase.errors import InvalidValue
from triphase.learners import NCM, SLDA, TPC, Anchored

LEARNERS: dict[str, type[Anchored] | type[TPC] | type[SLDA] | type[NCM]] = {
    "anchored": Anchored,
    "tpc": TPC,
    "slda": SLDA,
    "ncm": NCM,
}
SEPARATE = "ranpac"  # known, but its statistics mix all classes: none could be taken out again
LARGEST = 1024  # pixels: the side of an image
MOST = 10**15  # samples or bytes
UNITS = {"": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9}


@dataclass(frozen=True)
class Options:
    """How a model is made; fixed from its first lesson on."""

    backbone: str = "efficientnet_lite0"
    image_size: int | None = None  # None: 128, or what the backbone takes
    memory: int | str = "200MB"  # samples, or bytes as in "200MB"
    replay: Literal["raw", "latent", "none"] = "latent"
    learner: str = "anchored"
    seed: int = 0

    def __post_init__(self) -> None:
        if self.replay not in ("raw", "latent", "none"):
            raise InvalidValue(f"replay is 'raw', 'latent' or 'none', got {self.replay!r}.")
        if self.learner == SEPARATE:
            raise InvalidValue(
                f"{SEPARATE} mixes all classes in one matrix, so none could be forgotten; take slda."
            )
        if self.learner not in LEARNERS:
            raise InvalidValue(f"No learner is called {self.learner!r} here; there are {', '.join(LEARNERS)}.")
        if self.image_size is not None and not 1 <= self.image_size <= LARGEST:
            raise InvalidValue(f"An image is 1 to {LARGEST} pixels wide and high, not {self.image_size}.")
        parse_memory(self.memory)


def parse_memory(memory: int | str) -> tuple[int, bool]:
    """The number, and whether it is one of bytes.

    >>> parse_memory(1500), parse_memory("200MB")
    ((1500, False), (200000000, True))
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMG]B|)\s*", str(memory), re.IGNORECASE)
    number = float(match[1]) * UNITS[match[2].upper()] if match else 0
    if number > MOST:
        raise InvalidValue(f"memory is at most {MOST:,} samples or bytes; give less.")
    if match is None or number < 1 or (not match[2] and number != int(number)):
        raise InvalidValue(f"memory is a number of samples, or of bytes as in '200MB', got {memory!r}.")
    return int(number), bool(match[2])
