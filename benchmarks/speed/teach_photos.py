"""Seconds of lessons and answers on real photos, beside another version of the project: taking turns in one run.

    python benchmarks/speed/teach_photos.py --photos grocery --against ../checkout-of-before [--rounds 3]

`grocery` has train/CLASS/*.jpg and test/CLASS/*.jpg, and the other version is a checkout (`git worktree add`). Each
command runs in a process of its own: a first lesson of 20 classes, a second of 5, the second with --quick until its
first version is in use, and `predict` of 100 test photos. Ratios are of medians.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from itertools import islice
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import photo_sets

HERE = Path(__file__).resolve().parents[2]
N_ANSWERED = 100
MEASURED = ("first lesson", "second lesson", "--quick", "predict")


def seconds(source: Path, *words: str | Path, until: str | None = None) -> float:
    """How long a command of one version takes, or how long until it prints some words."""
    command = [sys.executable, "-m", "triphase", *map(str, words)]
    environment = os.environ | {"PYTHONPATH": str(source / "src"), "PYTHONUNBUFFERED": "1"}
    started, found = time.perf_counter(), None
    out, both = subprocess.PIPE, subprocess.STDOUT
    with subprocess.Popen(command, env=environment, text=True, stdout=out, stderr=both) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if until is not None and until in line and found is None:
                found = time.perf_counter() - started
    if process.returncode != 0:
        sys.exit(f"{' '.join(command)} failed in {source}")
    if until is None:
        return time.perf_counter() - started
    if found is None:
        sys.exit(f"{' '.join(command)} never said {until!r} in {source}")
    return found


def measured(source: Path, lessons: list[Path], photos: list[Path], work: Path) -> dict[str, float]:
    """One round of one version."""
    model, first, second = work / "model", *lessons
    shutil.rmtree(model, ignore_errors=True)
    taken = {"first lesson": seconds(source, "teach", model, first, "--force")}
    quick = shutil.copytree(model, work / "quick")
    taken["second lesson"] = seconds(source, "teach", model, second, "--force")
    taken["--quick"] = seconds(source, "teach", quick, second, "--force", "--quick", until="in use")
    shutil.rmtree(quick)
    taken["predict"] = seconds(source, "predict", model, *photos)
    return taken


def main() -> None:
    """Measure both versions and print a table."""
    parser = argparse.ArgumentParser(description="Lessons on real photos beside another version of the project.")
    parser.add_argument("--photos", type=Path, required=True, help="a folder with train/ and test/")
    parser.add_argument("--against", type=Path, required=True, help="a checkout of the other version")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    data = photo_sets.read(arguments.photos)
    plan = photo_sets.lessons(photo_sets.draw(data.train, None, 0), 0, 20, 5, False)[:2]
    photos = list(islice((file for files in data.test.values() for file in files[:5]), N_ANSWERED))
    versions = {"this": HERE, "other": arguments.against.resolve()}
    rounds: dict[str, list[dict[str, float]]] = {name: [] for name in versions}
    with tempfile.TemporaryDirectory() as folder:
        lessons = [photo_sets.link(lesson, Path(folder) / f"lesson{i}") for i, lesson in enumerate(plan, start=1)]
        for number in range(1, arguments.rounds + 1):
            for name, source in versions.items():
                rounds[name].append(measured(source, lessons, photos, Path(folder)))
                said = ", ".join(f"{what} {taken:.1f} s" for what, taken in rounds[name][-1].items())
                print(f"round {number} of {arguments.rounds}, {name}: {said}", file=sys.stderr, flush=True)
    sizes = [sum(map(len, lesson.values())) for lesson in plan]
    print(f"\nLessons of {sizes[0]} and {sizes[1]} photos, {len(photos)} answers; medians of {arguments.rounds}.\n")
    print("| | other, s | this, s | ratio |\n| --- | --- | --- | --- |")
    for what in MEASURED:
        this, other = (median(taken[what] for taken in rounds[name]) for name in ("this", "other"))
        print(f"| {what} | {other:.1f} | {this:.1f} | {this / other:.2f} |")


if __name__ == "__main__":
    main()
