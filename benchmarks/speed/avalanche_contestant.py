"""The same work in Avalanche 0.6.0: replay fine-tuning with its class-balanced buffer.

Avalanche gets the same network with llf frozen, pixels scaled beforehand and held in memory, once in the
channels-last layout that triphase uses and once in the layout that torch gives by itself; the same epochs,
minibatch sizes (128 without replay, then 64 + 64), optimiser, flips and threads; no evaluation, no logging. Its
loader does not use worker processes, which would only copy tensors that are in memory.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from workload import EPOCHS, N_MBE, N_MBR, Workload, pixels, sgd, timed

from triphase.learners.training import set_trainable
from triphase.torchvision_operators import declare_torchvision_operators


class Flipped(torch.utils.data.Dataset[tuple[Tensor, int]]):
    """Images in memory, each mirrored or not whenever it is read, as an augmentation in Avalanche is."""

    def __init__(self, x: Tensor, y: Tensor) -> None:
        self.x, self.targets = x, y.tolist()

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        x = self.x[index]
        return (x.flip(2) if torch.rand(()) < 0.5 else x), self.targets[index]


class Whole(nn.Module):
    """The network as Avalanche sees it: pixels in, logits out; llf without gradient."""

    def __init__(self, load: Workload, channels_last: bool) -> None:
        super().__init__()
        self.split = load.model()
        self.layout = torch.channels_last if channels_last else torch.contiguous_format
        self.split.to(memory_format=self.layout)  # type: ignore[call-overload]  # the stub forgets it
        set_trainable(self.split, llf=False, csf=True)

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        with torch.no_grad():
            z = self.split.llf(x.float().contiguous(memory_format=self.layout))
        return self.split.tail(z)


def avalanche_run(load: Workload, learner: str = "replay", channels_last: bool = True) -> float:
    """Seconds for the whole stream."""
    declare_torchvision_operators()
    from avalanche.benchmarks import benchmark_from_datasets
    from avalanche.benchmarks.utils.classification_dataset import _as_taskaware_supervised_classification_dataset
    from avalanche.training.plugins import ReplayPlugin
    from avalanche.training.storage_policy import ClassBalancedBuffer
    from avalanche.training.supervised import DER, Naive

    with_task = _as_taskaware_supervised_classification_dataset  # its loops expect a task label, always 0 here
    datasets = [with_task(Flipped(x, y), task_labels=0) for x, y in pixels(load)]
    stream = benchmark_from_datasets(train=datasets).train_stream
    model = Whole(load, channels_last)
    common = {"train_mb_size": N_MBE + N_MBR, "train_epochs": EPOCHS, "evaluator": None}
    if learner == "replay":
        buffer = ClassBalancedBuffer(max_size=load.memory)
        plugin = ReplayPlugin(load.memory, batch_size=N_MBE, batch_size_mem=N_MBR, storage_policy=buffer)
        strategy = Naive(model=model, optimizer=sgd(model), plugins=[plugin], **common)
    else:
        strategy = DER(
            model=model,
            optimizer=sgd(model),
            mem_size=load.memory,
            batch_size_mem=N_MBR,
            alpha=0.1,
            beta=0.5,
            **common,
        )
    with timed() as seconds:
        for experience in stream:
            strategy.train(experience)
    return seconds[0]
