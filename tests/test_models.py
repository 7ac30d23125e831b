"""Every backbone: what is in which block, what comes out, and that only the seed decides it."""

import inspect
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from backbones import SMALLEST, equal, kernels, pixels, quick
from triphase.errors import InvalidValue
from triphase.models import (
    BACKBONES,
    BatchRenorm2d,
    backbone,
    build,
)


@pytest.mark.parametrize("name", BACKBONES)
def test_backbone_maps_pixels_to_logits_in_training_and_evaluation(name: str) -> None:
    model = quick(name)
    for mode in (True, False):
        logits = model.train(mode)(pixels(model))
        assert logits.shape == (2, 4) and bool(torch.isfinite(logits).all())
    assert model.features(model.encode(pixels(model))).shape == (2, model.n_features)


@pytest.mark.parametrize("name", BACKBONES)
def test_only_the_seed_decides_the_weights(name: str) -> None:
    torch.manual_seed(1)
    a = quick(name, seed=5)
    state = torch.get_rng_state()
    torch.manual_seed(2)
    b, other = quick(name, seed=5), quick(name, seed=6)
    assert equal(a, b) and not equal(a, other)
    torch.manual_seed(1)
    assert torch.equal(state, torch.get_rng_state()), "building a network moved the global generator"


@pytest.mark.parametrize("name", BACKBONES)
def test_first_features_neither_vanish_nor_explode(name: str) -> None:
    model = quick(name).train()
    spread = model.features(model.encode(pixels(model, 16))).std().item()
    assert 0.01 < spread < 100


@pytest.mark.parametrize("name", BACKBONES)
def test_weights_are_channels_last(name: str) -> None:
    convolutions = [m for m in quick(name).modules() if isinstance(m, nn.Conv2d)]
    assert all(m.weight.is_contiguous(memory_format=torch.channels_last) for m in convolutions)
    assert all(m.bias is None for m in convolutions)


@pytest.mark.parametrize(
    ("name", "options", "llf", "csf"),
    [
        # counts exclude the 1x1 shortcuts of the ResNets, as the paper's do
        ("efficientnet_lite0", {"cut": 0}, 1, 48),
        ("efficientnet_lite0", {"cut": 9}, 1 + 2 + 8 * 3, 7 * 3 + 1),
        ("efficientnet_lite0", {"cut": 16}, 1 + 2 + 15 * 3, 1),
        ("mobilenet_v1", {}, 20, 7),
        ("mobilenet_v1_1024", {}, 20, 7),
        ("resnet32", {}, 21, 10),
        ("resnet18", {}, 13, 4),
        ("small_cnn", {}, 0, 3),
    ],
)
def test_blocks_hold_the_right_number_of_convolutions(
    name: str, options: dict[str, int], llf: int, csf: int
) -> None:
    model = quick(name, **options)
    is_resnet = name.startswith("resnet")
    counts = [sum(1 for k in kernels(block) if not (is_resnet and k == 1)) for block in (model.llf, model.csf)]
    assert counts == [llf, csf]


@pytest.mark.parametrize(
    ("name", "options", "size", "latent", "n_features"),
    [
        ("mobilenet_v1", {}, 128, (512, 8, 8), 512),
        ("mobilenet_v1_1024", {}, 128, (512, 8, 8), 1024),
        ("resnet32", {}, 32, (32, 16, 16), 64),
        ("resnet18", {}, 224, (256, 14, 14), 512),
        ("small_cnn", {}, 28, (3, 28, 28), 128),
        *[
            ("efficientnet_lite0", {"cut": cut, "pretrained": False}, 96, latent, 1280)
            for cut, latent in [
                (0, (32, 48, 48)),
                (1, (16, 48, 48)),
                (3, (24, 24, 24)),
                (5, (40, 12, 12)),
                (8, (80, 6, 6)),
                (9, (112, 6, 6)),
                (11, (112, 6, 6)),
                (12, (192, 3, 3)),
                (16, (320, 3, 3)),
            ]
        ],
        ("efficientnet_lite0", {"cut": 9, "pretrained": False}, 224, (112, 14, 14), 1280),
    ],
)
def test_latents_have_the_documented_shape(
    name: str, options: dict[str, Any], size: int, latent: tuple[int, ...], n_features: int
) -> None:
    model = build(name, image_size=size, **options).eval()
    with torch.no_grad():
        z = model.encode(pixels(model, 1))
    assert z.shape[1:] == latent
    assert model.n_features == n_features and model.image_size == size


@pytest.mark.parametrize(
    ("name", "in_csf", "in_all"),
    [
        ("mobilenet_v1", 4 * 512 * 512 + 3 * 512 * 9 + 7 * 2 * 512, 2_150_720),  # 1.07 M, 2.15 M
        ("resnet18", 8_393_728, 11_176_512),  # torchvision's 11,689,512 less fc
        ("efficientnet_lite0", 3_010_720, 3_371_008),  # the file's parameters less fc
    ],
)
def test_parameters_are_as_many_as_published(name: str, in_csf: int, in_all: int) -> None:
    model = quick(name, cut=9) if name == "efficientnet_lite0" else quick(name)
    counts = [sum(p.numel() for p in module.parameters()) for module in (model.csf, model.llf)]
    assert [counts[0], sum(counts)] == [in_csf, in_all]


@pytest.mark.parametrize("channels", [1, 3])
def test_small_cnn_takes_grey_and_colour(channels: int) -> None:
    model = build("small_cnn", 3, channels=channels, image_size=28)
    assert model(torch.zeros(2, channels, 28, 28)).shape == (2, 3)


@pytest.mark.parametrize("name", BACKBONES)
def test_a_backbone_says_whether_it_comes_with_weights(name: str) -> None:
    kind = backbone(name)
    random = build(name, image_size=SMALLEST[name], load_pretrained=False)
    assert equal(random, build(name, image_size=SMALLEST[name])) != kind.pretrained


@pytest.mark.parametrize("name", BACKBONES)
def test_brn_replaces_every_batchnorm_and_changes_nothing_in_evaluation(name: str) -> None:
    plain, renorm = quick(name).eval(), quick(name, norm="brn").eval()
    layers = [m for m in renorm.modules() if isinstance(m, nn.BatchNorm2d)]
    assert layers and all(isinstance(m, BatchRenorm2d) for m in layers)
    for model in (plain, renorm):
        nn.init.ones_(model.head.weight)
    torch.testing.assert_close(plain(pixels(plain)), renorm(pixels(plain)))


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"name": "vgg"}, "'vgg'; there are efficientnet_lite0, efficientnet_lite1,"),
        ({"name": "small_cnn", "norm": "gn"}, "'bn'.*'brn'.*got 'gn'"),
        ({"name": "small_cnn", "cut": 3}, "small_cnn has no option cut; it has channels, image_size, seed"),
        ({"name": "resnet32", "weights": Path("x.pth")}, "resnet32 takes no file of weights; mobilenet_v1, .* do"),
        ({"name": "resnet32", "channels": 1}, "resnet32 takes RGB images, and these have 1 channel; use small_cnn"),
        ({"name": "resnet32", "image_size": 0}, "at least 1 pixel, got 0"),
        ({"name": "resnet32", "n_classes": -3}, "at least 0, got -3"),
        ({"name": "mobilenet_v1", "max_channels": 256}, "512.*or 1024, got 256"),
    ],
)
def test_build_refuses_with_a_sentence(arguments: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InvalidValue, match=sentence):
        build(**arguments)


@pytest.mark.parametrize("name", BACKBONES)
def test_build_uses_the_default_size_of_the_backbone(name: str) -> None:
    default = inspect.signature(BACKBONES[name].build).parameters["image_size"].default
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert build(name).image_size == default
