"""ResNet-32 for small images and ResNet-18, cut before their last stage.

He et al., "Deep Residual Learning", 2016; ResNet-32 as in FACIL, ResNet-18 as in torchvision.
"""

from collections import OrderedDict
from pathlib import Path

from torch import Tensor, nn

from triphase.models.layers import assemble, conv
from triphase.models.split import Normalize, SplitClassifier
from triphase.models.weights import fill_, read_weights

CIFAR100_MEAN, CIFAR100_STD = (0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762)
IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


class BasicBlock(nn.Module):
    """Two 3x3 convolutions beside a shortcut, a 1x1 convolution where the shape changes (option B)."""

    def __init__(self, c_in: int, c_out: int, stride: int) -> None:
        super().__init__()
        self.conv1 = conv(c_in, c_out, 3, stride=stride)
        self.bn1 = nn.BatchNorm2d(c_out)
        self.conv2 = conv(c_out, c_out, 3)
        self.bn2 = nn.BatchNorm2d(c_out)
        self.relu = nn.ReLU(inplace=True)
        self.downsample: nn.Module = nn.Identity()
        if stride != 1 or c_in != c_out:
            self.downsample = nn.Sequential(conv(c_in, c_out, 1, stride=stride), nn.BatchNorm2d(c_out))

    def forward(self, x: Tensor) -> Tensor:
        inner = self.relu(self.bn1(self.conv1(x)))
        output: Tensor = self.relu(self.bn2(self.conv2(inner)) + self.downsample(x))
        return output


def resnet32(n_classes: int = 0, *, image_size: int = 32, seed: int = 0) -> SplitClassifier:
    """ResNet-32 with D = 64: 21 convolutions in llf, 10 in csf, latent 32 x 16 x 16 at 32 px.

    >>> import torch
    >>> resnet32().encode(torch.zeros(2, 3, 32, 32)).shape
    torch.Size([2, 32, 16, 16])
    """
    llf = OrderedDict[str, nn.Module](normalize=_pixels(CIFAR100_MEAN, CIFAR100_STD))
    llf.update(conv1=conv(3, 16, 3), bn1=nn.BatchNorm2d(16), relu=nn.ReLU(inplace=True))
    llf.update(layer1=_stage(16, 16, 5, stride=1), layer2=_stage(16, 32, 5, stride=2))
    csf = _last(_stage(32, 64, 5, stride=2), name="layer3")
    return assemble(nn.Sequential(llf), csf, 64, n_classes, image_size=image_size, seed=seed)


def resnet18(
    n_classes: int = 0, *, image_size: int = 224, weights: Path | None = None, seed: int = 0
) -> SplitClassifier:
    """ResNet-18 with D = 512: 13 convolutions in llf, 4 in csf, latent 256 x 14 x 14 at 224 px.

    `weights` names a checkpoint with torchvision's names, such as those of ImageNet or Places365; its `fc`
    is not used.

    >>> import torch
    >>> resnet18().encode(torch.zeros(2, 3, 64, 64)).shape
    torch.Size([2, 256, 4, 4])
    """
    llf = OrderedDict[str, nn.Module](normalize=_pixels(IMAGENET_MEAN, IMAGENET_STD))
    llf.update(conv1=conv(3, 64, 7, stride=2), bn1=nn.BatchNorm2d(64), relu=nn.ReLU(inplace=True))
    llf.update(maxpool=nn.MaxPool2d(3, stride=2, padding=1), layer1=_stage(64, 64, 2, stride=1))
    llf.update(layer2=_stage(64, 128, 2, stride=2), layer3=_stage(128, 256, 2, stride=2))
    csf = _last(_stage(256, 512, 2, stride=2), name="layer4")
    model = assemble(nn.Sequential(llf), csf, 512, n_classes, image_size=image_size, seed=seed)
    if weights is not None:
        body = {k.split(".", 1)[1]: v for k, v in model.state_dict().items() if not k.startswith("head.")}
        fill_(body, {k: v for k, v in read_weights(weights).items() if not k.startswith("fc.")}, weights)
    return model


def _pixels(mean: tuple[float, ...], std: tuple[float, ...]) -> Normalize:
    """Normalisation for pixels in 0..255 from the usual numbers for 0..1."""
    return Normalize(tuple(255 * m for m in mean), tuple(255 * s for s in std))


def _stage(c_in: int, c_out: int, n: int, *, stride: int) -> nn.Sequential:
    return nn.Sequential(BasicBlock(c_in, c_out, stride), *(BasicBlock(c_out, c_out, 1) for _ in range(n - 1)))


def _last(stage: nn.Sequential, *, name: str) -> nn.Sequential:
    return nn.Sequential(OrderedDict([(name, stage), ("pool", nn.AdaptiveAvgPool2d(1)), ("flatten", nn.Flatten())]))
