"""DER++: dark experience replay, which stores the logits of replayed samples.

Buzzega et al., "Dark Experience for General Continual Learning: a Strong, Simple Baseline". Minibatches and memory
are those of every other learner here; what that changes is listed in docs/deviations.md.
"""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from triphase.context import Context
from triphase.data.batches import Batches, Minibatch
from triphase.data.memory import Memory
from triphase.data.recipe import Recipe
from triphase.data.streams import Experience
from triphase.errors import InvalidValue
from triphase.learners.checks import check_choices, check_memory
from triphase.learners.protocol import Tick, ignore
from triphase.learners.training import (
    TrainingLoop,
    eval_mode,
    learner_state,
    load_learner_state,
    predict,
    set_trainable,
    sgd_step,
)
from triphase.models import SplitClassifier, placed


class DERpp:
    """L = CE(current) + alpha MSE(logits of replayed samples, stored ones) + beta CE(replayed).

    A sample's logits are those of the experience in which it entered the memory, for as long as it stays. A head
    with bias is trained like its weights.
    """

    def __init__(
        self,
        model: SplitClassifier,
        memory: Memory | None,
        *,
        seed: int = 0,
        pretrained: bool = True,  # False: llf learns in the first experience
        alpha: float = 0.2,
        beta: float = 0.5,
        logits: Literal["after", "online"] = "after",  # stored: after the experience, or as given while training
        context: Context | None = None,
    ) -> None:
        if memory is None:
            raise InvalidValue("DER++ replays logits: give it a memory.")
        for name, value in (("alpha", alpha), ("beta", beta)):
            if value < 0:
                raise InvalidValue(f"{name} must not be negative, got {value}.")
        self.context = Context() if context is None else context
        self.model, self.memory, self.seed, self.pretrained = placed(model, self.context), memory, seed, pretrained
        self.alpha, self.beta, self.store_online = alpha, beta, logits == "online"
        self.settings = {"learner": "derpp", "seed": seed, "pretrained": pretrained}
        self.settings |= {"alpha": alpha, "beta": beta, "logits": logits}
        check_choices(DERpp, self.settings)
        self.known: set[int] = set()
        self.loop = TrainingLoop(context=self.context)
        self.online = torch.empty(0)  # (n_i, n_classes): last answers to the images that are being learned

    def learn(self, experience: Experience, recipe: Recipe, tick: Tick = ignore) -> None:
        """Train on the experience beside replayed samples, then store logits with what enters the memory."""
        model, memory, loop = self.model, self.memory, self.loop
        first = not self.known
        seen = self.known | set(experience.classes)

        if loop.begin("start"):
            check_memory(memory, recipe, len(seen))
            model.grow(max(seen) + 1)
            self._widen()
            if self.store_online:
                shape, dtype = (len(experience.images), model.n_classes), model.head.weight.dtype
                self.online = torch.zeros(shape, dtype=dtype)
        model.train()
        set_trainable(model, llf=recipe.trainable == "all" or (first and not self.pretrained), csf=True)
        batches = Batches(model, experience, memory, recipe, seed=self.seed, context=self.context)

        if loop.begin("train"):
            optimizer = loop.optimizer(model, recipe)
            for mb in batches.mixed(loop.steps(recipe.epochs, batches.n_mixed)):
                loss = sgd_step(optimizer, self._loss(model.tail(mb.z), mb), share=1.0)  # each term has its own
                tick(loop.step_done(loss))

        set_trainable(model, llf=False, csf=True)
        online = self.store_online and recipe.epochs > 0
        batches.update_memory(lambda rows: {"logits": self.online[rows] if online else self._logits(batches, rows)})
        self.online = torch.empty(0)
        self.known = seen
        loop.finish()

    def logits(self, z: Tensor) -> Tensor:
        """Scores over the classes seen so far."""
        return predict(self.model, z, self.known)

    def state_dict(self) -> dict[str, Any]:
        """Everything from which `learn` continues."""
        state = learner_state(self.settings, self.model, self.memory, self.known, self.loop)
        return state | {"online": {"logits": self.online}}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a saved state."""
        self.known = load_learner_state(state, self.model, self.memory, self.loop)
        self.online = state["online"]["logits"]

    def _loss(self, logits: Tensor, mb: Minibatch) -> Tensor:
        n, processes = mb.n_current, self.context.processes
        if self.store_online:
            self.online[processes.gather(mb.rows)] = processes.gather(logits[:n].detach().cpu())
        loss = processes.part(F.cross_entropy(logits[:n], mb.y[:n]), n, mb.n_all_current)
        if mb.n_all_replayed:
            stored = self.memory["logits"][mb.slots].to(logits)
            compared = ~stored.isnan()  # columns by which the head has grown since have no stored logits
            mse, n_compared = F.mse_loss(logits[n:][compared], stored[compared]), compared.sum()
            loss = loss + self.alpha * processes.part(mse, n_compared, processes.sum_(n_compared.clone()))
            ce = F.cross_entropy(logits[n:], mb.y[n:])
            loss = loss + self.beta * processes.part(ce, len(mb.slots), mb.n_all_replayed)
        return loss

    @torch.no_grad()
    def _logits(self, batches: Batches, rows: Tensor) -> Tensor:
        """Logits of images of the experience, without augmentation; only for those that get in."""
        with eval_mode(self.model):
            parts = [self.model.tail(batches.image_latents(part)).cpu() for part in rows.split(256)]
        return torch.cat(parts) if parts else torch.empty(0, self.model.n_classes)

    def _widen(self) -> None:
        """Give stored logits the columns by which the head grew, as unknown."""
        stored = self.memory.columns.get("logits")
        if stored is not None and stored.shape[1] < self.model.n_classes:
            unknown = stored.new_full((len(stored), self.model.n_classes - stored.shape[1]), float("nan"))
            self.memory.columns = self.memory.columns | {"logits": torch.cat([stored, unknown], dim=1)}
