"""The paper's 257 runs on 8 GPUs, on paper: hours, storage and bytes moved, from costs per image measured here.

python benchmarks/cluster_plan.py [--speedup 100] [--gpus 8] [--cores-per-gpu 8] [--save-every 1800]

Costs are processor seconds of one thread, so that other work on the machine matters little.
"""

from __future__ import annotations

import argparse
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from statistics import median
from time import process_time

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.nn import functional as F

from triphase.bench.benchmarks import Benchmark, find
from triphase.bench.sweep.grid import Sweep
from triphase.data.augment import n_views
from triphase.data.decoding import decode
from triphase.models import SplitClassifier, build

LEARNERS = {"tpc": 1.0, "ar1": 0.96, "bic": 1.2, "derpp": 1.03}  # training time as a multiple of TPC's: speed.md
IMAGES, ROUNDS = 4, 2
PHOTO = (500, 375)  # pixels of a typical photo of ImageNet


@dataclass(frozen=True)
class Dataset:
    """What a benchmark reads; experiences are taken to be of equal size after the first."""

    name: str
    train: int
    test: int
    first: int  # images of the first experience
    size: int  # of the images as the memory stores them
    gigabytes: float
    decodes: bool  # photos are decoded whenever they are read


DATASETS = {
    "imagenet-100": Dataset("ImageNet", 1_281_167, 50_000, 12_812, 256, 144.0, True),
    "core50-41": Dataset("CORe50", 119_894, 44_972, 23_979, 128, 8.1, True),
    "core50-nicv2-391": Dataset("CORe50", 119_894, 44_972, 3_000, 128, 8.1, True),
    "cifar100-11": Dataset("CIFAR-100", 50_000, 10_000, 25_000, 32, 0.2, False),
}


@dataclass(frozen=True)
class Costs:
    """Processor seconds per image of one network."""

    llf: float  # forward
    csf: float  # forward and backward, with the head
    all: float  # forward and backward of everything
    parameters: int


@dataclass(frozen=True)
class Work:
    """What one run of TPC does."""

    llf: int  # images through llf, forward
    csf: int  # through csf and head, forward and backward
    all: int  # through everything, forward and backward
    evaluated: int  # through csf and head, forward
    decoded: int
    experiences: int


def work(b: Benchmark, d: Dataset) -> Work:
    """Image passes from the recipes: every step has a full minibatch."""
    n = b.n_experiences
    each = (d.train - d.first) / (n - 1)
    first = b.first.epochs * ceil(d.first / b.first.n_mbe) * b.first.n_mbe
    steps = b.rest.epochs * ceil(each / b.rest.n_mbe) * (n - 1)
    passes = steps * (b.rest.n_mbe + b.rest.n_mbr)
    points = b.evaluate_after or tuple(range(1, n + 1))
    tested = [1.0 if b.evaluation == "all" else (d.first + each * (i - 1)) / d.train for i in points]
    evaluated = round(sum(tested) * d.test)
    views = n_views(b.rest.augment)
    if views is not None:  # latents are computed once
        return Work(views * d.train + d.test, first + passes, 0, evaluated, d.train + d.test, n)
    if not b.pretrained:
        return Work(passes + d.test, passes, first, evaluated, d.train + d.test, n)
    read = first + steps * b.rest.n_mbe + d.test
    return Work(first + passes + d.test, first + passes, 0, evaluated, read, n)


def measure(b: Benchmark) -> Costs:
    """The costs of the benchmark's network, random weights."""
    model: SplitClassifier = build(b.backbone, 100, image_size=b.image_size, seed=0)
    x = torch.randint(0, 256, (IMAGES, 3, b.image_size, b.image_size), dtype=torch.uint8)
    y = torch.arange(IMAGES)
    with torch.no_grad():
        z = model.encode(x)

    def learn(part: Callable[[], torch.Tensor]) -> Callable[[], object]:
        def step() -> None:
            F.cross_entropy(part(), y).backward()

        return step

    def forward() -> torch.Tensor:
        with torch.no_grad():
            return model.encode(x)

    llf = seconds(forward)
    model.requires_grad_(True)
    csf = seconds(learn(lambda: model.tail(z)))
    whole = seconds(learn(lambda: model.tail(model.encode(x))))
    return Costs(llf, csf, max(whole, llf + csf), sum(p.numel() for p in nn.Module.parameters(model)))


def seconds(call: Callable[[], object]) -> float:
    """Processor seconds per image: the median of some rounds after a first one."""
    times = []
    for _ in range(ROUNDS + 1):
        since = process_time()
        call()
        times.append(process_time() - since)
    return median(times[1:]) / IMAGES


def decoding() -> float:
    """Processor seconds to decode a photo of ImageNet's usual size to 256 x 256."""
    pixels = np.random.default_rng(0).integers(0, 256, (24, 32, 3), dtype=np.uint8)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "photo.jpg")
        Image.fromarray(pixels).resize(PHOTO, Image.Resampling.BICUBIC).save(path, quality=95)
        return seconds(lambda: [decode(path, 256) for _ in range(IMAGES)])


def main() -> None:
    """Print the costs, the passes, and the plan."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--speedup", type=float, default=100.0, help="of a GPU over one thread here")
    parser.add_argument("--gpus", type=int, default=8)
    parser.add_argument("--cores-per-gpu", type=int, default=8)
    parser.add_argument("--save-every", type=float, default=1800.0)
    given = parser.parse_args()
    torch.set_num_threads(1)
    photo = decoding()
    print(f"decoding: {1e3 * photo:.1f} ms a photo of {PHOTO[0]} x {PHOTO[1]}\n")
    measured = {find(name).backbone: measure(find(name)) for name in DATASETS}
    print("| network | llf forward | csf forward and backward | all forward and backward |\n|---|---|---|---|")
    for name, cost in measured.items():
        print(f"| {name} | {1e3 * cost.llf:.2f} ms | {1e3 * cost.csf:.2f} ms | {1e3 * cost.all:.2f} ms |")
    print(
        "\n| benchmark | runs | images through csf a run | GPU hours a run | decoding hours a run | hours of all |",
        end="",
    )
    print(" checkpoint, GB | to the storage, TB |\n|---|---|---|---|---|---|---|---|")
    sums: Counter[str] = Counter()
    for name, dataset in DATASETS.items():
        benchmark, cost = find(name), measured[find(name).backbone]
        todo = work(benchmark, dataset)
        planned = Counter(run.learner for run in Sweep(Path("out"), (name,), tuple(LEARNERS)).planned())
        runs, weight = sum(planned.values()), sum(LEARNERS[learner] * n for learner, n in planned.items())
        computing = todo.llf * cost.llf + todo.csf * cost.csf + todo.all * cost.all + todo.evaluated * cost.csf / 3
        gpu = computing / given.speedup / 3600
        cpu = todo.decoded * photo / given.cores_per_gpu / 3600 if dataset.decodes else 0.0
        hours = max(gpu, cpu) * weight / given.gpus
        memory = benchmark.memory * 3 * dataset.size**2 / 1e9
        model = 2 * 4 * cost.parameters / 1e9  # weights and momentum
        saves = max(gpu, cpu) * weight * 3600 / given.save_every
        moved = (saves * model + min(saves, runs * todo.experiences) * memory) / 1e3
        sums.update({"runs": runs, "hours": hours, "moved": moved, "checkpoints": given.gpus * (memory + model)})
        print(f"| {name} | {runs} | {todo.csf / 1e6:.1f} million | {gpu:.2f} | {cpu:.2f} | {hours:.1f} |", end="")
        print(f" {memory + model:.2f} | {moved:.2f} |")
    print(f"| all | {sums['runs']} | | | | {sums['hours']:.0f} | | {sums['moved']:.1f} |")


if __name__ == "__main__":
    main()
