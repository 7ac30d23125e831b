"""AR1 free: consolidated head weights (CWR*) beside replay, without the SI term.

Lomonaco, Maltoni and Pellegrini, "Rehearsal-Free Continual Learning over Small Non-I.I.D. Batches" (CWR*, AR1*);
Pellegrini et al., "Latent Replay for Real-Time Continual Learning" (AR1 free with replay). The choices
that they leave open are listed in docs/deviations.md.
"""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from triphase.context import Context
from triphase.data.batches import Batches, Depth
from triphase.data.memory import Memory
from triphase.data.recipe import Recipe
from triphase.data.streams import Experience
from triphase.learners.checks import check_choices, check_memory, refuse_head_bias
from triphase.learners.protocol import Tick, ignore
from triphase.learners.training import (
    TrainingLoop,
    learner_state,
    load_learner_state,
    predict,
    set_trainable,
    sgd_step,
    zero_unknown_rows_,
)
from triphase.maths.bias import class_rows
from triphase.models import SplitClassifier, placed
from triphase.models.batchrenorm import BatchRenorm2d
from triphase.models.split import pad_rows

SLOW_RATE = 5e-5  # update rate of batch renormalisation after the first experience


class AR1:
    """Trains temporary head rows for the classes that are trained, then averages them into consolidated ones.

    A consolidated row counts w_past = sqrt(n_past / n_cur) against the new one, so that rows which rest on much
    data move little. Without a memory only the head learns after the first experience.
    """

    def __init__(
        self,
        model: SplitClassifier,
        memory: Memory | None,
        *,
        seed: int = 0,
        pretrained: bool = True,  # False: llf learns in the first experience
        mean: Literal["global", "class"] = "global",  # subtracted from trained rows: one for all, or each its own
        context: Context | None = None,
    ) -> None:
        refuse_head_bias(model, "AR1")
        self.context = Context() if context is None else context
        self.model, self.memory = placed(model, self.context), memory
        self.seed, self.pretrained, self.mean = seed, pretrained, mean
        self.settings = {"learner": "ar1", "seed": seed, "pretrained": pretrained, "mean": mean}
        check_choices(AR1, self.settings)
        self.known: set[int] = set()
        self.loop = TrainingLoop(context=self.context)
        self.cw = torch.zeros_like(model.head.weight.detach())  # consolidated rows
        self.n_past = torch.zeros(model.n_classes, dtype=torch.long)  # samples that each of them rests on

    def learn(self, experience: Experience, recipe: Recipe, tick: Tick = ignore) -> None:
        """Train on the experience and the memory, then consolidate the rows of the classes that were there."""
        model, memory, loop = self.model, self.memory, self.loop
        first = not self.known
        seen = self.known | set(experience.classes)
        csf_learns = first or memory is not None  # without replay, a free csf would forget
        llf_learns = recipe.trainable == "all" or (first and not self.pretrained)
        depth: Depth = "llf" if csf_learns else "csf"
        n_cur = self._count(experience, max(max(seen) + 1, model.n_classes))  # replayed samples count as well
        current = {int(c) for c in n_cur.nonzero()}

        if loop.begin("start"):
            check_memory(memory, recipe, len(seen))
            model.grow(max(seen) + 1)
            self._grow()
            if not first:
                with torch.no_grad():
                    model.head.weight.copy_(self.cw)
            zero_unknown_rows_(model, current)  # a temporary head: only what is present now
        if not first:
            _slow_statistics(model.csf)
        model.train()
        set_trainable(model, llf=llf_learns and csf_learns, csf=csf_learns)
        batches = Batches(model, experience, memory, recipe, seed=self.seed, context=self.context)

        if loop.begin("train"):
            optimizer = loop.optimizer(model, recipe)
            for mb in batches.mixed(loop.steps(recipe.epochs, batches.n_mixed), depth):
                logits = model.head(mb.z) if depth == "csf" else model.tail(mb.z)
                loss = sgd_step(optimizer, F.cross_entropy(logits, mb.y), mb.share)
                tick(loop.step_done(loss))

        set_trainable(model, llf=False, csf=csf_learns)
        self._consolidate(sorted(current), n_cur)
        if memory is not None:
            batches.update_memory()
        self.known = seen
        loop.finish()

    def logits(self, z: Tensor) -> Tensor:
        """Scores over the classes seen so far."""
        return predict(self.model, z, self.known)

    def state_dict(self) -> dict[str, Any]:
        """Everything from which `learn` continues."""
        state = learner_state(self.settings, self.model, self.memory, self.known, self.loop)
        return state | {"cwr": {"cw": self.cw, "n_past": self.n_past}}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a saved state."""
        self.known = load_learner_state(state, self.model, self.memory, self.loop)
        self.cw, self.n_past = state["cwr"]["cw"].to(self.model.device), state["cwr"]["n_past"]

    @torch.no_grad()
    def _consolidate(self, current: list[int], n_cur: Tensor) -> None:
        """cw = (cw w_past + w - mean) / (w_past + 1) with w_past = sqrt(n_past / n_cur); a new class has none."""
        rows = class_rows(current, self.cw)
        w = self.model.head.weight[rows]
        w = w - (w.mean() if self.mean == "global" else w.mean(dim=1, keepdim=True))
        w_past = (self.n_past[current] / n_cur[current]).sqrt().to(w).unsqueeze(1)
        self.cw, self.n_past = self.cw.clone(), self.n_past + n_cur
        self.cw[rows] = (self.cw[rows] * w_past + w) / (w_past + 1)
        self.model.head.weight.copy_(self.cw)

    def _count(self, experience: Experience, n_classes: int) -> Tensor:
        y = experience.training.labels
        if self.memory is not None:
            y = torch.cat([y, self.memory["y"][self.memory.slots()]])
        return torch.bincount(y, minlength=n_classes)

    def _grow(self) -> None:
        """Rows for the classes that the head has grown by."""
        n = self.model.n_classes
        self.cw, self.n_past = pad_rows(self.cw, n), pad_rows(self.n_past, n)


def _slow_statistics(csf: nn.Module) -> None:
    """Let the running statistics of batch renormalisation, where there is any, hardly move."""
    for layer in csf.modules():
        if isinstance(layer, BatchRenorm2d):
            layer.momentum.fill_(SLOW_RATE)
