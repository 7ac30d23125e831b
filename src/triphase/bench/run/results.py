"""Report: accuracy matrix, time, memory and settings of one run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import Tensor

from triphase.bench import metrics


@dataclass
class Report:
    """The results of a run. Accuracies are in [0, 1]; None in a row marks a class that was not evaluated."""

    settings: dict[str, Any]
    names: list[str]
    evaluated_after: list[int] = field(default_factory=list)
    n_seen: list[int] = field(default_factory=list)
    accuracy: list[list[float | None]] = field(default_factory=list)  # evaluations x classes
    confusion: list[list[int]] = field(default_factory=list)  # after the last experience
    phase_seconds: dict[str, float] = field(default_factory=dict)  # training only, as the paper times it
    part_seconds: dict[str, float] = field(default_factory=dict)  # the same by part: data, llf, csf, head, other
    images: int = 0  # passed through training, replayed ones included
    memory_bytes: int = 0
    evaluation: str = "seen"
    versions: dict[str, str] = field(default_factory=dict)

    @property
    def matrix(self) -> Tensor:
        """(evaluations, classes), NaN where not evaluated."""
        rows = [[float("nan") if v is None else v for v in row] for row in self.accuracy]
        return torch.tensor(rows, dtype=torch.float64)

    @property
    def curve(self) -> list[float]:
        """Mean class accuracy at each evaluation."""
        return [metrics.mean_class_accuracy(row) for row in self.matrix]

    @property
    def amca(self) -> float:
        """Average mean class accuracy over the evaluations."""
        return metrics.amca(self.matrix)

    @property
    def final_accuracy(self) -> float:
        """Mean class accuracy after the last experience."""
        return self.curve[-1]

    @property
    def train_seconds(self) -> float:
        """Time spent learning, without evaluation and logging."""
        return sum(self.phase_seconds.values())

    @property
    def ceiling(self) -> float:
        """The AMCA of a perfect learner: below 1 where classes are tested before they were seen."""
        if self.evaluation == "seen":
            return 1.0
        return metrics.ceiling(self.n_seen, sum(value is not None for value in self.accuracy[0]))

    @property
    def profile(self) -> dict[str, Any]:
        """Images per second, and the share of each part in the time of training."""
        total = max(self.train_seconds, 1e-9)
        shares = {part: seconds / total for part, seconds in self.part_seconds.items()}
        return {"images_per_second": self.images / total, "shares": shares}

    def to_json(self) -> dict[str, Any]:
        """Everything measured, and the figures that follow from it."""
        derived = {name: getattr(self, name) for name in ("amca", "final_accuracy", "train_seconds", "ceiling")}
        return {**derived, **asdict(self)}

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> Report:
        """Read back what `to_json` gave."""
        return cls(**{name: document[name] for name in cls.__dataclass_fields__})


def flatten(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """The settings of a run with dotted names.

    >>> flatten({"rest": {"lr": 0.1}, "order": 0})
    {'rest.lr': 0.1, 'order': 0}
    """
    result: dict[str, Any] = {}
    for name, value in settings.items():
        result |= flatten(value, f"{prefix}{name}.") if isinstance(value, Mapping) else {prefix + name: value}
    return result
