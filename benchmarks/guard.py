"""How often the guard refuses a good lesson, and how often it lets a poisoned one pass.

python benchmarks/guard.py --data DIR [--memory 1500]

The lessons of benchmarks/teach.py. Before each of the 20 lessons after the first, a copy of the model is taught the
same photos with their labels shuffled; nothing of it is kept. Then the model is taught the lesson as it is.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

import torch
from teach import SIZE, lessons, write

from triphase.app.options import ModelOptions
from triphase.app.plan import LessonSettings
from triphase.app.publishing import Outcome
from triphase.app.teach import teach
from triphase.data import sources
from triphase.data.images import Images
from triphase.randomness import generator


def shuffled(images: Images, seed: int) -> Images:
    """The same photos under each other's labels."""
    order = torch.randperm(len(images), generator=generator(seed, "poison"))
    return images.select(torch.arange(len(images)), images.labels[order])


def summary(outcome: Outcome) -> dict[str, Any]:
    """The verdict of a lesson."""
    verdict = outcome.verdict
    refused = {"by forgetting": verdict.refused, "by labels": outcome.labels_mixed_up}
    return {"published": outcome.published, **refused, "drop": verdict.drop, "held_out": verdict.n}


def main() -> None:
    """Teach, and print one JSON document."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder with cifar-100-binary/")
    parser.add_argument("--memory", type=int, default=1500)
    arguments = parser.parse_args()
    train, _, names = sources.cifar100(arguments.data)
    options = ModelOptions(image_size=SIZE, memory=arguments.memory)
    clean, poisoned = [], []
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch)
        model, copy = root / "model", root / "copy"
        for number, lesson in enumerate(lessons(train)):
            rows = torch.cat(lesson)
            images = train.select(rows)
            write(images, torch.arange(len(rows)), root / "clean", names)
            if number:
                shutil.copytree(model, copy)
                write(shuffled(images, number), torch.arange(len(rows)), root / "poison", names)
                poisoned.append(summary(teach(copy, root / "poison", options)))
                for folder in (copy, root / "poison"):
                    shutil.rmtree(folder)
            outcome = teach(model, root / "clean", options)
            if number:
                clean.append(summary(outcome))
            if not outcome.published:
                teach(model, root / "clean", options, LessonSettings(force=True))
            shutil.rmtree(root / "clean")
    rates = {
        "lessons": len(clean),
        "false refusals": sum(not lesson["published"] for lesson in clean) / len(clean),
        "misses": sum(lesson["published"] for lesson in poisoned) / len(poisoned),
        "refused for forgetting alone": sum(lesson["by forgetting"] for lesson in poisoned) / len(poisoned),
    }
    print(json.dumps({**rates, "clean": clean, "poisoned": poisoned}, indent=1))


if __name__ == "__main__":
    main()
