"""BiC: bias correction by two scalars, fitted on held-out samples after each experience.

Wu et al., "Large Scale Incremental Learning", as their published code does it: the pair of scalars is discarded
when the next one is fitted, and lives on only in what is distilled. What differs here (the common memory, classes
that come back) is listed in docs/deviations.md.
"""

from __future__ import annotations

import copy
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from triphase.context import Context
from triphase.data.batches import Batches
from triphase.data.memory import HELD_OUT, Memory
from triphase.data.recipe import Recipe
from triphase.data.streams import Experience
from triphase.errors import InvalidValue
from triphase.learners.protocol import Step, Tick, ignore
from triphase.learners.training import (
    TrainingLoop,
    check_memory,
    eval_mode,
    learner_state,
    load_learner_state,
    predict,
    set_trainable,
    sgd_step,
)
from triphase.maths.bias import class_rows
from triphase.models import SplitClassifier
from triphase.randomness import generator, keys

MILESTONES = (0.3, 0.6, 0.8, 0.9)  # of stage 2, where its learning rate is divided by 10
BETA_DECAY = 0.1


class BiC:
    """Stage 1 learns with distillation; stage 2 fits alpha z + beta for the logits of the current classes.

    A tenth of what the memory may hold of a class is validation: never trained on, inside the budget.
    """

    def __init__(
        self,
        model: SplitClassifier,
        memory: Memory | None,
        *,
        seed: int = 0,
        pretrained: bool = True,  # False: llf learns in the first experience
        stage2_epochs: int = 100,  # over logits that are computed once, so they cost next to nothing
        T: float = 2.0,  # temperature of the distillation
        distill_axis: Literal["classes", "batch"] = "classes",  # batch: a known mistake, for diagnosis only
        context: Context | None = None,
    ) -> None:
        if memory is None or memory.capacity is None:
            raise InvalidValue("BiC distils and validates on replayed samples: give it a memory.")
        if distill_axis not in ("classes", "batch"):
            raise InvalidValue(f"distill_axis must be 'classes' or 'batch', got {distill_axis!r}.")
        if stage2_epochs < 1 or T <= 0:
            raise InvalidValue(f"stage2_epochs must be at least 1 and T above 0, got {stage2_epochs} and {T}.")
        self.context = Context() if context is None else context
        self.model, self.memory, self.seed, self.pretrained = model, memory, seed, pretrained
        self.stage2_epochs, self.T, self.distill_axis = stage2_epochs, T, distill_axis
        self.settings = {"learner": "bic", "seed": seed, "pretrained": pretrained}
        self.settings |= {"stage2_epochs": stage2_epochs, "T": T, "distill_axis": distill_axis}
        self.known: set[int] = set()
        self.loop = TrainingLoop(context=self.context)
        self.pair = torch.tensor([1.0, 0.0])  # alpha and beta ...
        self.corrected: set[int] = set()  # ... and the classes they are for: those of the last experience
        self.teacher: nn.Sequential | None = None  # csf and head before the experience; llf is shared

    def learn(self, experience: Experience, recipe: Recipe, tick: Tick = ignore) -> None:
        """Stage 1 on the experience and the memory, then stage 2 on validation samples of all classes."""
        model, memory, loop = self.model, self.memory, self.loop
        experience = Experience(experience.index, experience.training)  # validation is chosen here, among these
        first = not self.known
        new = set(experience.classes)  # repeated classes count as new (variant ii of the paper)
        seen, old = self.known | new, self.known - new
        held_out = self._hold_out(experience, self._n_val(self.known or new), len(seen))

        if loop.begin("start"):
            self.check_recipe(recipe)
            check_memory(memory, recipe, len(seen))
            model.grow(max(seen) + 1)
            if old:
                self.teacher = copy.deepcopy(nn.Sequential(model.csf, model.head)).eval()
        model.train()
        set_trainable(model, llf=first and not self.pretrained, csf=True)
        batches = Batches(
            model, experience, memory, recipe, seed=self.seed, held_out=held_out, context=self.context
        )

        if loop.begin("stage 1"):
            optimizer = loop.optimizer(model, recipe)
            columns = class_rows(frozenset(seen), model.head.weight)
            share = len(old) / len(seen)  # lambda
            for mb in batches.mixed(loop.steps(recipe.epochs, batches.n_mixed)):
                logits = model.tail(mb.z)
                target = torch.searchsorted(columns, mb.y)
                loss = (1 - share) * F.cross_entropy(logits[:, columns], target)
                if self.teacher is not None:
                    loss = loss + share * self._distillation(mb.z, logits, old)
                sgd_step(optimizer, loss)
                tick(loop.step_done(loss))

        set_trainable(model, llf=False, csf=True)
        if loop.begin("memory"):
            batches.update_memory(lambda rows: {"split": held_out[rows].to(torch.int8)})
            self.pair, self.corrected = torch.tensor([1.0, 0.0]), set()
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
        return self._correct(predict(self.model, z, self.known), self.pair, self.corrected)

    def state_dict(self) -> dict[str, Any]:
        """Everything from which `learn` continues."""
        state = learner_state(self.settings, self.model, self.memory, self.known, self.loop)
        state |= {"correction": {"pair": self.pair, "classes": sorted(self.corrected)}}
        return state if self.teacher is None else state | {"teacher": dict(self.teacher.state_dict())}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a saved state."""
        self.known = load_learner_state(state, self.model, self.memory, self.loop)
        self.pair, self.corrected = state["correction"]["pair"], set(state["correction"]["classes"])
        self.teacher = None
        if "teacher" in state:
            self.teacher = copy.deepcopy(nn.Sequential(self.model.csf, self.model.head)).eval()
            self.teacher.load_state_dict(state["teacher"])

    def _n_val(self, classes: set[int]) -> int:
        """Validation samples of a class: a tenth of its quota, at least one (SPEC 9.6)."""
        assert self.memory.capacity is not None
        return max(1, self.memory.capacity // len(classes) // 10)

    def _hold_out(self, experience: Experience, n_val: int, n_seen: int) -> Tensor:
        """(n_i,) bool: images with the n_val highest keys of their class, over all that is seen of it.

        They are sure to enter the memory, for there are no more than it has room for once all classes are seen; a
        class that would be left without training images gives none.
        """
        assert self.memory.capacity is not None
        n_val = min(n_val, self.memory.capacity // n_seen)
        y = experience.images.labels
        key, held_y, held_key = keys(self.memory.seed, experience.images.ids), self.memory["y"], self.memory["key"]
        out = torch.zeros(len(y), dtype=torch.bool)
        for label in experience.classes:
            rows, held = (y == label).nonzero().view(-1), held_key[held_y == label]
            best = torch.cat([key[rows], held]).argsort(descending=True)[:n_val]
            chosen = rows[best[best < len(rows)]]
            if len(chosen) < len(rows) and not torch.isin(experience.images.ids[chosen], self.memory["id"]).any():
                out[chosen] = True
        return out

    def _distillation(self, z: Tensor, logits: Tensor, old: set[int]) -> Tensor:
        """Cross-entropy between what the old model says of the old classes and what the new one says."""
        assert self.teacher is not None
        csf, head = self.teacher
        columns = class_rows(frozenset(old), logits)
        with torch.no_grad():
            said = self._correct(head(csf(z)), self.pair, self.corrected & old)[:, columns]
            target = (said / self.T).softmax(0 if self.distill_axis == "batch" else 1)
        return -(target * (logits[:, columns] / self.T).log_softmax(1)).sum(1).mean()

    @torch.no_grad()
    def _correct(self, logits: Tensor, pair: Tensor, classes: set[int]) -> Tensor:
        if not classes:
            return logits
        columns, (alpha, beta) = class_rows(frozenset(classes), logits), pair.to(logits)
        return logits.index_copy(1, columns, alpha * logits[:, columns] + beta)

    def _stage_2(self, batches: Batches, recipe: Recipe, seen: set[int], new: set[int]) -> tuple[Tensor, Tensor]:
        """Fit alpha and beta of the new classes by cross-entropy on validation samples of all seen classes.

        The network does not move, so its logits are computed once and what is left has two parameters.
        """
        slots = self.memory.slots(HELD_OUT)
        loss = torch.zeros(())
        if len(slots) == 0:
            return torch.tensor([1.0, 0.0]), loss
        columns = class_rows(frozenset(seen), self.model.head.weight)
        with eval_mode(self.model), torch.no_grad():
            z = [self.model.tail(batches.memory_latents(part))[:, columns] for part in slots.split(256)]
        logits, y = torch.cat(z), torch.searchsorted(columns, self.memory["y"][slots].to(columns.device))
        is_new = torch.isin(columns, torch.tensor(sorted(new), device=columns.device))
        n_mb = recipe.n_mbe + recipe.n_mbr
        alpha, beta = nn.Parameter(logits.new_ones(())), nn.Parameter(logits.new_zeros(()))
        optimizer = torch.optim.SGD([alpha, beta], lr=0.1 * n_mb / 256, momentum=0.9)
        milestones = sorted({max(1, int(share * self.stage2_epochs)) for share in MILESTONES})  # 1 epoch in full
        schedule = torch.optim.lr_scheduler.MultiStepLR(optimizer, milestones)
        with self.context.stopwatch.time("head"):
            for epoch in range(self.stage2_epochs):
                order = torch.randperm(
                    len(y), generator=generator(self.seed, "stage 2", batches.experience.index, epoch)
                )
                for batch in order.split(n_mb):
                    corrected = torch.where(is_new, alpha * logits[batch] + beta, logits[batch])
                    loss = F.cross_entropy(corrected, y[batch]) + BETA_DECAY * beta**2 / 2
                    sgd_step(optimizer, loss)
                schedule.step()
        return torch.stack([alpha.detach(), beta.detach()]).cpu(), loss.detach()
