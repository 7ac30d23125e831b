"""Images whose pixels are their ids."""

import torch
from torch import Tensor

from triphase.data.images import Images


def images(labels: list[int] | Tensor, first_id: int = 0) -> Images:
    """One image per label; each pixel says the id."""
    y = torch.as_tensor(labels, dtype=torch.long)
    ids = torch.arange(len(y)) + first_id
    return Images.from_array(pixels(ids), y, ids)


def pixels(ids: Tensor) -> Tensor:
    return torch.stack([ids % 256, ids // 256], 1).to(torch.uint8).view(-1, 2, 1, 1)


def dataset(n_classes: int = 10, each: int = 12) -> Images:
    return images(torch.arange(n_classes).repeat(each))


def everything(source: Images) -> Tensor:
    return source.read(torch.arange(len(source)))
