"""Folded blocks compute what the blocks compute."""

from typing import Any

import pytest
import torch
from torch import nn

from backbones import pixels, quick
from triphase.models import (
    BACKBONES,
)
from triphase.models.folding import folded


@pytest.mark.parametrize("norm", ["bn", "brn"])
@pytest.mark.parametrize("name", BACKBONES)
def test_folded_blocks_compute_what_the_blocks_do(name: str, norm: Any) -> None:
    model = quick(name, norm=norm).eval()
    draw = torch.Generator().manual_seed(1)
    for layer in model.modules():
        if isinstance(layer, nn.BatchNorm2d):  # fresh ones would do next to nothing
            for tensor in (layer.weight.data, layer.running_mean, layer.running_var):
                assert tensor is not None
                tensor.copy_(torch.rand(tensor.shape, generator=draw) + 0.5)
    before = {key: value.clone() for key, value in model.state_dict().items()}
    x = pixels(model, 3).float()
    for block in (model.llf, model.csf):
        expected = block(x).detach()
        torch.testing.assert_close(folded(block)(x), expected, rtol=1e-3, atol=1e-4 * float(expected.abs().max()))
        x = expected
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
    assert model.llf.training is False and all(p.requires_grad for p in model.csf.parameters())


def test_only_a_norm_right_behind_its_convolution_is_folded() -> None:
    class Odd(nn.Sequential):  # whose forward could be anything
        pass

    layers = (nn.Conv2d(3, 3, 1), nn.BatchNorm2d(3), nn.BatchNorm2d(3), nn.ReLU())
    assert [type(layer) for layer in folded(nn.Sequential(*layers)).children()] == [
        nn.Conv2d,
        nn.Identity,
        nn.BatchNorm2d,
        nn.ReLU,
    ]
    assert not any(isinstance(layer, nn.Identity) for layer in folded(Odd(*layers)).modules())
