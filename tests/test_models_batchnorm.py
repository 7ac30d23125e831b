"""BatchNorm statistics for networks that came without any."""

from pathlib import Path

import pytest
import torch
from torch import nn

from folded_weights import folded_file, folded_forward, pixels
from triphase.errors import BadData
from triphase.models import (
    SplitClassifier,
    build,
    lacks_statistics,
    linear_head,
    mobilenet_v1,
    rebuild_batchnorm,
)


@torch.no_grad()
def test_rebuilt_batchnorm_leaves_the_output_unchanged_and_matches_the_batch(folded: Path) -> None:
    model = mobilenet_v1(max_channels=1024, image_size=64, weights=folded).eval()
    x = pixels(40, 64)
    model.freeze("llf")
    llf = {key: value.clone() for key, value in model.llf.state_dict().items()}
    z = model.encode(x)
    before = model.features(z)
    served = rebuild_batchnorm(model, x, batch_size=16)
    assert served == tuple(f"csf.{name}.bn" for name in "pw10 dw11 pw11 dw12 pw12 dw13 pw13".split())
    torch.testing.assert_close(model.features(z), before, rtol=1e-3, atol=1e-3)
    assert all(torch.equal(llf[key], value) for key, value in model.llf.state_dict().items())

    # on the calibration images themselves, training mode must now compute the same
    model.train()
    torch.testing.assert_close(model.features(z), before, rtol=1e-2, atol=1e-2)
    state = {key: value.clone() for key, value in model.state_dict().items()}
    assert rebuild_batchnorm(model, x) == ()
    assert all(torch.equal(state[key], value) for key, value in model.state_dict().items())


@torch.no_grad()
def test_rebuild_serves_llf_too_where_it_may_learn_and_keeps_the_mode(tmp_path: Path) -> None:
    path = folded_file(tmp_path / "folded.safetensors")
    model = mobilenet_v1(max_channels=1024, image_size=32, weights=path).train()
    x = pixels(8, 32)
    latent, _ = folded_forward(path, x.float())
    assert len(rebuild_batchnorm(model, x)) == 27
    assert model.training and model.csf.training
    torch.testing.assert_close(model.eval().encode(x), latent, rtol=1e-4, atol=1e-4)


def test_a_network_says_whether_its_batchnorm_lacks_statistics(tmp_path: Path, folded: Path) -> None:
    model = mobilenet_v1(weights=folded, max_channels=1024)
    assert lacks_statistics(model) and not lacks_statistics(mobilenet_v1())
    rebuild_batchnorm(model, torch.randint(256, (4, 3, 128, 128), dtype=torch.uint8))
    assert not lacks_statistics(model)


def test_rebuild_without_images_says_so(tmp_path: Path) -> None:
    model = mobilenet_v1(max_channels=1024, weights=folded_file(tmp_path / "folded.safetensors"))
    with pytest.raises(BadData, match="at least one"):
        rebuild_batchnorm(model, pixels(0, 32))


def test_rebuild_leaves_networks_alone_that_need_nothing() -> None:
    for model in (build("efficientnet_lite0", image_size=32), build("resnet32")):
        before = {key: value.clone() for key, value in model.state_dict().items()}
        assert rebuild_batchnorm(model, pixels(4, 32)) == ()
        assert all(torch.equal(before[key], value) for key, value in model.state_dict().items())


def test_rebuild_passes_over_layers_without_parameters_or_statistics() -> None:
    layers = nn.BatchNorm2d(3, affine=False), nn.BatchNorm2d(3, track_running_stats=False)
    model = SplitClassifier(nn.Identity(), nn.Sequential(*layers, nn.Flatten()), linear_head(12, 0))
    assert rebuild_batchnorm(model, pixels(4, 2)) == ()
