"""A learner of one's own in one file: replay with label smoothing, on digits."""

from typing import Any

from torch import Tensor
from torch.nn import functional as F

from triphase import Experience, Memory, Recipe, SplitClassifier, class_incremental, run
from triphase.context import Context
from triphase.data.batches import Batches
from triphase.data.sources import digits
from triphase.learners.protocol import Tick, ignore
from triphase.learners.training import (
    TrainingLoop,
    learner_state,
    load_learner_state,
    predict,
    set_trainable,
    sgd_step,
)
from triphase.models import placed, small_cnn
from triphase.testing import check_learner


class SmoothReplay:
    """Experience replay whose targets are softened."""

    def __init__(
        self,
        model: SplitClassifier,
        memory: Memory,
        *,
        smoothing: float = 0.1,
        seed: int = 0,
        context: Context | None = None,
    ) -> None:
        self.context = Context() if context is None else context
        self.model = placed(model, self.context)  # on the context's device
        self.memory, self.smoothing, self.seed = memory, smoothing, seed
        self.settings = {"learner": "smooth-replay", "smoothing": smoothing, "seed": seed}
        self.known: set[int] = set()
        self.loop = TrainingLoop(context=self.context)

    def learn(self, experience: Experience, recipe: Recipe, tick: Tick = ignore) -> None:
        """Train on the experience beside replayed samples."""
        seen = self.known | set(experience.classes)
        if self.loop.begin("start"):
            self.model.grow(max(seen) + 1)
        self.model.train()
        set_trainable(self.model, llf=recipe.trainable == "all", csf=True)
        batches = Batches(self.model, experience, self.memory, recipe, seed=self.seed, context=self.context)
        if self.loop.begin("train"):
            optimizer = self.loop.optimizer(self.model, recipe)
            for mb in batches.mixed(self.loop.steps(recipe.epochs, batches.n_mixed)):
                loss = F.cross_entropy(self.model.tail(mb.z), mb.y, label_smoothing=self.smoothing)
                tick(self.loop.step_done(sgd_step(optimizer, loss, mb.share)))
        batches.update_memory()
        self.known = seen
        self.loop.finish()

    def logits(self, z: Tensor) -> Tensor:
        """Scores over the classes seen so far."""
        return predict(self.model, z, self.known)

    def state_dict(self) -> dict[str, Any]:
        """Everything from which `learn` continues."""
        return learner_state(self.settings, self.model, self.memory, self.known, self.loop)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a saved state."""
        self.known = load_learner_state(state, self.model, self.memory, self.loop)


def main(epochs: int = 10) -> float:
    """Check the learner, then run it on digits in five experiences."""
    check_learner(SmoothReplay)
    train, test, names = digits()
    stream = class_incremental(train, test, names, first=2, then=2)
    learner = SmoothReplay(small_cnn(10), Memory(100))
    report = run(
        learner,
        stream,
        first=Recipe(epochs=epochs, lr=0.02, n_mbe=32),
        rest=Recipe(epochs=epochs, lr=0.02, n_mbe=32, n_mbr=32),
    )
    print(f"AMCA {100 * report.amca:.1f} %, final accuracy {100 * report.final_accuracy:.1f} %")
    return report.final_accuracy


if __name__ == "__main__":
    main()
