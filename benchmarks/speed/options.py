"""Do bfloat16 and torch.compile pay? Milliseconds per image, forward and backward, variants taking turns.

    python benchmarks/speed/options.py

Two cases: csf and head of EfficientNet-Lite0 at 96 px over latents, and the whole of ResNet-32 from pixels
of 32 px, as in the first experience of cifar100-11.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from statistics import median
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from workload import sgd, timed

from triphase.learners.training import set_trainable
from triphase.models import build

BATCH, ROUNDS = 128, 7
VARIANTS: dict[str, dict[str, Any]] = {
    "float32": {},
    "bfloat16": {"precision": "bfloat16"},
    "compiled": {"compiled": True},
    "compiled bfloat16": {"precision": "bfloat16", "compiled": True},
}


def main() -> None:
    """Measure both cases and print one JSON document."""
    z = torch.rand(BATCH, 192, 3, 3).contiguous(memory_format=torch.channels_last)
    pixels = torch.randint(256, (BATCH, 3, 32, 32)).to(torch.uint8)
    found = {
        "efficientnet_lite0, csf": measured("efficientnet_lite0", 96, z, from_scratch=False),
        "resnet32, from scratch": measured("resnet32", 32, pixels, from_scratch=True),
    }
    print(json.dumps({**found, "threads": torch.get_num_threads()}, indent=1))


def measured(backbone: str, size: int, x: Tensor, *, from_scratch: bool) -> dict[str, dict[str, float]]:
    """Milliseconds per image of each variant, and its gain over float32."""
    steps = {name: training_step(backbone, size, x, from_scratch, options) for name, options in VARIANTS.items()}
    times: dict[str, list[float]] = {name: [] for name in steps}
    for name, step in [*steps.items()] * (2 + ROUNDS):
        with timed() as seconds:
            step()
        times[name].append(seconds[0])
    milliseconds = {name: 1000 * median(values[2:]) / BATCH for name, values in times.items()}
    gains = {name: milliseconds["float32"] / value for name, value in milliseconds.items()}
    return {"ms_per_image": milliseconds, "gain": gains}


def training_step(
    backbone: str, size: int, x: Tensor, from_scratch: bool, options: dict[str, Any]
) -> Callable[[], None]:
    """One step of SGD on pixels if everything learns, on latents otherwise."""
    model = build(backbone, 100, image_size=size)
    set_trainable(model.train(), llf=from_scratch, csf=True)
    model.accelerate(**options)
    optimizer, y = sgd(model), torch.arange(BATCH) % 100

    def step() -> None:
        loss = F.cross_entropy(model(x) if from_scratch else model.tail(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step


if __name__ == "__main__":
    main()
