"""For tests of weights with folded BatchNorm: a file, and what it computes."""

import os
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.nn import functional as F

from triphase.models.mobilenet_v1 import PAIRS

SHARED = Path(os.environ.get("TRIPHASE_SHARED", Path(__file__).parents[2] / "shared"))


REAL_FILE = SHARED / "data" / "mobilenet_v1_folded.safetensors"


def pixels(n: int, size: int) -> Tensor:
    """Smooth colour gradients with some noise: nearer to photos than noise alone."""
    draw = torch.Generator().manual_seed(0)
    coarse = torch.rand(n, 3, 4, 4, generator=draw)
    smooth = F.interpolate(coarse, size=(size, size), mode="bicubic")
    noise = 0.05 * torch.randn(n, 3, size, size, generator=draw)
    return ((smooth + noise) * 255).clamp(0, 255).to(torch.uint8)


def folded_file(path: Path) -> Path:
    """A random file in the layout of the real one."""
    draw = torch.Generator().manual_seed(0)
    weights, channels = {"conv0.weight": torch.randn(32, 3, 3, 3, generator=draw) / 3}, 32
    for k, (_, c_out) in enumerate(PAIRS, start=1):
        weights[f"dw{k}.weight"] = torch.randn(channels, 1, 3, 3, generator=draw) / 2
        weights[f"pw{k}.weight"] = torch.randn(c_out, channels, 1, 1, generator=draw) * (2 / channels) ** 0.5
        channels = c_out
    biases = {key.replace("weight", "bias"): torch.rand(len(w), generator=draw) for key, w in weights.items()}
    save_file({key: value.half() for key, value in (weights | biases).items()}, path)
    return path


def folded_forward(path: Path, x: Tensor) -> tuple[Tensor, Tensor]:
    """Latents and features computed from the file alone."""
    weights = {key: value.float() for key, value in load_file(path).items()}

    def layer(x: Tensor, name: str, stride: int) -> Tensor:
        w = weights[f"{name}.weight"]
        margin = (0, 1, 0, 1) if stride == 2 else (w.shape[-1] // 2,) * 4
        groups = len(w) if name.startswith("dw") else 1
        return F.relu6(F.conv2d(F.pad(x, margin), w, weights[f"{name}.bias"], stride, groups=groups))

    x, latent = layer(x / 127.5 - 1, "conv0", 2), x
    for k, (stride, _) in enumerate(PAIRS, start=1):
        x = layer(x, f"dw{k}", stride)
        latent = x if k == 10 else latent
        x = layer(x, f"pw{k}", 1)
    return latent, x.mean((2, 3))
