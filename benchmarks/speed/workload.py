"""The work that all contestants do: replay fine-tuning on a real stream, the same minibatches for everybody."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from triphase import FineTune, Memory, Recipe, SplitClassifier, Stream, class_incremental
from triphase.context import Context
from triphase.data import sources
from triphase.data.images import subsample
from triphase.models import build, lacks_statistics, rebuild_batchnorm

EPOCHS, N_MBE, N_MBR, LR, CSF_LR, MOMENTUM = 4, 64, 64, 0.01, 0.01, 0.9


@dataclass(frozen=True)
class Workload:
    """A stream over CIFAR-100 and the network that learns it."""

    backbone: str
    stream: Stream
    memory: int
    image_size: int
    weights: Path | None
    augment: str = "flip"

    @property
    def first(self) -> Recipe:
        """Without replay."""
        return Recipe(
            epochs=EPOCHS, lr=LR, csf_lr=CSF_LR, n_mbe=N_MBE + N_MBR, momentum=MOMENTUM, augment=self.augment
        )

    @property
    def rest(self) -> Recipe:
        """With replay."""
        return Recipe(
            epochs=EPOCHS, lr=LR, csf_lr=CSF_LR, n_mbe=N_MBE, n_mbr=N_MBR, momentum=MOMENTUM, augment=self.augment
        )

    def model(self) -> SplitClassifier:
        """The network with its pre-trained weights."""
        model = build(self.backbone, self.stream.n_classes or 0, image_size=self.image_size, weights=self.weights)
        if lacks_statistics(model):
            rebuild_batchnorm(model, self.stream.experiences[0].images.read(torch.arange(64)))
        return model

    def learner(self, context: Context | None = None) -> FineTune:
        """Replay fine-tuning with a class-balanced reservoir."""
        return FineTune(self.model(), Memory(self.memory, seed=0), context=context)

    @property
    def passes(self) -> int:
        """Images that pass through training, replayed ones included."""
        total = 0
        for experience in self.stream.experiences:
            recipe = self.first if experience.index == 1 else self.rest
            steps = -(-len(experience.images) // recipe.n_mbe)
            total += recipe.epochs * (len(experience.images) + steps * recipe.n_mbr)
        return total

    @property
    def distinct(self) -> int:
        """Different views that llf sees: each image and its mirror image."""
        return 2 * sum(len(e.images) for e in self.stream.experiences)


def workload(backbone: str, data: Path, *, experiences: int, per: int, weights: Path | None = None) -> Workload:
    """Experiences of ten classes with `per` images each, a memory as large as an experience."""
    train, test, names = sources.cifar100(data)
    size = 96
    train, test = subsample(train, per).resized(size), subsample(test, 1).resized(size)
    stream = class_incremental(train, test, names, first=10, then=10, n_experiences=experiences)
    return Workload(backbone, stream, 10 * per, size, weights)


def pixels(load: Workload) -> list[tuple[Tensor, Tensor]]:
    """All images of each experience, decoded and scaled beforehand: a gift to contestants that take pixels."""
    return [(e.images.read(torch.arange(len(e.images))), e.images.labels) for e in load.stream.experiences]


def sgd(model: nn.Module) -> torch.optim.SGD:
    """The optimiser of the contestants that we wrote ourselves."""
    return torch.optim.SGD(
        [p for p in model.parameters() if p.requires_grad], lr=LR, momentum=MOMENTUM, foreach=True
    )


@contextmanager
def peak_memory() -> Iterator[list[float]]:
    """The highest anonymous memory of this process while inside, in MB above what it had at the start."""
    peak, stop = [0.0], threading.Event()
    start = _anonymous()

    def watch() -> None:
        while not stop.wait(0.02):
            peak[0] = max(peak[0], _anonymous() - start)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield peak
    finally:
        stop.set()
        thread.join()


def _anonymous() -> float:
    text = Path("/proc/self/status").read_text()
    return int(text.split("RssAnon:")[1].split()[0]) / 1024


@contextmanager
def timed() -> Iterator[list[float]]:
    """Seconds spent inside."""
    result = [0.0]
    start = time.perf_counter()
    yield result
    result[0] = time.perf_counter() - start
