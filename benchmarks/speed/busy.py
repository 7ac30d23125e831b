"""A lesson beside a program that holds a core: threads that spin while they wait against threads that sleep.

    python benchmarks/speed/busy.py [--rounds 3]

The command lets PyTorch's threads sleep (`WAIT` in src/triphase/__main__.py); the other variant has the number of
spins that libgomp has by itself. Both teach the same generated photos, taking turns, alone and beside a busy loop.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from generated_photos import make_photos

SPINNING = {"GOMP_SPINCOUNT": "300000"}  # libgomp's own where no policy is set
Other = Callable[[], AbstractContextManager[None]]
VARIANTS: dict[str, dict[str, str]] = {"spinning": SPINNING, "sleeping": {}}


@contextmanager
def busy_core() -> Iterator[None]:
    """Another program computes within this block."""
    other = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        yield
    finally:
        other.kill()
        other.wait()


def seconds(photos: Path, environment: dict[str, str]) -> float:
    """Of a first lesson, in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "triphase", "teach", f"{folder}/model", str(photos), "--json"]
        since = time.perf_counter()
        subprocess.run(command, env=os.environ | environment, capture_output=True, check=True)
        return time.perf_counter() - since


def main() -> None:
    """Print the medians and their ratio as one JSON document."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    rounds, found = parser.parse_args().rounds, {}
    cases: dict[str, Other] = {"alone": nullcontext, "beside a busy program": busy_core}
    with tempfile.TemporaryDirectory() as folder:
        make_photos(Path(folder))
        for case, other in cases.items():
            times: dict[str, list[float]] = {name: [] for name in VARIANTS}
            for _ in range(rounds):
                for name, environment in VARIANTS.items():
                    with other():
                        times[name].append(seconds(Path(folder) / "lesson1", environment))
            medians = {name: median(values) for name, values in times.items()}
            found[case] = medians | {"ratio": medians["spinning"] / medians["sleeping"]}
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
