"""MobileNetV1 from a file with folded BatchNorm."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from folded_weights import folded_forward, pixels
from triphase.errors import TriphaseWarning
from triphase.models import (
    mobilenet_v1,
    rebuild_batchnorm,
)


def test_mobilenet_computes_what_the_folded_file_says(folded: Path) -> None:
    model = mobilenet_v1(max_channels=1024, image_size=64, weights=folded).eval()
    x = pixels(2, 64)
    latent, features = folded_forward(folded, x.float())
    with torch.no_grad():
        z = model.encode(x)
        torch.testing.assert_close(z, latent, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(model.features(z), features, rtol=1e-4, atol=1e-4)
    assert model.random_layers == ()


def test_narrow_mobilenet_loads_24_layers_and_reports_3_random_ones(folded: Path) -> None:
    with pytest.warns(TriphaseWarning, match="pw12, dw13, pw13 stay random"):
        model = mobilenet_v1(max_channels=512, image_size=32, weights=folded, seed=4)
    assert model.random_layers == ("pw12", "dw13", "pw13")
    untouched, file = mobilenet_v1(max_channels=512, image_size=32, seed=4), load_file(folded)
    loaded = 0
    for (key, value), fresh in zip(model.named_parameters(), untouched.parameters(), strict=True):
        if not key.endswith("conv.weight"):
            continue
        name = key.split(".")[1]
        if name in model.random_layers:
            assert torch.equal(value, fresh)
        else:
            assert torch.equal(value, file[f"{name}.weight"].float())
            loaded += 1
    assert loaded == 24
    with torch.no_grad():
        torch.testing.assert_close(
            model.eval().encode(pixels(2, 32)), folded_forward(folded, pixels(2, 32).float())[0],
            rtol=1e-4, atol=1e-4,
        )  # fmt: skip
        assert len(rebuild_batchnorm(model, pixels(4, 32))) == 24
