"""The network as it was before an experience: what distillation compares with."""

from __future__ import annotations

import copy
from typing import Any

from torch import nn

from triphase.models import SplitClassifier


def copy_teacher(model: SplitClassifier) -> nn.Sequential:
    """csf and head as they are now, in evaluation mode: what distillation compares with."""
    return copy.deepcopy(nn.Sequential(model.csf, model.head)).eval()


def load_teacher(model: SplitClassifier, state: dict[str, Any]) -> nn.Sequential | None:
    """The teacher of a saved state, if it has one."""
    if "teacher" not in state:
        return None
    teacher = copy_teacher(model)
    teacher.load_state_dict(state["teacher"])
    return teacher
