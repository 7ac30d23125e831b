"""What a learner is, and the few plain functions that learners share."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import torch
from torch import Tensor

from triphase.context import Context
from triphase.data.memory import Memory
from triphase.data.recipe import Recipe
from triphase.data.streams import Experience
from triphase.errors import CorruptState, InvalidValue
from triphase.learners.sgd import SGD
from triphase.maths import outside
from triphase.models import SplitClassifier
from triphase.models.split import BLOCKS


@dataclass(frozen=True)
class Step:
    """One optimiser step, as told to `tick`."""

    phase: str
    epoch: int  # from 1, within the phase
    epochs: int
    step: int  # from 1, within the epoch
    steps: int
    loss: Tensor  # a scalar; read it only if it is shown, for reading waits for the device
    lr: float


Tick = Callable[[Step], None]


class Learner(Protocol):
    """Learns one experience at a time. Implement it in one file."""

    model: SplitClassifier
    context: Context

    def learn(self, experience: Experience, recipe: Recipe, tick: Tick = ...) -> None:
        """Learn an experience; called again after `load_state_dict`, continue where the state was taken."""

    def logits(self, z: Tensor) -> Tensor:
        """Scores (n, n_classes) of latents z, for evaluation; -inf for classes never seen."""

    def state_dict(self) -> dict[str, Any]:
        """Tensors and primitives from which `learn` continues bit for bit; valid at every tick."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over a saved state."""


def ignore(step: Step) -> None:
    """A tick that does nothing."""


def sgd_step(optimizer: SGD | torch.optim.Optimizer, loss: Tensor) -> None:
    """Apply the gradient of the loss: the only place where one is applied."""
    csf_learns = len(optimizer.param_groups) > 1
    with optimizer.stopwatch.time_backward(csf_learns) if isinstance(optimizer, SGD) else nullcontext():
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def predict(model: SplitClassifier, z: Tensor, seen: Collection[int]) -> Tensor:
    """Logits in evaluation mode, -inf for classes outside `seen`."""
    with evaluating(model), torch.no_grad():
        logits = model.tail(z.to(model.device).float())
    return only(seen, logits)


def only(seen: Collection[int], logits: Tensor) -> Tensor:
    """-inf for classes outside `seen`."""
    return logits.masked_fill(outside(frozenset(seen), logits), float("-inf"))


@contextmanager
def evaluating(model: SplitClassifier) -> Iterator[None]:
    """Evaluation mode for a while."""
    training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(training)


@torch.no_grad()
def zero_rows_(model: SplitClassifier, known: Collection[int]) -> None:
    """Theta_c_j = 0 for each class j that is not known (Algorithm 1, at the start of each experience)."""
    model.head.weight[outside(frozenset(known), model.head.weight.T)[0]] = 0


def check_memory(memory: Memory | None, recipe: Recipe, n_classes: int) -> None:
    """Refuse, before anything is learned, a memory that is too small or whose latents would grow stale."""
    if memory is None:
        return
    memory.check_room(n_classes)
    if memory.store == "latent" and recipe.trainable == "all":
        raise InvalidValue("Stored latents belong to one llf: train csf only, or store raw images.")


def learn_blocks(model: SplitClassifier, *, llf: bool, csf: bool) -> None:
    """Say which blocks below the head learn; the others are frozen."""
    blocks: tuple[tuple[Literal["llf", "csf"], bool], ...] = (("llf", llf), ("csf", csf))
    for block, learns in blocks:
        if learns:
            model.unfreeze(block)
        else:
            model.freeze(block)


def blocks_state(model: SplitClassifier) -> dict[str, Any]:
    """Parameters and buffers, one entry per block."""
    return {block: dict(getattr(model, block).state_dict()) for block in BLOCKS}


def load_blocks(model: SplitClassifier, state: dict[str, Any]) -> None:
    """Take over saved parameters and buffers; the head grows to the saved number of classes."""
    model.grow(len(state["head"]["weight"]))
    for block in BLOCKS:
        try:
            getattr(model, block).load_state_dict(state[block])
        except RuntimeError as error:
            raise CorruptState(f"The saved {block} does not fit this network: {error}") from error
