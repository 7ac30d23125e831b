"""The gradient of wide depthwise filters: csf of Lite0 learns with torch's own and with ours, taking turns.

python benchmarks/speed/depthwise.py
"""

from __future__ import annotations

from statistics import median
from time import perf_counter
from unittest.mock import patch

import torch
from torch import Tensor

from triphase.learners.training import set_trainable
from triphase.models import SplitClassifier, build, build_for_photos, layers
from triphase.models.split import Precision

ROUNDS, STEPS = 7, 5
PRECISIONS: tuple[Precision, ...] = ("float32", "bfloat16")


def seconds(model: SplitClassifier, z: Tensor) -> float:
    """Of one step forward and back."""
    since = perf_counter()
    for _ in range(STEPS):
        model.features(z).sum().backward()
    return (perf_counter() - since) / STEPS


def ratio(model: SplitClassifier, z: Tensor) -> float:
    """Torch's seconds by ours: the median over the rounds."""
    ratios = []
    for round_ in range(ROUNDS + 1):
        with patch.object(layers, "_has_slow_gradient", return_value=False):
            slow = seconds(model, z)
        ratios += [slow / seconds(model, z)] if round_ else []  # the first warms up
    return median(ratios)


def main() -> None:
    """csf as `bench` trains it, of small pictures, and as `teach` does, of photos."""
    cases = {
        f"bench, {size} px": (build("efficientnet_lite0", 10, image_size=size), 128) for size in (96, 128, 160)
    }
    cases["teach, 224 px"] = (build_for_photos("efficientnet_lite0", image_size=224), 32)
    for name, (model, n) in cases.items():
        set_trainable(model.train(), llf=False, csf=True)
        with torch.no_grad():
            z = model.encode(torch.randint(256, (n, 3, *[model.image_size or 0] * 2)).to(torch.uint8))
        for precision in PRECISIONS:
            model.accelerate(precision=precision)
            print(f"{name}, {precision}: csf learns {ratio(model, z):.2f} times as fast")


if __name__ == "__main__":
    main()
