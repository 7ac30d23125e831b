"""Runs that several processes do together: learners in float64, where a wrong sum cannot hide in rounding."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from triphase import state as files
from triphase.bench.learners import make_learner
from triphase.context import Context
from triphase.data.feature_cache import latents, unpack
from triphase.data.memory import Memory
from triphase.data.recipe import Recipe
from triphase.data.streams import UNLABELLED, Experience
from triphase.learners.protocol import Learner
from triphase.models import SplitClassifier, with_batch_renorm
from triphase.processes import Processes, join
from triphase.testing import tiny_images, tiny_model

T = TypeVar("T")

# name: learner, its options, what else differs
CASES: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "tpc": ("tpc", {}, {}),
    "tpc from scratch on crops, patience": ("tpc", {}, {"scratch": True, "augment": "crop+flip", "patience": True}),
    "tpc with distillation and stored latents": ("tpc", {"distill": 1.0}, {"store": "latent"}),
    "tpc without memory": ("tpc", {}, {"memory": False}),
    "tpc on kept crops": ("tpc", {}, {"augment": "rrc+flip", "views": 2}),
    "tpc with pseudo-labels": ("tpc", {"unlabelled": "pseudo", "confidence": 0.0}, {"hidden": True}),
    "ar1 from scratch with renormalisation": ("ar1", {}, {"renorm": True, "scratch": True}),
    "bic": ("bic", {"stage2_epochs": 5}, {}),
    "derpp": ("derpp", {}, {}),
    "derpp on crops, logits online": ("derpp", {"logits": "online"}, {"augment": "crop+flip"}),
    "finetune": ("finetune", {}, {}),
    "replay on crops": ("replay", {}, {"augment": "rrc+flip"}),
    "joint from scratch": ("joint", {}, {"scratch": True}),
    "anchored": ("anchored", {}, {}),
    "slda from scratch": ("slda", {}, {"scratch": True}),
}


class Double(nn.Module):
    """From here on, everything is computed in float64."""

    def forward(self, x: Tensor) -> Tensor:
        return x.double()


class DoubleLinear(nn.Linear):
    """A head for features that were kept in float32."""

    def forward(self, input: Tensor) -> Tensor:
        return super().forward(input.double())


class Thread(Processes):
    """One of several threads that pass for processes: no start-up, and the same sums."""

    def __init__(self, rank: int, size: int, barrier: threading.Barrier, given: list[Any]) -> None:
        super().__init__(rank, size)
        self._barrier, self._given = barrier, given

    def sum_(self, tensor: Tensor) -> Tensor:
        parts = self._all(tensor.clone())
        return tensor.copy_(torch.stack(parts).sum(0))

    def exchange_(self, rows: Tensor, blocks: list[range]) -> None:
        if blocks:
            for block, part in zip(blocks, self._all(rows.clone()), strict=True):
                rows[block.start : block.stop] = part[block.start : block.stop]

    def from_first(self, message: bytes) -> bytes:
        first: bytes = self._all(message)[0]
        return first

    def _all(self, mine: T) -> list[T]:
        """What each thread gives."""
        self._given[self.rank] = mine
        self._barrier.wait(60)
        all_of_them = list(self._given)
        self._barrier.wait(60)
        return all_of_them


def in_threads(size: int, work: Callable[[Processes], T]) -> list[T]:
    """The result of each of several threads that pass for processes."""
    barrier, given = threading.Barrier(size), [None] * size

    def one(rank: int) -> T:
        try:
            return work(Thread(rank, size, barrier, given))
        except BaseException:
            barrier.abort()
            raise

    with ThreadPoolExecutor(size) as pool:
        return list(pool.map(one, range(size)))


def double_model(renorm: bool) -> SplitClassifier:
    model = tiny_model()
    if renorm:
        with_batch_renorm(model)
    head = DoubleLinear(model.n_features, model.n_classes, bias=False)
    torch.nn.init.zeros_(head.weight)
    llf, csf = (nn.Sequential(Double(), *block.children()) for block in (model.llf, model.csf))
    return SplitClassifier(llf, csf, head, image_size=6).double()


def experiences(hidden: bool = False) -> list[Experience]:
    """13 images, then more with an old class, then a single one: minibatches do not divide evenly.

    With `hidden`, some of them have no label.
    """
    images = tiny_images(per_class=12)
    rows = [torch.isin(images.labels, torch.tensor(classes)).nonzero().view(-1) for classes in ([0, 1], [1, 2, 3])]
    parts = [rows[0][:13], rows[1][8:], rows[0][20:21]]
    if hidden:
        images.labels[torch.cat([part[1::3] for part in parts])] = UNLABELLED
    return [Experience(i, images.select(part)) for i, part in enumerate(parts, start=1)]


def learned(case: str, processes: Processes) -> dict[str, Tensor]:
    """What a learner ends with: weights, memory, scores, and the losses on its way."""
    name, options, other = CASES[case]
    memory = Memory(12, seed=0, store=other.get("store", "raw")) if other.get("memory", True) else None
    learner = make_learner(
        name,
        double_model(other.get("renorm", False)),
        memory,
        options,
        pretrained=not other.get("scratch", False),
        context=Context(processes=processes),
    )
    recipe: dict[str, Any] = {"lr": 0.02, "augment": other.get("augment", "flip"), "views": other.get("views", 0)}
    recipe |= {"lr_schedule": "patience", "epochs": 8} if other.get("patience") else {"epochs": 3}
    losses: list[float] = []
    for experience in experiences(other.get("hidden", False)):
        n_mbr = 5 if experience.index > 1 else 0
        learner.learn(
            experience, Recipe(n_mbe=6, n_mbr=n_mbr, **recipe), lambda step: losses.append(float(step.loss))
        )
    return _end(learner) | {"losses": torch.tensor(losses)}


def _end(learner: Learner) -> dict[str, Tensor]:
    memory = getattr(learner, "memory", None)
    stored = {} if memory is None else {f"memory {name}": column for name, column in memory.columns.items()}
    z = unpack(latents(learner.model, tiny_images(), context=learner.context))
    return {**learner.model.state_dict(), **stored, "scores": learner.logits(z)}


def assert_close(found: Mapping[str, Tensor], expected: Mapping[str, Tensor], where: str) -> None:
    """The same to the rounding of float64."""
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        a, b = found[name].double(), tensor.double()
        assert a.shape == b.shape, f"{where}: {name}"
        gap = (a - b).abs().max() if b.numel() else 0
        assert torch.allclose(a, b, rtol=1e-9, atol=1e-10, equal_nan=True), f"{where}: {name} differs by {gap}"


def start(arguments: Sequence[Sequence[object]]) -> list[subprocess.Popen[str]]:
    """Python with each of these arguments, as processes that find each other, without torchrun."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    found = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": str(len(arguments))}
    return [
        subprocess.Popen(
            [sys.executable, *map(str, mine)],
            env={**os.environ, **found, "RANK": str(rank), "OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank, mine in enumerate(arguments)
    ]


def main() -> None:
    torch.set_num_threads(1)
    folder, *cases = sys.argv[1:]
    with join() as processes:
        for case in cases:
            files.save(Path(folder) / f"{case} {processes.rank}.safetensors", learned(case, processes))


if __name__ == "__main__":
    main()
