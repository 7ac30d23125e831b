"""triphase against Avalanche 0.6.0 at the same work, contestants taking turns; and Avalanche's peak memory.

pip install -c constraints.txt -r benchmarks/speed/requirements-avalanche.txt
python benchmarks/speed/against_avalanche.py --data DIR
"""

from __future__ import annotations

import argparse
import json
import warnings
from pathlib import Path
from statistics import median
from typing import Any

import torch
from avalanche_contestant import avalanche_run
from contestants import triphase_run
from workload import peak_memory, workload


def main() -> None:
    """Measure and print one JSON document."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder with cifar-100-binary/")
    parser.add_argument("--learners", default="replay,derpp")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--experiences", type=int, default=3)
    parser.add_argument("--per-class", type=int, default=50)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    sizes = {"experiences": arguments.experiences, "per": arguments.per_class}
    load = workload("efficientnet_lite0", arguments.data, **sizes)
    with peak_memory() as peak:  # first, so that nothing is left over from another contestant
        avalanche_run(load)
    result: dict[str, Any] = {
        "peak_anonymous_MB": {"avalanche": peak[0]},
        "image_passes": load.passes,
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
    }
    for learner in arguments.learners.split(","):
        times: dict[str, list[float]] = {"triphase": [], "avalanche": [], "avalanche, torch's own layout": []}
        for _ in range(arguments.rounds):
            times["triphase"].append(triphase_run(load, learner))
            times["avalanche"].append(avalanche_run(load, learner))
            times["avalanche, torch's own layout"].append(avalanche_run(load, learner, channels_last=False))
        seconds = {name: median(values) for name, values in times.items()}
        ratio = {name: value / seconds["triphase"] for name, value in seconds.items()}
        result[learner] = {"seconds": seconds, "ratio": ratio}
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
