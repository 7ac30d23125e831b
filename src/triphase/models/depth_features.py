"""Features of a network at every depth: the last ones are made for the classes of its pre-training."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from triphase.models.summaries import SplitLatent, Stage


class DepthFeatures(nn.Module):
    """The features of csf at every depth: its input and the output of each block, averaged, and f itself.

    Where the latent carries summaries of feature maps before the cut, these come first, and where csf begins with
    a stage, the output of the stage takes the place of its input. Each part has length 1, so
    that none outweighs the others. They are taken from the earliest on, as long as all of them and f have no more
    than `max_width` numbers; f is always taken.
    """

    def __init__(self, csf: nn.Module, max_width: int) -> None:
        super().__init__()
        self.csf, self.max_width = csf, max_width

    def extra_repr(self) -> str:
        return f"max_width={self.max_width}"

    def forward(self, z: Tensor) -> Tensor:
        h, parts = z, [_pooled(z)]
        for layer in self.csf if isinstance(self.csf, nn.Sequential) else (self.csf,):
            h = layer(h)
            if isinstance(layer, SplitLatent):
                parts = [*layer.summaries(z), _pooled(h)]
            elif isinstance(layer, Stage):
                parts[-1] = _pooled(h)
            elif list(layer.children()):  # after a block, not after a single layer
                parts.append(_pooled(h))
        taken, width = [], h.shape[1]
        for part in parts[: max(1, len(parts) - 1)]:  # the last block makes f
            width += part.shape[1]
            taken += [part] if width <= self.max_width else []
        return torch.cat([F.normalize(part) for part in (*taken, h)], 1)


def pooled_map(csf: nn.Module, z: Tensor) -> Tensor:
    """(n, channels): the mean of the feature map at the cut, whatever else the latents carry."""
    first = next(csf.children(), None)
    return _pooled(first(z) if isinstance(first, SplitLatent) else z)


def _pooled(h: Tensor) -> Tensor:
    """(n, channels): the mean over the positions of a feature map, or over tokens (n, tokens, channels)."""
    if h.dim() == 3:
        return h.mean(1)
    return h.flatten(2).mean(2) if h.dim() > 2 else h
