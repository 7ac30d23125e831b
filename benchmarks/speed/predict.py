"""How long `triphase predict MODEL photo` takes above `python -c "import torch"`, whole processes taking turns.

    python benchmarks/speed/predict.py [--model MODEL --photo FILE] [--rounds 9]

Without a model, one is taught generated photos before. The difference of the medians is the figure that counts:
both processes run on the same machine within the same minute. Processor time is printed as well: it says more
than the clock where other work runs. Then come the slowest imports and functions of one predict.
"""

from __future__ import annotations

import argparse
import cProfile
import os
import pstats
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from generated_photos import make_photos

TORCH = [sys.executable, "-c", "import torch"]
TRIPHASE = [sys.executable, "-m", "triphase"]
GOAL = 0.3  # seconds


def seconds(command: Sequence[str]) -> tuple[float, float]:
    """How long a process takes from start to end: by the clock, and of processor time."""
    started = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    taken = time.perf_counter() - started
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} failed.")
    return taken, usage.ru_utime + usage.ru_stime


def slowest_imports(command: Sequence[str]) -> list[tuple[float, float, str]]:
    """(own milliseconds, milliseconds with what it imports, module), the slowest by own time first."""
    importing = [command[0], "-X", "importtime", *command[1:]]
    lines = subprocess.run(importing, check=True, capture_output=True, text=True).stderr.splitlines()
    found = (re.match(r"import time:\s+(\d+) \|\s+(\d+) \|\s+(\S+)", line) for line in lines)
    rows = [(int(match[1]) / 1000, int(match[2]) / 1000, match[3]) for match in found if match]
    return sorted(rows, reverse=True)


def by_package(imports: list[tuple[float, float, str]]) -> list[tuple[float, str]]:
    """Own milliseconds summed over the modules of each package, the slowest first."""
    sums: dict[str, float] = {}
    for own, _, module in imports:
        package = module.split(".")[0]
        sums[package] = sums.get(package, 0.0) + own
    return sorted(((total, package) for package, total in sums.items()), reverse=True)


def slowest_functions(arguments: Sequence[str], n: int) -> list[tuple[float, float, str]]:
    """(own seconds, seconds with what it calls, function) of one predict under the profiler, after the imports."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "profile"
        subprocess.run(
            [sys.executable, __file__, "--profile", str(file), *arguments], check=True, stdout=subprocess.DEVNULL
        )
        stats: dict[Any, Any] = vars(pstats.Stats(str(file)))["stats"]
    rows = [
        (own, whole, f"{'/'.join(Path(path).parts[-2:])}:{line} {name}")
        for (path, line, name), (_, _, own, whole, _) in stats.items()
        if "importlib" not in path
    ]
    return sorted(rows, key=lambda row: -row[0])[:n]


def profile(file: Path, arguments: Sequence[str]) -> None:
    """Run one command of triphase under the profiler, after everything is imported."""
    import triphase.__main__

    import_module(f"triphase.cli.{arguments[0]}")
    sys.argv = ["triphase", *arguments]
    profiler = cProfile.Profile()

    def leave(status: int) -> None:
        profiler.disable()
        profiler.dump_stats(file)
        sys.stdout.flush()
        real_exit(status)

    real_exit, os._exit = os._exit, leave  # type: ignore[assignment]
    profiler.enable()
    triphase.__main__.main()


def main() -> None:
    """Measure and print."""
    if sys.argv[1:2] == ["--profile"]:
        profile(Path(sys.argv[2]), sys.argv[3:])
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, help="model to ask; without it one is taught 5 classes")
    parser.add_argument("--photo", type=Path, help="photo to ask about")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--top", type=int, default=15, help="imports and functions to list")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        model, photo = options.model, options.photo
        if model is None or photo is None:
            photos = Path(folder) / "photos"
            make_photos(photos)
            model, photo = Path(folder) / "model", next(photos.glob("test/*/*.png"))
            for lesson in ("lesson1", "lesson2"):
                command = [*TRIPHASE, "teach", str(model), str(photos / lesson)]
                subprocess.run(command, check=True, capture_output=True)
        report(["predict", str(model), str(photo)], options.rounds, options.top)


def report(arguments: list[str], rounds: int, top: int) -> None:
    """Print the medians, their difference, the imports and the functions."""
    commands = {"import torch": TORCH, "triphase predict": [*TRIPHASE, *arguments]}
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in commands}
    for _ in range(rounds + 1):
        for name, command in commands.items():
            times[name].append(seconds(command))
    for column, unit in enumerate(("by the clock", "of processor time")):
        taken = {name: [pair[column] for pair in pairs[1:]] for name, pairs in times.items()}  # the first warms up
        medians = {name: statistics.median(values) for name, values in taken.items()}
        for name, values in taken.items():
            print(f"{name:<18} {medians[name]:.2f} s {unit} (of {rounds}: {min(values):.2f} to {max(values):.2f})")
        above = medians["triphase predict"] - medians["import torch"]
        print(f"{'difference':<18} {above:.2f} s {unit} (goal: at most {GOAL} s)\n")
    imports, torch_alone = slowest_imports([*TRIPHASE, *arguments]), {row[2] for row in slowest_imports(TORCH)}
    extra = [row for row in imports if row[2] not in torch_alone]
    total = sum(row[0] for row in extra)
    print(f"imports beyond torch's own: {total:.0f} ms in {len(extra)} modules; by package (ms)")
    print("  " + ", ".join(f"{package} {total:.0f}" for total, package in by_package(extra)[:top]))
    for own, whole, module in extra[:top]:
        print(f"  {own:7.1f} ms own {whole:8.1f} ms in all  {module}")
    print("\nfunctions of one predict, after the imports")
    for own, whole, name in slowest_functions(arguments, top):
        print(f"  {1000 * own:7.1f} ms own {1000 * whole:8.1f} ms in all  {name}")


if __name__ == "__main__":
    main()
