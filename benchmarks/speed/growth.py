"""Does an experience cost more, the more came before it? And with more classes, or a larger memory?

python benchmarks/speed/growth.py --data DIR --figure growth.png
"""

from __future__ import annotations

import argparse
import copy
import json
import warnings
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
import torch.utils.benchmark
from matplotlib.figure import Figure
from torch import nn
from workload import timed

from triphase import TPC, Experience, Images, Memory, Recipe, SplitClassifier
from triphase.data import sources
from triphase.data.streams import stream
from triphase.errors import TriphaseWarning
from triphase.learners.protocol import Step
from triphase.models import build, linear_head, small_cnn

LESSONS, PER_LESSON, CAPACITY = 200, 20, 500


def over_experiences(data: Path, rounds: int) -> dict[str, Any]:
    """200 lessons of 20 images of one class, memory of 500: the cost of each lesson once the memory is full.

    The clock is a copy of the learner as it was when the memory had just become full: it learns the same lesson
    again after each one. A cost is the ratio of the two, so that a machine whose speed drifts does not matter.
    """
    train, test, names = sources.cifar100(data)
    members = [(train.labels == c).nonzero().view(-1) for c in range(100)]
    lessons = [train.select(members[i % 100][PER_LESSON * (i // 100) :][:PER_LESSON]) for i in range(LESSONS)]
    lesson_stream = stream(lessons, test.select(torch.arange(100)), names, n_classes=100)
    recipe = Recipe(epochs=4, lr=0.005, n_mbe=PER_LESSON, n_mbr=60, augment="flip")
    full = CAPACITY // PER_LESSON + 1
    times: list[list[float]] = []
    for _ in range(rounds):
        learner = TPC(small_cnn(100, channels=3, image_size=32), Memory(CAPACITY, seed=0))
        for experience in lesson_stream.experiences[:full]:
            learner.learn(experience, recipe)
        early, times = copy.deepcopy(learner), [*times, []]
        for experience in lesson_stream.experiences[full:]:
            with timed() as seconds:
                learner.learn(experience, recipe)
            with timed() as clock:
                copy.deepcopy(early).learn(lesson_stream.experiences[full], recipe)
            times[-1].append(seconds[0] / clock[0])
    y, x = np.median(np.array(times), axis=0), np.arange(full, LESSONS)
    novel = x < 100  # after that every class is known: no Phase I, another kind of lesson
    kinds = {"new classes": novel, "repetitions": ~novel}
    growth = {kind: relative_growth(x[chosen], y[chosen]) for kind, chosen in kinds.items()}
    return {"lessons": x.tolist(), "cost": y.tolist(), "growth": growth}


def relative_growth(x: np.ndarray, y: np.ndarray) -> tuple[float, float]:
    """Growth from the first to the last lesson, as a share of the first, and its upper 95 % bound."""
    design = np.stack([np.ones(len(x)), (x - x[0]) / (x[-1] - x[0])], axis=1)
    (start, rise), *_ = np.linalg.lstsq(design, y, rcond=None)
    residual = y - design @ np.array([start, rise])
    variance = residual @ residual / (len(x) - 2) * np.linalg.inv(design.T @ design)
    return float(rise / start), float((rise + 1.645 * np.sqrt(variance[1, 1])) / start)


def step_cost(n_classes: int, capacity: int) -> float:
    """Median seconds of a Phase II step of TPC on Lite0's latents at 96 px, minibatch 64 + 64."""
    lite0 = build("efficientnet_lite0", 0, image_size=96)
    model = SplitClassifier(nn.Identity(), lite0.csf, linear_head(1280, n_classes))
    z = torch.rand(max(capacity, 640), 192, 3, 3)
    memory = Memory(capacity, seed=0, store="latent", dtype=torch.float16)
    y = torch.arange(capacity) % (n_classes - 1)
    memory.add(y, torch.arange(capacity), lambda rows: {"z": z[rows].permute(0, 2, 3, 1)})
    learner = TPC(model, memory)
    learner.known = set(range(n_classes - 1))
    last = [0.0]
    steps: list[float] = []

    def tick(step: Step) -> None:
        now = torch.utils.benchmark.timer()
        if step.phase == "II" and step.step > 2:
            steps.append(now - last[0])
        last[0] = now
        if len(steps) >= 12:
            raise StopIteration

    labels = torch.full((640,), n_classes - 1)
    lesson = Experience(2, Images(z[:640].__getitem__, labels, torch.arange(10**6, 10**6 + 640)))
    try:
        learner.learn(lesson, Recipe(epochs=5, lr=1e-4, n_mbe=64, n_mbr=64), tick)
    except StopIteration:
        pass
    return median(steps)


def main() -> None:
    """Measure, draw, print one JSON document."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder with cifar-100-binary/")
    parser.add_argument("--figure", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", TriphaseWarning)
    lessons = over_experiences(arguments.data, arguments.rounds)
    classes = {n: step_cost(n, 2000) for n in (100, 250, 500, 1000)}
    memory = {n: step_cost(100, n) for n in (500, 2000, 5000, 20_000)}
    figure = Figure(figsize=(10, 3.2), layout="constrained")
    axes = figure.subplots(1, 3)
    axes[0].plot(lessons["lessons"], lessons["cost"], ".", color="#6a3d9a")
    axes[0].set(xlabel="experience", ylabel="cost of an experience", title="1 = the first with a full memory")
    for panel, costs, title in ((axes[1], classes, "classes"), (axes[2], memory, "samples in memory")):
        panel.plot(list(costs), [1000 * s for s in costs.values()], "o-", color="#6a3d9a")
        panel.set(xlabel=title, ylabel="ms per step")
    for panel in axes:
        panel.set_ylim(bottom=0)
        panel.grid(alpha=0.3)
    figure.savefig(arguments.figure, dpi=130)
    print(
        json.dumps(
            {"growth and its upper 95 % bound": lessons["growth"], "classes": classes, "memory": memory}, indent=1
        )
    )


if __name__ == "__main__":
    main()
