"""MobileNetV1, cut after its 20th convolution as in the paper's CORe50 experiments.

Howard et al., "MobileNets", 2017: conv0 and 13 pairs of a depthwise (dw) and a pointwise (pw) convolution.
"""

import math
import warnings
from collections import OrderedDict
from pathlib import Path

from torch import Tensor, nn

from triphase.errors import InvalidValue, TriphaseWarning
from triphase.models.layers import assemble, conv
from triphase.models.split import Normalize, SplitClassifier
from triphase.models.weights import fill_, read_weights

PAIRS = (  # stride of dw, output channels of pw
    (1, 64),
    (2, 128),
    (1, 128),
    (2, 256),
    (1, 256),
    (2, 512),
    (1, 512),
    (1, 512),
    (1, 512),
    (1, 512),
    (1, 512),
    (2, 1024),
    (1, 1024),
)
CUT = 20  # conv5_4/dw, in the middle of the tenth pair
EPS = 1e-3  # as the network was trained


def mobilenet_v1(
    n_classes: int = 0,
    *,
    max_channels: int = 512,
    image_size: int = 128,
    weights: Path | None = None,
    seed: int = 0,
) -> SplitClassifier:
    """MobileNetV1 with D = max_channels; the latent is 512 x 8 x 8 at 128 px.

    `weights` names a file whose BatchNorm is folded into the convolutions (`conv0.weight`, `dw1.bias`, ...).
    Its layers then have BatchNorms that reproduce the file while they use running statistics; before they
    learn, `rebuild_batchnorm` must measure those. At 512 channels three layers differ from such a file: they
    stay random, are listed in `random_layers`, and a warning says so.

    >>> import torch
    >>> model = mobilenet_v1(10)
    >>> model.encode(torch.zeros(2, 3, 128, 128)).shape, model.n_features
    (torch.Size([2, 512, 8, 8]), 512)
    """
    if max_channels not in (512, 1024):
        raise InvalidValue(f"max_channels must be 512 (the paper's) or 1024, got {max_channels}.")
    layers = list(_layers(max_channels).items())
    llf = OrderedDict[str, nn.Module](normalize=Normalize((127.5,) * 3, (127.5,) * 3))
    llf.update(layers[:CUT])
    csf = OrderedDict[str, nn.Module](layers[CUT:])
    csf.update(pool=nn.AdaptiveAvgPool2d(1), flatten=nn.Flatten())
    blocks = nn.Sequential(llf), nn.Sequential(csf)
    model = assemble(*blocks, max_channels, n_classes, image_size=image_size, seed=seed)
    if weights is not None:
        _load_(model, weights, skip=("pw12", "dw13", "pw13") if max_channels == 512 else ())
    return model


def _layers(max_channels: int) -> dict[str, nn.Module]:
    layers: dict[str, nn.Module] = {"conv0": _layer(3, 32, 3, stride=2)}
    channels = 32
    for k, (stride, width) in enumerate(PAIRS, start=1):
        c_out = min(width, max_channels)
        layers[f"dw{k}"] = _layer(channels, channels, 3, stride=stride, groups=channels)
        layers[f"pw{k}"] = _layer(channels, c_out, 1)
        channels = c_out
    return layers


def _layer(c_in: int, c_out: int, kernel: int, *, stride: int = 1, groups: int = 1) -> nn.Sequential:
    layer = OrderedDict[str, nn.Module]()
    if stride == 2:
        layer["pad"] = nn.ZeroPad2d((0, 1, 0, 1))  # right and bottom, as the network was trained
    padding = 0 if stride == 2 else None
    layer["conv"] = conv(c_in, c_out, kernel, stride=stride, groups=groups, padding=padding)
    layer["bn"] = nn.BatchNorm2d(c_out, eps=EPS)
    layer["relu"] = nn.ReLU6(inplace=True)
    return nn.Sequential(layer)


def _load_(model: SplitClassifier, path: Path, skip: tuple[str, ...]) -> None:
    """Copy a folded file into convolutions and BatchNorm shifts; each BatchNorm then only adds its shift."""
    targets: dict[str, Tensor] = {}
    for key, value in model.state_dict().items():
        _, layer, *leaf = key.split(".")
        if layer in skip:
            continue
        if leaf == ["conv", "weight"]:
            targets[f"{layer}.weight"] = value
        elif leaf == ["bn", "bias"]:
            targets[f"{layer}.bias"] = value
        elif leaf == ["bn", "weight"]:
            value.fill_(math.sqrt(1 + EPS))  # undoes the division by the initial running variance of 1
    folded = {k: v for k, v in read_weights(path).items() if k.split(".")[0] not in skip}
    fill_(targets, folded, path)
    model.random_layers = skip
    if skip:
        warnings.warn(
            f"The layers {', '.join(skip)} stay random: with max_channels=512 they are narrower than in "
            f"{path.name}. Use max_channels=1024 to load every layer.",
            TriphaseWarning,
            stacklevel=3,
        )
