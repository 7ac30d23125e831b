"""Discriminant analysis of a frozen network at every depth: the closed form of the recipe, alone.

The last features of a pre-trained network are made for the classes of the pre-training; what comes before is more
general. One larger matrix reads them all.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from triphase.context import Context
from triphase.data.memory import Memory
from triphase.learners.protocol import learn_blocks
from triphase.learners.slda import SLDA
from triphase.models import SplitClassifier

SHRINKAGE = 0.3  # as the recipe has it; alone .5 is a little better (benchmarks/results/recipe.md)


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
        self.feature_model = SplitClassifier(model.llf, Depths(model.csf, widest=2 * model.n_features), model.head)
        learn_blocks(self.feature_model, llf=False, csf=False)  # reading never trains, whatever the model is told
        self.settings |= {"learner": "slda_depths"}


class Depths(nn.Module):
    """What csf makes of a latent at every depth: its input and the output of each block, averaged, and f itself.

    Each part has length 1, so that none outweighs the others. They are taken from the input on, as long as all of
    them and f have no more than `widest` numbers.
    """

    def __init__(self, csf: nn.Module, widest: int) -> None:
        super().__init__()
        self.csf, self.widest = csf, widest

    def forward(self, z: Tensor) -> Tensor:
        h, parts = z, [_pooled(z)]
        for layer in self.csf if isinstance(self.csf, nn.Sequential) else (self.csf,):
            h = layer(h)
            parts += [_pooled(h)] if list(layer.children()) else []  # after a block, not after a single layer
        taken, width = [], h.shape[1]
        for part in parts[: max(1, len(parts) - 1)]:  # the last block makes f
            width += part.shape[1]
            taken += [part] if width <= self.widest else []
        return torch.cat([F.normalize(part) for part in (*taken, h)], 1)


def _pooled(h: Tensor) -> Tensor:
    return h.flatten(2).mean(2) if h.dim() > 2 else h
