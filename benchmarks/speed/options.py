"""Do bfloat16, torch.compile or half-precision latents pay? Seconds per image of csf and head, taking turns.

python benchmarks/speed/options.py
"""

from __future__ import annotations

import json
from statistics import median

import torch
from torch import Tensor
from torch.nn import functional as F
from workload import sgd, timed

from triphase.learners.training import set_trainable
from triphase.models import build

BATCH, ROUNDS = 128, 7


def main() -> None:
    """Measure forward and backward of Lite0's csf at 96 px and print one JSON document."""
    z = torch.rand(BATCH, 192, 3, 3).contiguous(memory_format=torch.channels_last)
    y = torch.arange(BATCH) % 100
    variants = {
        "float32": {},
        "bfloat16": {"precision": "bfloat16"},
        "compiled": {"compiled": True},
        "compiled bfloat16": {"precision": "bfloat16", "compiled": True},
    }
    steps, times = {}, {name: [] for name in variants}  # type: ignore[var-annotated]
    for name, options in variants.items():
        model = build("efficientnet_lite0", 100, image_size=96)
        set_trainable(model.train(), llf=False, csf=True)
        model.accelerate(**options)
        optimizer = sgd(model)

        def step(model: torch.nn.Module = model, optimizer: torch.optim.SGD = optimizer) -> Tensor:
            loss = F.cross_entropy(model.tail(z), y)  # type: ignore[operator]
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            return loss

        steps[name] = step
        step()
        step()
    for _ in range(ROUNDS):
        for name, step in steps.items():
            with timed() as seconds:
                step()
            times[name].append(seconds[0])
    milliseconds = {name: 1000 * median(values) / BATCH for name, values in times.items()}
    ratios = {name: milliseconds["float32"] / value for name, value in milliseconds.items()}
    print(
        json.dumps({"ms_per_image": milliseconds, "speed_up": ratios, "threads": torch.get_num_threads()}, indent=1)
    )


if __name__ == "__main__":
    main()
