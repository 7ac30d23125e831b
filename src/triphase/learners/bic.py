"""BiC: bias correction by two scalars, fitted on held-out samples after each experience.

Wu et al., "Large Scale Incremental Learning", as their published code does it: the pair of scalars is discarded
when the next one is fitted; until then the old model is distilled with it. What differs here (the common memory,
classes that come back) is listed in docs/deviations.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from triphase.context import Context
from triphase.data.batches import Batches, Minibatch
from triphase.data.memory import HELD_OUT, Memory
from triphase.data.recipe import Recipe
from triphase.data.streams import Experience
from triphase.errors import InvalidValue
from triphase.learners.checks import check_choices, check_memory, refuse_in_several_processes
from triphase.learners.protocol import Step, Tick, ignore
from triphase.learners.teacher import copy_teacher, load_teacher
from triphase.learners.training import (
    TrainingLoop,
    eval_mode,
    learner_state,
    load_learner_state,
    predict,
    set_trainable,
    sgd_step,
)
from triphase.maths.bias import class_rows
from triphase.models import SplitClassifier, placed
from triphase.randomness import generator, keys

T = 2.0  # temperature of the distillation
IDENTITY = torch.tensor([1.0, 0.0])  # alpha and beta that correct nothing
MILESTONES = (0.3, 0.6, 0.8, 0.9)  # of stage 2, where its learning rate is divided by 10
BETA_DECAY = 0.1  # weight of beta^2 / 2 in the loss of stage 2


class BiC:
    """Stage 1 learns with distillation; stage 2 fits alpha z + beta for the logits of the current classes.

    A tenth of what the memory may hold of a class is validation: never trained on, inside the budget. A head with
    bias is trained like its weights.
    """

    def __init__(
        self,
        model: SplitClassifier,
        memory: Memory | None,
        *,
        seed: int = 0,
        pretrained: bool = True,  # False: llf learns in the first experience
        stage2_epochs: int = 100,  # over logits that are computed once, so they cost next to nothing
        distill_axis: Literal["classes", "batch"] = "classes",  # batch: a known mistake, for diagnosis only
        context: Context | None = None,
    ) -> None:
        if memory is None or memory.capacity is None:
            raise InvalidValue("BiC distils and validates on replayed samples: give it a memory.")
        if stage2_epochs < 1:
            raise InvalidValue(f"stage2_epochs must be at least 1, got {stage2_epochs}.")
        self.context = Context() if context is None else context
        self.model, self.memory, self.seed, self.pretrained = placed(model, self.context), memory, seed, pretrained
        self.stage2_epochs, self.distill_axis = stage2_epochs, distill_axis
        self.settings = {"learner": "bic", "seed": seed, "pretrained": pretrained}
        self.settings |= {"stage2_epochs": stage2_epochs, "distill_axis": distill_axis}
        check_choices(BiC, self.settings)
        refuse_in_several_processes(self.context, self.settings, distill_axis="batch")
        self.known: set[int] = set()
        self.loop = TrainingLoop(context=self.context)
        self.pair = IDENTITY  # alpha and beta ...
        self.corrected: set[int] = set()  # ... and the classes they are for: those of the last experience
        self.teacher: nn.Sequential | None = None  # csf and head before the experience; llf is shared

    def learn(self, experience: Experience, recipe: Recipe, tick: Tick = ignore) -> None:
        """Stage 1 on the experience and the memory, then stage 2 on validation samples of all classes."""
        model, memory, loop = self.model, self.memory, self.loop
        experience = Experience(experience.index, experience.training)  # validation is chosen among these
        first = not self.known
        new = set(experience.classes)  # repeated classes count as new (variant ii of the paper)
        seen, old = self.known | new, self.known - new
        validation = self._choose_validation(experience, self._n_val(self.known or new), len(seen))

        if loop.begin("start"):
            self.check_recipe(recipe)
            check_memory(memory, recipe, len(seen))
            model.grow(max(seen) + 1)
            self.teacher = copy_teacher(model) if old else None
        model.train()
        set_trainable(model, llf=first and not self.pretrained, csf=True)
        batches = Batches(
            model, experience, memory, recipe, seed=self.seed, held_out=validation, context=self.context
        )

        if loop.begin("stage 1"):
            optimizer = loop.optimizer(model, recipe)
            for mb in batches.mixed(loop.steps(recipe.epochs, batches.n_mixed)):
                loss = sgd_step(optimizer, self._stage_1_loss(mb, seen, old), mb.share)
                tick(loop.step_done(loss))

        set_trainable(model, llf=False, csf=True)
        if loop.begin("memory"):
            batches.update_memory(lambda rows: {"split": validation[rows].to(torch.int8)})
            self.pair, self.corrected = IDENTITY, set()
        if loop.begin("stage 2") and not first and loop.epoch == 0:
            self.pair, loss = self._stage_2(batches, recipe, seen, new)
            self.corrected, loop.epoch = new, 1  # done, if this is saved
            tick(Step("stage 2", self.stage2_epochs, self.stage2_epochs, 1, 1, loss, 0.0))
        memory.release_held_out(self._n_val(seen))
        self.known, self.teacher = seen, None
        loop.finish()

    def check_recipe(self, recipe: Recipe) -> None:
        """Refuse a recipe that would train llf."""
        if recipe.trainable == "all":
            raise InvalidValue("BiC shares llf between the old and the new model: train csf only.")

    def logits(self, z: Tensor) -> Tensor:
        """Scores over the classes seen so far, those of the last experience corrected."""
        return correct(predict(self.model, z, self.known), self.pair, self.corrected)

    def state_dict(self) -> dict[str, Any]:
        """Everything from which `learn` continues."""
        state = learner_state(self.settings, self.model, self.memory, self.known, self.loop)
        state |= {"correction": {"pair": self.pair, "classes": sorted(self.corrected)}}
        return state if self.teacher is None else state | {"teacher": dict(self.teacher.state_dict())}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a saved state."""
        self.known = load_learner_state(state, self.model, self.memory, self.loop)
        self.pair, self.corrected = state["correction"]["pair"], set(state["correction"]["classes"])
        self.teacher = load_teacher(self.model, state)

    def _n_val(self, classes: set[int]) -> int:
        """Validation samples of a class: a tenth of its quota, at least one."""
        assert self.memory.capacity is not None
        return max(1, self.memory.capacity // len(classes) // 10)

    def _choose_validation(self, experience: Experience, n_val: int, n_seen: int) -> Tensor:
        """(n_i,) bool: images with the n_val highest reservoir keys of their class, stored samples included.

        They are sure to enter the memory, since there are no more than it has room for once all classes are seen. A
        class that would be left without training images gives none.
        """
        assert self.memory.capacity is not None
        n_val = min(n_val, self.memory.capacity // n_seen)
        y, key = experience.images.labels, keys(self.memory.seed, experience.images.ids)
        chosen = torch.zeros(len(y), dtype=torch.bool)
        for label in experience.classes:
            rows, stored = (y == label).nonzero().view(-1), self.memory["key"][self.memory["y"] == label]
            highest = torch.cat([key[rows], stored]).argsort(descending=True)[:n_val]
            mine = rows[highest[highest < len(rows)]]
            if len(mine) < len(rows) and not torch.isin(experience.images.ids[mine], self.memory["id"]).any():
                chosen[mine] = True
        return chosen

    def _stage_1_loss(self, mb: Minibatch, seen: set[int], old: set[int]) -> Tensor:
        """(1 - lambda) L_c + lambda L_d with lambda = n_old / n_seen; L_c is over the classes seen."""
        logits = self.model.tail(mb.z)
        columns = class_rows(frozenset(seen), logits)
        share = len(old) / len(seen)  # lambda
        loss = (1 - share) * F.cross_entropy(logits[:, columns], torch.searchsorted(columns, mb.y))
        return loss if self.teacher is None else loss + share * self._distillation(mb.z, logits, old)

    def _distillation(self, z: Tensor, logits: Tensor, old: set[int]) -> Tensor:
        """Cross-entropy between the old model's answer over the old classes and the new model's."""
        assert self.teacher is not None
        csf, head = self.teacher
        columns = class_rows(frozenset(old), logits)
        with torch.no_grad():
            answer = correct(head(csf(z)), self.pair, self.corrected & old)[:, columns]
            target = (answer / T).softmax(0 if self.distill_axis == "batch" else 1)
        return -(target * (logits[:, columns] / T).log_softmax(1)).sum(1).mean()

    def _stage_2(self, batches: Batches, recipe: Recipe, seen: set[int], new: set[int]) -> tuple[Tensor, Tensor]:
        """Fit alpha and beta of the new classes by cross-entropy on validation samples of all classes seen.

        The network does not move, so its logits are computed once, and fitting the two parameters runs on the CPU.
        Returns the pair and the last loss.
        """
        slots = self.memory.slots(HELD_OUT)
        if len(slots) == 0:
            return IDENTITY, torch.zeros(())
        columns = class_rows(frozenset(seen), slots)
        with eval_mode(self.model), torch.no_grad():
            parts = [self.model.tail(batches.memory_latents(part)).cpu() for part in slots.split(256)]
        logits, y = torch.cat(parts)[:, columns], torch.searchsorted(columns, self.memory["y"][slots])
        is_new = torch.isin(columns, class_rows(frozenset(new), columns))
        n_mb, index = recipe.n_mbe + recipe.n_mbr, batches.experience.index
        orders = [
            torch.randperm(len(y), generator=generator(self.seed, "stage 2", index, epoch))
            for epoch in range(self.stage2_epochs)
        ]
        with self.context.stopwatch.time("head"):
            return fit_pair(logits, y, is_new, orders, n_mb)


@torch.no_grad()
def correct(logits: Tensor, pair: Tensor, classes: set[int]) -> Tensor:
    """alpha z + beta in the columns of these classes; the others stay."""
    if not classes:
        return logits
    columns, (alpha, beta) = class_rows(frozenset(classes), logits), pair.to(logits)
    return logits.index_copy(1, columns, alpha * logits[:, columns] + beta)


def fit_pair(
    logits: Tensor, y: Tensor, is_new: Tensor, orders: Sequence[Tensor], n_mb: int
) -> tuple[Tensor, Tensor]:
    """Fit alpha and beta of the new columns by SGD, one epoch for each order; returns them and the last loss."""
    alpha, beta = nn.Parameter(logits.new_ones(())), nn.Parameter(logits.new_zeros(()))
    optimizer = torch.optim.SGD([alpha, beta], lr=0.1 * n_mb / 256, momentum=0.9)
    milestones = sorted({max(1, int(share * len(orders))) for share in MILESTONES})  # one epoch at the full rate
    schedule = torch.optim.lr_scheduler.MultiStepLR(optimizer, milestones)
    for order in orders:
        for rows in order.split(n_mb):
            corrected = torch.where(is_new, alpha * logits[rows] + beta, logits[rows])
            loss = F.cross_entropy(corrected, y[rows]) + BETA_DECAY * beta**2 / 2
            sgd_step(optimizer, loss)
        schedule.step()
    return torch.stack([alpha.detach(), beta.detach()]), loss.detach()
