"""Where should EfficientNet-Lite0 be cut at 96 px? Joint fine-tuning of csf and head on part of CIFAR-100.

    python benchmarks/lite0_cut.py --data DIR        # DIR holds cifar-100-binary/, the official download

llf is frozen, its output cached in float16 and csf + head learn jointly; every cut sees the same images in
the same order. The table printed is the evidence for the default of `efficientnet_lite0(cut=...)`.
"""

import argparse
import statistics
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from triphase.data.images import resize
from triphase.models import SplitClassifier, efficientnet_lite0
from triphase.randomness import generator

SIZE, BATCH = 96, 128


@dataclass(frozen=True)
class Settings:
    """What the command line says."""

    data: Path
    cuts: list[int]
    csf_lrs: list[float]
    seeds: int
    classes: int
    per_class: int
    epochs: int
    head_lr: float


def main() -> None:
    settings = parse()
    print(
        f"{settings.classes} classes of CIFAR-100 at {SIZE} px, {settings.per_class} training and 50 test "
        f"images each; {settings.epochs} epochs of batches of {BATCH}, SGD with momentum .9, no weight "
        f"decay, no augmentation, head lr {settings.head_lr:g}; accuracy: mean and standard deviation over "
        f"{settings.seeds} draws of classes and images; time: the fastest epoch with "
        f"{torch.get_num_threads()} thread(s).\n"
    )
    lrs = [f"csf lr {lr:g}" for lr in settings.csf_lrs]
    header = ["cut", "latent", "bytes (fp16)", "csf parameters", "s / epoch", *lrs]
    print(row(header), row(["---"] * len(header)), sep="\n")
    for cut in settings.cuts:
        print(row(measure(cut, settings)), flush=True)


def measure(cut: int, settings: Settings) -> list[str]:
    """One row of the table: what a cut costs, and its test accuracy in percent for each csf learning rate."""
    accuracies: dict[float, list[float]] = {lr: [] for lr in settings.csf_lrs}
    seconds: list[float] = []
    for seed in range(settings.seeds):
        model = efficientnet_lite0(settings.classes, image_size=SIZE, cut=cut)
        model.freeze("llf")
        start = {name: value.clone() for name, value in model.state_dict().items()}
        train, test = (subset(part, settings, seed) for part in ("train", "test"))
        z, z_test = encode(model, train[0]), encode(model, test[0])
        for lr in settings.csf_lrs:
            model.load_state_dict(start)
            seconds += fit(model, z, train[1], lr, seed, settings)
            accuracies[lr].append(accuracy(model, z_test, test[1]))
    shape, size = " x ".join(map(str, z.shape[1:])), z[0].numel() * z.element_size()
    n_csf = sum(p.numel() for p in model.csf.parameters())
    scores = [f"{statistics.mean(a):.1f} ± {statistics.pstdev(a):.1f}" for a in accuracies.values()]
    return [str(cut), shape, f"{size:,}", f"{n_csf:,}", f"{min(seconds):.2f}", *scores]


def subset(part: str, settings: Settings, seed: int) -> tuple[Tensor, Tensor]:
    """uint8 images at 96 px and their labels 0..classes-1, for classes drawn with the seed."""
    records = np.fromfile(settings.data / "cifar-100-binary" / f"{part}.bin", dtype=np.uint8).reshape(-1, 3074)
    fine = torch.from_numpy(records[:, 1].astype(np.int64))
    classes = torch.randperm(100, generator=generator(seed, "classes"))[: settings.classes]
    n = settings.per_class if part == "train" else 50
    rows, labels = [], []
    for label, number in enumerate(classes.tolist()):
        of_class = (fine == number).nonzero().flatten()
        rows.append(of_class[torch.randperm(len(of_class), generator=generator(seed, part, number))[:n]])
        labels += [label] * n
    pixels = torch.from_numpy(records[torch.cat(rows).numpy(), 2:]).view(-1, 3, 32, 32)
    return resize(pixels, SIZE), torch.tensor(labels)


@torch.no_grad()
def encode(model: SplitClassifier, pixels: Tensor) -> Tensor:
    """llf of everything, as float16 in channels_last."""
    model.eval()
    z = torch.cat([model.encode(batch).half() for batch in pixels.split(BATCH)])
    return z.contiguous(memory_format=torch.channels_last)


def fit(model: SplitClassifier, z: Tensor, y: Tensor, lr: float, seed: int, settings: Settings) -> list[float]:
    """Train csf and head jointly; returns the seconds of each epoch."""
    groups = [
        {"params": list(model.csf.parameters()), "lr": lr},
        {"params": list(model.head.parameters()), "lr": settings.head_lr},
    ]
    optimizer = torch.optim.SGD(groups, momentum=0.9)
    model.train()
    seconds = []
    for epoch in range(settings.epochs):
        began = time.perf_counter()
        for batch in torch.randperm(len(y), generator=generator(seed, "shuffle", epoch)).split(BATCH):
            loss = F.cross_entropy(model.tail(z[batch].float()), y[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        seconds.append(time.perf_counter() - began)
    return seconds


@torch.no_grad()
def accuracy(model: SplitClassifier, z: Tensor, y: Tensor) -> float:
    """Test accuracy in percent."""
    model.eval()
    guesses = torch.cat([model.tail(batch.float()).argmax(1) for batch in z.split(BATCH)])
    return 100 * (guesses == y).float().mean().item()


def row(values: list[str]) -> str:
    return f"| {' | '.join(values)} |"


def parse() -> Settings:
    parser = argparse.ArgumentParser(description="Measure where to cut EfficientNet-Lite0 at 96 px.")
    parser.add_argument("--data", type=Path, required=True, help="directory that holds cifar-100-binary/")
    parser.add_argument("--cuts", type=int, nargs="+", default=[5, 8, 9, 11, 13, 15, 16])
    parser.add_argument("--csf-lrs", type=float, nargs="+", default=[0.03])
    parser.add_argument("--seeds", type=int, default=2, help="draws of classes and images")
    parser.add_argument("--classes", type=int, default=30)
    parser.add_argument("--per-class", type=int, default=50, help="training images of each class")
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--head-lr", type=float, default=0.1)
    return Settings(**vars(parser.parse_args()))


if __name__ == "__main__":
    main()
