"""Runs that several processes do together: learners in float64, where a wrong sum cannot hide in rounding."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from triphase import state as files
from triphase.bench.learners import make_learner
from triphase.context import Context
from triphase.data.feature_cache import latents, unpack
from triphase.data.memory import Memory
from triphase.data.recipe import Recipe
from triphase.data.streams import Experience
from triphase.learners.protocol import Learner
from triphase.models import SplitClassifier, with_batch_renorm
from triphase.processes import Processes, join
from triphase.testing import tiny_images, tiny_model

# name: learner, its options, what else differs
CASES: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "tpc": ("tpc", {}, {}),
    "tpc from scratch on crops, patience": ("tpc", {}, {"scratch": True, "augment": "crop+flip", "schedule": True}),
    "tpc with distillation and stored latents": ("tpc", {"distill": 1.0}, {"store": "latent"}),
    "tpc without memory": ("tpc", {}, {"memory": False}),
    "tpc on kept crops": ("tpc", {}, {"augment": "rrc+flip", "views": 2}),
    "ar1 from scratch with renormalisation": ("ar1", {}, {"renorm": True, "scratch": True}),
    "bic": ("bic", {"stage2_epochs": 5}, {}),
    "derpp": ("derpp", {}, {}),
    "derpp on crops, logits online": ("derpp", {"logits": "online"}, {"augment": "crop+flip"}),
    "finetune": ("finetune", {}, {}),
    "replay": ("replay", {}, {"augment": "rrc+flip"}),
    "joint": ("joint", {}, {"scratch": True}),
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


def double_model(renorm: bool) -> SplitClassifier:
    model = tiny_model()
    if renorm:
        with_batch_renorm(model)
    head = DoubleLinear(model.n_features, model.n_classes, bias=False)
    torch.nn.init.zeros_(head.weight)
    llf, csf = nn.Sequential(Double(), *model.llf), nn.Sequential(Double(), *model.csf)
    return SplitClassifier(llf, csf, head, image_size=6).double()


def experiences() -> list[Experience]:
    """13 images, then 2 new classes beside an old one, then a single image; minibatches do not divide evenly."""
    images = tiny_images(per_class=12)
    rows = [torch.isin(images.labels, torch.tensor(classes)).nonzero().view(-1) for classes in ([0, 1], [1, 2, 3])]
    parts = [rows[0][:13], rows[1][8:], rows[0][20:21]]
    return [Experience(i, images.select(part)) for i, part in enumerate(parts, start=1)]


def learned(case: str, processes: Processes) -> dict[str, Tensor]:
    """What a learner ends with: weights, memory, and scores."""
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
    recipe |= {"lr_schedule": "patience", "epochs": 8} if other.get("schedule") else {"epochs": 3}
    losses: list[float] = []
    for experience in experiences():
        n_mbr = 5 if experience.index > 1 else 0
        learner.learn(
            experience, Recipe(n_mbe=6, n_mbr=n_mbr, **recipe), lambda step: losses.append(float(step.loss))
        )
    return end(learner) | {"losses": torch.tensor(losses)}


def end(learner: Learner) -> dict[str, Tensor]:
    memory = getattr(learner, "memory", None)
    stored = {} if memory is None else {f"memory {name}": column for name, column in memory.columns.items()}
    z = unpack(latents(learner.model, tiny_images()))
    return {**learner.model.state_dict(), **stored, "scores": learner.logits(z)}


def start(size: int, arguments: Sequence[object], env: dict[str, str] | None = None) -> list[subprocess.Popen[str]]:
    """Processes that find each other, without torchrun."""
    port = str(free_port())
    common = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": str(size), **(env or {})}
    return [
        subprocess.Popen(
            [sys.executable, *map(str, arguments)],
            env=common | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(size)
    ]


def free_port() -> int:
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def main() -> None:
    torch.set_num_threads(1)
    folder, *cases = sys.argv[1:]
    with join() as processes:
        for case in cases:
            state = learned(case, processes)
            files.save(Path(folder) / f"{case} {processes.rank}.safetensors", state)


if __name__ == "__main__":
    main()
