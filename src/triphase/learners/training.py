"""Shared by learners that train by gradient.

`learn` is written as if it always ran from start to end. When it continues after a crash, the TrainingLoop skips
what was done: `begin` is False for finished sections, and `steps` starts where the saved state was taken.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any, Literal

import torch
from torch import Tensor
from torch.amp.grad_scaler import GradScaler

from triphase.context import Context
from triphase.data.memory import Memory
from triphase.data.recipe import Recipe
from triphase.errors import CorruptState, InvalidValue
from triphase.learners.protocol import Step
from triphase.learners.sgd import SGD
from triphase.maths import outside
from triphase.models import SplitClassifier
from triphase.models.split import BLOCKS, drop_row
from triphase.models.sync_batchnorm import synchronize

POSITION = ("section", "epochs_before", "epoch", "step")
SCHEDULE = ("lr_divisor", "best_ce", "epochs_since_best", "ce_sum")
PATIENCE, FACTOR, LR_MIN = 5, 3.0, 1e-4  # FACIL's scheme: divide by 3 after 5 epochs without a better loss


class TrainingLoop:
    """Position, momentum and schedule of the experience that is being learned."""

    section: str  # of `learn`; empty between experiences
    epochs_before: int  # in earlier sections
    epoch: int  # done of this section
    step: int  # done of this epoch
    lr_divisor: float
    best_ce: float  # lowest mean cross-entropy of an epoch
    epochs_since_best: int
    ce_sum: float  # of the steps of this epoch
    loss_scale: dict[str, Any]  # as loaded: how GradScaler scales the loss in float16

    def __init__(
        self,
        reset_momentum: Literal["phase", "experience", "never"] = "phase",
        *,
        context: Context | None = None,
    ) -> None:
        if reset_momentum not in ("phase", "experience", "never"):
            raise InvalidValue(f"reset_momentum is 'phase', 'experience' or 'never', got {reset_momentum!r}.")
        self.context = Context() if context is None else context
        self._reset_momentum = reset_momentum
        self._optimizer: SGD | None = None
        self._names: dict[int, str] = {}
        self._momentum: dict[str, Tensor] = {}  # of the last optimiser, or as loaded
        self._resume: str | None = None
        self._fresh = True  # no optimiser of this section has been built before
        self._left = 0  # steps of this section that are planned and not yet taken
        self._scaler: GradScaler | None = None
        self.loss_scale = {}
        self._rewind()

    def begin(self, section: str) -> bool:
        """Whether this section of `learn` is still to do; sections always come in the same order."""
        if self._resume is not None:
            if section != self._resume:
                return False
            self._resume = None
            return True
        self._check_all_taken()
        self.section, self.epochs_before = section, self.epochs_before + self.epoch
        self.epoch = self.step = 0
        self._fresh = True
        return True

    def optimizer(self, model: SplitClassifier, recipe: Recipe, *, fresh: bool = False) -> SGD:
        """SGD with momentum over the blocks that learn; the head does not decay.

        Momentum starts at zero in each phase unless `reset_momentum` says otherwise: a live buffer would go on
        moving weights whose gradient is masked. With `fresh` it starts at zero in any case.
        """
        synchronize(model, self.context.processes)
        self._momentum = self._buffers()
        groups, self._names = [], {}
        for block in BLOCKS:
            named = [(f"{block}.{n}", p) for n, p in getattr(model, block).named_parameters() if p.requires_grad]
            self._names |= {id(p): name for name, p in named}
            head = block == "head"
            lr = recipe.lr if head else recipe.csf_lr_or_lr
            decay = 0.0 if head else recipe.weight_decay
            if named:
                rates = {"lr": lr / self.lr_divisor, "initial_lr": lr, "weight_decay": decay}
                groups.append({"params": [p for _, p in named], **rates})
        self._optimizer = SGD(groups, recipe.momentum, self.context, self._loss_scaler(model))
        kept = {"phase": False, "experience": self.epochs_before > 0, "never": True}[self._reset_momentum]
        if not self._fresh or (kept and not fresh):  # not fresh: continued in the middle of this section
            self._restore_momentum()
        self._recipe = recipe
        return self._optimizer

    def steps(self, epochs: int, steps: int) -> list[tuple[int, int]]:
        """The remaining (epoch in the experience, step in the epoch) of this section.

        Call `step_done` after each of them; the list is known beforehand, so minibatches can be prefetched.
        """
        self._epochs, self._steps = epochs, steps
        done = self.epoch * steps + self.step
        if done > epochs * steps:
            raise CorruptState(f"The saved position is at step {done} of {epochs * steps}: start again without it.")
        self._left = epochs * steps - done
        if steps == 0:
            self.epoch = epochs
        return [(self.epochs_before + i // steps, i % steps) for i in range(done, epochs * steps)]

    def step_done(self, loss: Tensor, ce: Tensor | None = None, share: float = 1.0, **minibatch: Any) -> Step:
        """Count one optimiser step as done; the schedule watches the cross-entropy, of this `share`."""
        assert self._optimizer is not None
        position = self.section, self.epoch + 1, self._epochs, self.step + 1, self._steps
        step = Step(*position, loss.detach(), self._optimizer.param_groups[-1]["lr"], **minibatch)
        self.step, self._left = self.step + 1, self._left - 1
        if self._recipe.lr_schedule == "patience":
            watched = loss if ce is None else self.context.processes.mean(ce, share)
            self.ce_sum += float(watched.detach())
        if self.step == self._steps:
            self.step, self.epoch = 0, self.epoch + 1
            self._schedule()
        return step

    def finish(self) -> None:
        """The experience is learned."""
        if self._resume is not None:
            raise CorruptState(f"The saved position is in a section {self._resume!r} that is unknown: start again.")
        self._check_all_taken()
        self._momentum = self._buffers() if self._reset_momentum == "never" else {}
        self._optimizer = None
        self._rewind()

    def state_dict(self) -> dict[str, Any]:
        """Position and schedule; `momentum_state` is separate, because it is large."""
        state = {name: getattr(self, name) for name in POSITION + SCHEDULE}
        return state if self._scaler is None else state | {"loss_scale": self._scaler.state_dict()}

    def momentum_state(self) -> dict[str, Tensor]:
        """The momentum buffers by parameter name."""
        return self._buffers()

    def drop_class(self, label: int) -> None:
        """Take the row of a class out of the head's momentum, where it outlives an experience."""
        for name in ("head.weight", "head.bias"):
            if name in self._momentum and label < len(self._momentum[name]):
                self._momentum[name] = drop_row(self._momentum[name], label)

    def load_state_dict(self, state: dict[str, Any], momentum: dict[str, Tensor]) -> None:
        """Continue from a saved position."""
        for name, value in state.items():
            setattr(self, name, value)
        self._resume, self._scaler = self.section or None, None
        self._momentum, self._optimizer, self._fresh, self._left = dict(momentum), None, False, 0

    def _loss_scaler(self, model: SplitClassifier) -> GradScaler | None:
        if model.precision == "float16" and self._scaler is None:
            self._scaler = GradScaler(model.device.type)
            if self.loss_scale:
                self._scaler.load_state_dict(self.loss_scale)
        return self._scaler if model.precision == "float16" else None

    def _rewind(self) -> None:
        self.section, self.epochs_before, self.epoch, self.step = "", 0, 0, 0
        self.lr_divisor, self.best_ce, self.epochs_since_best, self.ce_sum = 1.0, float("inf"), 0, 0.0

    def _check_all_taken(self) -> None:
        assert self._left == 0, f"{self._left} steps of section {self.section} left: call step_done after each step"

    def _schedule(self) -> None:
        """At the end of an epoch: after PATIENCE epochs without a better cross-entropy, divide the rate."""
        if self._optimizer is None or self._recipe.lr_schedule != "patience":
            return
        mean, self.ce_sum = self.ce_sum / self._steps, 0.0
        self.epochs_since_best = 0 if mean < self.best_ce else self.epochs_since_best + 1
        self.best_ce = min(self.best_ce, mean)
        if self.epochs_since_best >= PATIENCE and self._recipe.lr / (self.lr_divisor * FACTOR) >= LR_MIN:
            self.lr_divisor, self.epochs_since_best = self.lr_divisor * FACTOR, 0
            for group in self._optimizer.param_groups:
                group["lr"] = group["initial_lr"] / self.lr_divisor

    def _buffers(self) -> dict[str, Tensor]:
        earlier = self._momentum if self._optimizer is None or self._reset_momentum == "never" else {}
        current = {} if self._optimizer is None else self._optimizer.buffers
        return earlier | {self._names[id(p)]: buffer for p, buffer in current.items()}

    def _restore_momentum(self) -> None:
        assert self._optimizer is not None
        for group in self._optimizer.param_groups:
            for p in group["params"]:
                buffer = self._momentum.get(self._names[id(p)])
                if buffer is None:
                    continue
                grown = torch.zeros_like(p)  # a head that grew since has new rows without momentum
                grown[tuple(slice(n) for n in buffer.shape)] = buffer.to(p.device)
                self._optimizer.buffers[p] = grown


def sgd_step(optimizer: SGD | torch.optim.Optimizer, loss: Tensor, share: float | None = None) -> Tensor:
    """Apply the gradient of the loss, the only place where one is applied; returns the loss.

    Where several processes share a minibatch, `loss` is of this one's `share` of it, and what is returned of all.
    """
    optimizer.zero_grad()
    if isinstance(optimizer, SGD):
        with optimizer.context.stopwatch.time_backward(csf_learns=len(optimizer.param_groups) > 1):
            return optimizer.descend(loss, share)
    loss.backward()
    optimizer.step()
    return loss


def predict(model: SplitClassifier, z: Tensor, seen: Collection[int]) -> Tensor:
    """Logits in evaluation mode, on the host; -inf for classes outside `seen`."""
    with eval_mode(model), torch.no_grad():
        logits = model.tail(z.to(model.device).float())
    return mask_unseen(logits.cpu(), seen)


def mask_unseen(logits: Tensor, seen: Collection[int]) -> Tensor:
    """The logits, with -inf for classes outside `seen`."""
    return logits.masked_fill(outside(frozenset(seen), logits), float("-inf"))


@contextmanager
def eval_mode(model: SplitClassifier) -> Iterator[None]:
    """Evaluation mode within the `with`; the previous mode after it."""
    training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(training)


@torch.no_grad()
def zero_unknown_rows_(model: SplitClassifier, known: Collection[int]) -> None:
    """Theta_c_j = 0 for each class j that is not known (Algorithm 1, at the start of each experience)."""
    model.head.weight[outside(frozenset(known), model.head.weight.T)[0]] = 0


def set_trainable(model: SplitClassifier, *, llf: bool, csf: bool) -> None:
    """Unfreeze the blocks below the head that learn, and freeze the others."""
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
    """Load saved parameters and buffers; the head grows to the saved number of classes."""
    model.grow(len(state["head"]["weight"]))
    for block in BLOCKS:
        try:
            getattr(model, block).load_state_dict(state[block])
        except RuntimeError as error:
            raise CorruptState(f"The saved {block} does not fit this network: {error}") from error


def drop_label(known: set[int], label: int) -> set[int]:
    """The known classes without one of them; later labels move down by one.

    >>> drop_label({0, 1, 2}, 1)
    {0, 1}
    """
    return {c - (c > label) for c in known if c != label}


def learner_state(
    settings: dict[str, Any], model: SplitClassifier, memory: Memory | None, known: set[int], loop: TrainingLoop
) -> dict[str, Any]:
    """What every gradient learner must keep; one entry per part that can change alone."""
    state = {"settings": settings, "known": sorted(known), "loop": loop.state_dict()}
    state |= {**blocks_state(model), "momentum": loop.momentum_state()}
    return state if memory is None else state | {"memory": memory.state_dict()}


def load_learner_state(
    state: dict[str, Any], model: SplitClassifier, memory: Memory | None, loop: TrainingLoop
) -> set[int]:
    """Load a saved state; returns the known classes."""
    load_blocks(model, state)
    loop.load_state_dict(state["loop"], state["momentum"])
    if memory is not None:
        memory.load_state_dict(state["memory"])
    return set(state["known"])
