"""One new class with 100 photos into a model of 50 classes with 80 photos each: seconds of the whole command.

python benchmarks/one_class.py --data DIR [--image-size 128] [--times 3]

Real photos: CIFAR-100 written out as PNG folders. `--quick` answers first from its closed form: the seconds until
that version is in use are printed, too.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

from teach import write

from triphase.data import sources
from triphase.data.images import Images

CLASSES, PHOTOS, NEW = 50, 80, 100


def folders(train: Images, names: list[str], root: Path) -> None:
    """Photos of the first classes and of the next one; without the class that shares a photo with another."""
    rows = [(train.labels == c).nonzero().view(-1) for c in range(100) if names[c] != "girl"]
    for taken in rows[:CLASSES]:
        write(train, taken[:PHOTOS], root / "base", names)
    write(train, rows[CLASSES][:NEW], root / "new", names)


def command(*words: str | Path, model: Path) -> tuple[dict[str, Any], float, float]:
    """The document that `triphase teach` prints, seconds until another version was in use, and seconds in all."""
    before = (model / "CURRENT").read_bytes() if model.exists() else b""
    start, first = time.perf_counter(), None
    line = [sys.executable, "-m", "triphase", "teach", str(model), *map(str, words), "--json"]
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as running:
        while running.poll() is None:
            time.sleep(0.02)
            if first is None and (model / "CURRENT").exists() and (model / "CURRENT").read_bytes() != before:
                first = time.perf_counter() - start
        seconds = time.perf_counter() - start
        assert running.stdout is not None
        document: dict[str, Any] = json.loads(running.stdout.read())
    assert document["published"], f"refused: {document}"
    return document, first or seconds, seconds


def main() -> None:
    """Teach the 50 classes once, the new one several times, and print one JSON document."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder with cifar-100-binary/")
    parser.add_argument("--image-size", default="128")
    parser.add_argument("--times", type=int, default=3)
    arguments = parser.parse_args()
    train, _, names = sources.cifar100(arguments.data)
    result: dict[str, Any] = {"image_size": int(arguments.image_size)}
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch)
        folders(train, names, root)
        _, _, result["seconds_of_the_first_lesson"] = command(
            root / "base", "--image-size", arguments.image_size, model=root / "model"
        )
        for way in ("whole", "quick"):
            firsts, seconds = [], []
            for _ in range(arguments.times):
                shutil.copytree(root / "model", root / "copy")
                flags = ["--quick"] if way == "quick" else []
                document, first, total = command(root / "new", *flags, model=root / "copy")
                shutil.rmtree(root / "copy")
                firsts.append(first)
                seconds.append(total)
            result[way] = {"first_answer": median(firsts), "seconds": median(seconds), "all": seconds}
        verdict = document["verdict"]
        result |= {"known_before": verdict["before"], "known_after": verdict["after"], "held_out": verdict["n"]}
        result["new_class"] = [c["after"] for c in document["classes"] if c["new"]]
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
