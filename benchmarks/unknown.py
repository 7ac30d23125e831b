"""Does the model know what it does not know, and how sure it is? 50 classes of CIFAR-100 taught, the other 50 never.

    python benchmarks/unknown.py --data DIR --figure unknown.png      # DIR holds cifar-100-binary/

EfficientNet-Lite0 at 96 px learns 5 lessons of 10 classes with TPC, 100 images a class of which a few are held out
as exemplars, inside the same memory as replay. Test images of taught classes are then told apart from test images
of the others by several scores; thresholds and the temperature come from the exemplars alone. Prints one JSON
document: per class order and as means.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, pstdev
from typing import Any

import torch
from matplotlib.figure import Figure
from torch import Tensor

from triphase import TPC, Memory, Recipe
from triphase.app import trust
from triphase.bench.benchmarks import class_order, minibatch_ratio
from triphase.data import sources
from triphase.data.images import Images
from triphase.data.latents import features, latents, unpack
from triphase.data.streams import class_incremental, per_class
from triphase.models import SplitClassifier, build

TAUGHT, LESSONS, PER_CLASS, TESTED, MEMORY, EXEMPLARS, BATCH = 50, 5, 100, 50, 1000, 5, 128
SHRINKAGE = 0.2  # of the shared covariance towards a multiple of the identity
Scores = dict[str, Tensor]


@dataclass(frozen=True)
class Seen:
    """Some images as the model sees them after the last lesson."""

    y: Tensor  # -1 where the class was never taught
    logits: Tensor
    learned: Tensor  # features of csf as TPC left it
    frozen: Tensor  # features of csf as it came


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure calibration and the detection of unknown classes.")
    parser.add_argument("--data", type=Path, required=True, help="directory that holds cifar-100-binary/")
    parser.add_argument("--orders", type=int, default=3, help="class orders")
    parser.add_argument("--figure", type=Path, help="where to draw ROC curves and a histogram")
    arguments = parser.parse_args()
    began = time.perf_counter()
    results, drawn = [], None
    for order in range(arguments.orders):
        exemplars, test, train, replay = teach(arguments.data, order)
        temperature = trust.fit_temperature(exemplars.logits, exemplars.y)
        statistics = Statistics.of(train, replay)
        held, tested = (scores(seen, statistics, temperature) for seen in (exemplars, test))
        results.append(measure(exemplars, test, temperature, held, tested))
        drawn = drawn or (tested, test.y >= 0, held)
    document = {"orders": results, "mean": averaged(results), "seconds": time.perf_counter() - began}
    print(json.dumps(document, indent=1))
    if arguments.figure and drawn:
        draw(arguments.figure, *drawn)


if __name__ == "__main__":
    main()
