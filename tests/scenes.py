"""Pictures for tests of decoding and near-duplicates."""

import numpy as np
import torch
from numpy.typing import NDArray

from triphase.randomness import generator


def scene(seed: int, side: int = 300) -> NDArray[np.uint8]:
    """A picture with large and small shapes, as photos have."""
    draws = torch.rand(4, 3, 12, 12, generator=generator(seed, "scene"))
    layers = [
        torch.nn.functional.interpolate(draws[i : i + 1, :, :n, :n], (side, side), mode="bicubic")
        for i, n in enumerate((3, 5, 8, 12))
    ]
    mixed = sum(layer / 2**i for i, layer in enumerate(layers))
    assert isinstance(mixed, torch.Tensor)
    return (mixed[0] * 110 + 20).clamp(0, 255).permute(1, 2, 0).byte().numpy()
