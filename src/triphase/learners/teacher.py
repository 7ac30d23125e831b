"""The teacher of distillation: the network as it was before an experience."""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from triphase.maths.bias import class_rows
from triphase.models import SplitClassifier

TEMPERATURE = 2.0


def copy_teacher(model: SplitClassifier) -> nn.Sequential:
    """A copy of csf and head as they are now, in evaluation mode."""
    return copy.deepcopy(nn.Sequential(model.csf, model.head)).eval()


def load_teacher(model: SplitClassifier, state: dict[str, Any]) -> nn.Sequential | None:
    """The teacher of a saved state, if it has one."""
    if "teacher" not in state:
        return None
    teacher = copy_teacher(model)
    teacher.load_state_dict(state["teacher"])
    return teacher


def distillation(
    teacher: Callable[[Tensor], Tensor], known: Collection[int], weight: float
) -> Callable[[Tensor, Tensor], Tensor]:
    """z, logits -> weighted KL divergence to the output of the teacher over the known classes."""

    def loss(z: Tensor, logits: Tensor) -> Tensor:
        rows = class_rows(known, logits)
        with torch.no_grad():
            old = teacher(z)[:, rows] / TEMPERATURE
        new = logits[:, rows] / TEMPERATURE
        kl = F.kl_div(new.log_softmax(1), old.log_softmax(1), log_target=True, reduction="batchmean")
        return weight * TEMPERATURE**2 * kl

    return loss
