"""Move a learner to another device: its state does not depend on one."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn

from triphase.device import choose
from triphase.learners.protocol import Learner


def move(learner: Learner, device: str | torch.device) -> None:
    """Move a learner with its state to this device."""
    learner.context.device = chosen = choose(device)
    state = learner.state_dict()
    for network in _networks(learner):
        network.to(chosen)
    learner.load_state_dict(state)


def _networks(learner: object) -> Iterator[nn.Module]:
    """The networks of a learner and of the learners that it is made of."""
    for part in vars(learner).values():
        if isinstance(part, nn.Module):
            yield part
        elif hasattr(part, "learn"):
            yield from _networks(part)
