"""Peak anonymous memory of each contestant, each in a process of its own; and of triphase under a budget of 1 MB.

python benchmarks/speed/memory.py --data DIR
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

import contestants
from workload import Workload, peak_memory, pixels, workload

from triphase.budget import Budget
from triphase.context import Context

NAMES = ("triphase", "triphase, budget 1 MB", "bare loop", "free latents")


def run_one(name: str, load: Workload) -> float:
    """MB above what the process took before the contestant began."""
    if name.startswith("triphase"):
        context = Context(Budget.megabytes(1) if "budget" in name else None)
        with peak_memory() as peak:
            contestants.triphase_run(load, context=context)
        return peak[0]
    draws, held_x, held_y = contestants.same_draws(load)
    contestant = contestants.bare_loop if name == "bare loop" else contestants.free_latents
    with peak_memory() as peak:
        contestant(load, draws, pixels(load), (held_x, held_y))
    return peak[0]


def main() -> None:
    """Measure and print one JSON document."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder with cifar-100-binary/")
    parser.add_argument("--only", choices=NAMES)
    arguments = parser.parse_args()
    if arguments.only:
        load = workload("efficientnet_lite0", arguments.data, experiences=2, per=40)
        print(run_one(arguments.only, load))
        return
    peaks = {}
    for name in NAMES:
        command = [sys.executable, __file__, "--data", str(arguments.data), "--only", name]
        peaks[name] = float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    print(json.dumps({"peak_anonymous_MB": peaks}, indent=1))


if __name__ == "__main__":
    main()
