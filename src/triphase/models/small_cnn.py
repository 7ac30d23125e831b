"""A small network for small images, such as digits of 8 x 8 or 28 x 28 pixels."""

from torch import nn

from triphase.models.layers import assemble, conv
from triphase.models.split import Normalize, SplitClassifier

WIDTHS = (32, 64, 128)


def small_cnn(n_classes: int = 0, *, channels: int = 1, image_size: int = 8, seed: int = 0) -> SplitClassifier:
    """Three convolutions, all of them in csf, and D = 128; llf only scales the pixels.

    >>> import torch
    >>> model = small_cnn(10)
    >>> model(torch.zeros(2, 1, 8, 8)).shape, model.is_frozen("llf")
    (torch.Size([2, 10]), True)
    """
    layers: list[nn.Module] = []
    c_in = channels
    for i, width in enumerate(WIDTHS):
        layers += [
            conv(c_in, width, 3, stride=1 if i == 0 else 2),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
        ]
        c_in = width
    csf = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())
    scale = Normalize((127.5,) * channels, (127.5,) * channels)
    return assemble(scale, csf, c_in, n_classes, image_size=image_size, seed=seed)
