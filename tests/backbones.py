"""For tests of backbones: each at a size at which a forward pass is quick."""

from typing import Any

import torch
from torch import Tensor, nn

from triphase.models import SplitClassifier, build

SMALLEST = {  # an image size at which a forward pass is quick
    "efficientnet_lite0": 32,
    "efficientnet_lite1": 32,
    "efficientnet_lite2": 32,
    "mobilenet_v1": 32,
    "mobilenet_v1_1024": 32,
    "resnet32": 16,
    "resnet18": 32,
    "small_cnn": 8,
}


def quick(name: str, **options: Any) -> SplitClassifier:
    return build(name, 4, image_size=SMALLEST[name], load_pretrained=False, **options)


def pixels(model: SplitClassifier, n: int = 2) -> Tensor:
    assert model.image_size is not None
    draw = torch.Generator().manual_seed(3)
    return torch.randint(256, (n, 3, model.image_size, model.image_size), generator=draw).to(torch.uint8)


def kernels(block: nn.Module) -> list[int]:
    return [m.kernel_size[0] for m in block.modules() if isinstance(m, nn.Conv2d)]


def body(model: SplitClassifier) -> list[Tensor]:
    return [*model.llf.state_dict().values(), *model.csf.state_dict().values()]


def equal(a: SplitClassifier, b: SplitClassifier) -> bool:
    return all(torch.equal(x, y) for x, y in zip(body(a), body(b), strict=True))
