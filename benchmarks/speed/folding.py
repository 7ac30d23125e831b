"""Latents of a frozen llf, as `encode` computes them (BatchNorm folded, small passes), against 32 a pass unfolded.

python benchmarks/speed/folding.py
"""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from time import perf_counter

import torch
from torch import Tensor

from triphase.data.feature_cache import encode, pack
from triphase.models import SplitClassifier, build

ROUNDS, IMAGES, CASES = 7, 128, (("efficientnet_lite0", 96), ("efficientnet_lite0", 128), ("mobilenet_v1", 128))


def plainly(model: SplitClassifier, x: Tensor) -> Tensor:
    """The same latents by the block as it is, 32 at a time."""
    with torch.no_grad():
        return torch.cat([pack(model.encode(some)) for some in x.split(32)])


def folded(model: SplitClassifier, x: Tensor) -> Tensor:
    """What every run and every lesson does."""
    return encode(model, len(x), x.__getitem__)[:, 0]


def seconds(way: Callable[[SplitClassifier, Tensor], Tensor], model: SplitClassifier, x: Tensor) -> float:
    """Of all images."""
    since = perf_counter()
    way(model, x)
    return perf_counter() - since


def main() -> None:
    """Contestants take turns; the ratio is the median over the rounds."""
    for name, image_size in CASES:
        model = build(name, 10, image_size=image_size)
        model.freeze("llf")
        x = torch.randint(256, (IMAGES, 3, image_size, image_size), dtype=torch.uint8)
        expected = plainly(model, x)
        difference = float((folded(model, x) - expected).abs().max() / expected.abs().max())
        ratios = [seconds(plainly, model, x) / seconds(folded, model, x) for _ in range(ROUNDS)]
        print(
            f"{name}, {image_size} px: {median(ratios):.2f} times as fast "
            f"({min(ratios):.2f} to {max(ratios):.2f}), values differ by {difference:.0e}"
        )


if __name__ == "__main__":
    main()
