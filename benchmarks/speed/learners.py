"""Training time of every learner on the beginning of one stream, as a ratio to TPC's.

python benchmarks/speed/learners.py --data DIR [--experiences 8] [--rounds 2]

Stream 2 of benchmarks/results/comparison.md: 10 classes, then 2 at a time. Learners take turns, each run in a
process of its own with all threads; evaluation does not count. DER++ runs twice: training csf and head like all
others, and training the whole network from the pixels on, as its authors do.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

STREAM = "--per-class 100 --memory 1000 --epochs 3 --n-mbe 43 --n-mbr 213 --evaluate-every 46 --lr 0.01"
LEARNERS = ("tpc", "ar1", "derpp", "derpp --trainable all", "bic", "replay", "anchored", "slda", "ranpac", "ncm")


def seconds(learner: str, data: Path, experiences: int) -> float:
    """Of training, as the run itself measures it."""
    with tempfile.TemporaryDirectory() as out:
        line = f"-m triphase bench run cifar100:46/10-2 {STREAM} --json --learner {learner}"
        done = subprocess.run(
            [
                sys.executable,
                *line.split(),
                "--experiences",
                str(experiences),
                "--data",
                str(data),
                "--out",
                f"{out}/run",
            ],
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
    return float(json.loads(done.stdout)["train_seconds"])


def main() -> None:
    """Measure and print one JSON document."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder with cifar-100-binary/")
    parser.add_argument("--experiences", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=2)
    arguments = parser.parse_args()
    taken: dict[str, list[float]] = {name: [] for name in LEARNERS}
    for _ in range(arguments.rounds):
        for name in LEARNERS:
            taken[name].append(seconds(name, arguments.data, arguments.experiences))
            print(f"{name}: {taken[name][-1]:.1f} s", file=sys.stderr)
    to_tpc = {
        name: median(one / tpc for one, tpc in zip(times, taken["tpc"], strict=True))
        for name, times in taken.items()
    }
    print(json.dumps({"seconds": taken, "ratio_to_tpc": to_tpc}, indent=1))


if __name__ == "__main__":
    main()
