"""Discriminant analysis of a frozen network at every depth: the closed form of Anchored TPC, alone.

The last features of a pre-trained network are made for the classes of the pre-training; what comes before is more
general. One larger matrix reads them all.
"""

from __future__ import annotations

from triphase.context import Context
from triphase.data.memory import Memory
from triphase.learners.slda import SLDA
from triphase.learners.training import set_trainable
from triphase.models import DepthFeatures, SplitClassifier

SHRINKAGE = 0.3  # as in Anchored TPC; alone, 0.5 is a little better (benchmarks/results/recipe.md)


class DepthSLDA(SLDA):
    """SLDA that reads csf at every depth."""

    def __init__(
        self,
        model: SplitClassifier,
        memory: Memory | None = None,
        *,
        seed: int = 0,
        pretrained: bool = True,  # False: the network is trained on the first experience
        shrinkage: float = SHRINKAGE,
        context: Context | None = None,
    ) -> None:
        super().__init__(model, memory, seed=seed, pretrained=pretrained, shrinkage=shrinkage, context=context)
        self.feature_model = SplitClassifier(
            model.llf, DepthFeatures(model.csf, max_width=2 * model.n_features), model.head
        )
        set_trainable(self.feature_model, llf=False, csf=False)  # reading never trains the network
        self.settings |= {"learner": "slda_depths"}
