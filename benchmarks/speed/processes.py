"""How much faster two processes of one thread each train than one: the same minibatches, taking turns in one run.

OMP_NUM_THREADS=1 torchrun --nproc-per-node 2 benchmarks/speed/processes.py [--rounds 5] [--steps 8]

"Efficiency" is the speed-up by the number of processes. Beside the time on the clock stands processor time: on a
busy machine, where processes wait for a core, it says what sharding itself costs. The first lines compare a memory
that every process has whole with one in parts, and latents that one process computes with those that are split.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from time import perf_counter, process_time
from typing import Any

import torch

from triphase import Experience, FineTune, Recipe, SplitClassifier
from triphase.context import Context
from triphase.data.feature_cache import encode
from triphase.data.images import Images
from triphase.learners import Step
from triphase.models import build
from triphase.processes import Processes, join
from triphase.randomness import generator

N_MB, N_CLASSES = 128, 10
WARM_UP = 2  # steps that are not timed


@dataclass(frozen=True)
class Work:
    """A network, and whether all of it learns."""

    name: str
    backbone: str
    image_size: int
    from_scratch: bool

    def model(self) -> SplitClassifier:
        """The network with its first weights."""
        channels: dict[str, Any] = {"channels": 3} if self.backbone == "small_cnn" else {}
        return build(self.backbone, N_CLASSES, image_size=self.image_size, **channels)


WORKS = (
    Work("small_cnn, 8 px, csf learns", "small_cnn", 8, from_scratch=False),
    Work("ResNet-32, 32 px, csf learns", "resnet32", 32, from_scratch=False),
    Work("ResNet-32, 32 px, everything learns", "resnet32", 32, from_scratch=True),
)


def images(n: int, size: int) -> Images:
    """Noise: what is in the images does not matter here."""
    pixels = torch.randint(256, (n, 3, size, size), generator=generator(0, "pixels"), dtype=torch.uint8)
    return Images.from_array(pixels, torch.arange(n) % N_CLASSES)


def step_seconds(work: Work, processes: Processes, steps: int) -> tuple[float, float]:
    """Of one step: on the clock, and of processor time in this process."""
    learner = FineTune(work.model(), pretrained=not work.from_scratch, context=Context(processes=processes))
    experience = Experience(1, images((steps + WARM_UP) * N_MB, work.image_size))
    times: list[tuple[float, float]] = []

    def tick(step: Step) -> None:
        times.append((perf_counter(), process_time()))

    learner.learn(experience, Recipe(epochs=1, lr=0.01, n_mbe=N_MB, augment="flip"), tick)
    first, last = times[WARM_UP - 1], times[-1]
    return (last[0] - first[0]) / steps, (last[1] - first[1]) / steps


def turns(rounds: int, processes: Processes, alone: Callable[[], None], together: Callable[[], None]) -> None:
    """The first process alone, then all of them; the others wait meanwhile."""
    for _ in range(rounds):
        processes.sum_(torch.zeros(1))
        if processes.is_first:
            alone()
        processes.sum_(torch.zeros(1))
        together()


def compare(work: Work, processes: Processes, rounds: int, steps: int) -> None:
    """Print the speed-up of one work."""
    ones: list[tuple[float, float]] = []
    twos: list[tuple[float, float]] = []
    turns(
        rounds,
        processes,
        lambda: ones.append(step_seconds(work, Processes(), steps)),
        lambda: twos.append(step_seconds(work, processes, steps)),
    )
    if processes.is_first:
        n = processes.size
        for what, column in (("on the clock", 0), ("of processor time", 1)):
            faster = median(one[column] / two[column] for one, two in zip(ones, twos, strict=True))
            alone, shared = (1000 * median(times[column] for times in rounds_) for rounds_ in (ones, twos))
            print(
                f"{work.name}, ms a step {what}: {alone:.0f} alone, {shared:.0f} in each of {n}: "
                f"speed-up {faster:.2f}, efficiency {100 * faster / n:.0f} %"
            )


def message(processes: Processes, rounds: int, n_channels: int = 32) -> None:
    """Print what it costs to sum the statistics of a BatchNorm layer over processes."""
    statistics = torch.zeros(2 * n_channels + 2, dtype=torch.float64)
    clock, processor = [], []
    for _ in range(100 * rounds):
        since = perf_counter(), process_time()
        processes.sum_(statistics)
        clock.append(perf_counter() - since[0])
        processor.append(process_time() - since[1])
    if processes.is_first:
        print(
            f"a sum of {len(statistics)} numbers over processes: {1000 * median(clock):.2f} ms on the clock, "
            f"{1000 * median(processor):.2f} of processor time"
        )


def latents(processes: Processes, rounds: int, n: int = 512) -> None:
    """Print what it costs to compute latents in one process and in all, with the exchange."""
    model, source, ones, twos = build("resnet32", N_CLASSES), images(n, 32), [], []
    model.freeze("llf")

    def seconds(context: Context) -> float:
        since = perf_counter()
        encode(model, n, source.read, context=context)
        return perf_counter() - since

    turns(
        rounds,
        processes,
        lambda: ones.append(seconds(Context())),
        lambda: twos.append(seconds(Context(processes=processes))),
    )
    if processes.is_first:
        print(f"latents of {n} images: {median(ones):.2f} s alone, {median(twos):.2f} s split")


def memory(processes: Processes, rounds: int, n_mbr: int = 64) -> None:
    """Print what replay costs from a memory in every process, and from one in parts that exchange samples."""
    stored = torch.zeros(2000, 32, 16, 16)  # latents of ResNet-32
    slots = torch.randperm(len(stored), generator=generator(0, "slots"))[:n_mbr]
    whole, parts = [], []
    for _ in range(20 * rounds):
        since = perf_counter()
        stored[slots[processes.shard()]]
        whole.append(perf_counter() - since)
        since = perf_counter()
        processes.gather(stored[slots[processes.shard()]])[: n_mbr // processes.size]
        parts.append(perf_counter() - since)
    if processes.is_first:
        size = stored.nbytes / 2**20
        print(
            f"replay of {n_mbr} latents: {1000 * median(whole):.2f} ms from {size:.0f} MB in every process, "
            f"{1000 * median(parts):.2f} ms from one in {processes.size} parts"
        )


def main() -> None:
    """Everything, one line each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--works", type=int, nargs="+", default=range(len(WORKS)), help="by number, from 0")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    with join() as processes:
        if processes.size == 1:
            parser.error("start it by torchrun --nproc-per-node 2")
        message(processes, chosen.rounds)
        memory(processes, chosen.rounds)
        latents(processes, chosen.rounds)
        for work in chosen.works:
            compare(WORKS[work], processes, chosen.rounds, chosen.steps)


if __name__ == "__main__":
    main()
