"""Training and evaluation against a bare loop and against the limit: ratios inside one run, medians of rounds.

python benchmarks/speed/ratios.py --data DIR [--weights mobilenet_v1_folded.safetensors]
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from statistics import median

import contestants
import torch
from workload import Workload, pixels, timed, workload

from triphase.bench.run.evaluation import TestImages

EVALUATIONS = 20


def training(load: Workload, rounds: int) -> dict[str, float]:
    """Contestants take turns; each time is that of the whole stream."""
    x = pixels(load)
    draws, held_x, held_y = contestants.same_draws(load)
    held = (held_x, held_y)
    times: dict[str, list[float]] = {
        "triphase": [],
        "beyond latents": [],
        "beyond latents, not saved": [],
        "bare loop": [],
        "free latents": [],
    }
    L, C, _ = contestants.costs(load, x[0][0])
    for _ in range(rounds):
        whole, beyond = contestants.triphase_beyond_latents(load)
        times["triphase"].append(whole)
        times["beyond latents"].append(beyond)
        times["beyond latents, not saved"].append(contestants.triphase_beyond_latents(load, save=False)[1])
        times["bare loop"].append(contestants.bare_loop(load, draws, x, held))
        times["free latents"].append(contestants.free_latents(load, draws, x, held))
    result = {name: median(values) for name, values in times.items()}
    allowed = (L + C) / (C + L * load.distinct / load.passes)
    gain = result["bare loop"] / result["triphase"]
    over = {
        name: median(a / b for a, b in zip(times[name], times["free latents"], strict=True)) - 1 for name in times
    }
    return result | {
        "L": L,
        "C": C,
        "passes": load.passes,
        "distinct": load.distinct,
        "gain": gain,
        "allowed": allowed,
        "reached": gain / allowed,
        "overhead": over["beyond latents"],
        "overhead without checkpoints": over["beyond latents, not saved"],
    }


def evaluation(load: Workload, rounds: int, n: int) -> dict[str, float]:
    """The same test images evaluated after each of 20 experiences, with and without keeping their latents."""
    images = load.stream.experiences[0].images.select(torch.arange(n) % len(load.stream.experiences[0].images))
    learner = load.learner()
    learner.model.freeze("llf")
    learner.known = set(range(10))
    learner.model.eval()
    L, _, forward = contestants.costs(load, images.read(torch.arange(128)))
    ours, bare = [], []
    x = images.read(torch.arange(n))
    learner.model.eval()
    for _ in range(rounds):
        with timed() as seconds:
            test = TestImages(learner, images)
            for _ in range(EVALUATIONS):
                test.predict(learner, 10)
        ours.append(seconds[0])
        with timed() as seconds, torch.no_grad():
            for _ in range(EVALUATIONS):
                for batch in x.split(256):
                    learner.model(batch).argmax(1)
        bare.append(seconds[0])
    gain, allowed = median(bare) / median(ours), EVALUATIONS * (L + forward) / (L + EVALUATIONS * forward)
    times = {"triphase": median(ours), "bare loop": median(bare), "L": L, "forward": forward}
    return times | {"gain": gain, "allowed": allowed, "reached": gain / allowed}


def main() -> None:
    """Measure and print one JSON document."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder with cifar-100-binary/")
    parser.add_argument("--weights", type=Path, help="folded MobileNetV1 weights; without, only Lite0 is measured")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--experiences", type=int, default=3)
    parser.add_argument("--per-class", type=int, default=50)
    arguments = parser.parse_args()
    results = {}
    backbones = {"efficientnet_lite0": None} | (
        {"mobilenet_v1_1024": arguments.weights} if arguments.weights else {}
    )
    for backbone, weights in backbones.items():
        sizes = {"experiences": arguments.experiences, "per": arguments.per_class}
        load = workload(backbone, arguments.data, weights=weights, **sizes)
        results[backbone] = {
            "training": training(load, arguments.rounds),
            "evaluation": evaluation(load, arguments.rounds, 400),
        }
    print(json.dumps({"threads": torch.get_num_threads(), "torch": torch.__version__, **results}, indent=1))


if __name__ == "__main__":
    main()
