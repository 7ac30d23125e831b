"""Every backbone: what is in which block, what comes out, and that only the seed decides it (SPEC 5)."""

import inspect
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from triphase.data.images import resize
from triphase.errors import InvalidValue
from triphase.models import (
    BACKBONES,
    BatchRenorm2d,
    SplitClassifier,
    backbone,
    build,
    efficientnet_lite0,
)
from triphase.models.efficientnet_lite0 import _weight_file
from triphase.models.folding import folded
from triphase.models.layers import DepthwiseConv2d, SameConv2d, conv
from triphase.models.weights import read_weights

SMALLEST = {  # an image size at which a forward pass is quick
    "efficientnet_lite0": 32,
    "mobilenet_v1": 32,
    "mobilenet_v1_1024": 32,
    "resnet32": 16,
    "resnet18": 32,
    "small_cnn": 8,
}


def quick(name: str, **options: Any) -> SplitClassifier:
    if name == "efficientnet_lite0":
        options.setdefault("pretrained", False)
    return build(name, 4, image_size=SMALLEST[name], **options)


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
        ("mobilenet_v1", 4 * 512 * 512 + 3 * 512 * 9 + 7 * 2 * 512, 2_150_720),  # SPEC 5: 1.07 M, 2.15 M
        ("resnet18", 8_393_728, 11_176_512),  # torchvision's 11,689,512 less fc
        ("efficientnet_lite0", 3_010_720, 3_371_008),  # the file's parameters less fc
    ],
)
def test_parameters_are_as_many_as_published(name: str, in_csf: int, in_all: int) -> None:
    model = quick(name, cut=9) if name == "efficientnet_lite0" else quick(name)
    counts = [sum(p.numel() for p in module.parameters()) for module in (model.csf, model.llf)]
    assert [counts[0], sum(counts)] == [in_csf, in_all]


@pytest.mark.parametrize("pretrained", [True, False])
def test_lite0_computes_the_same_wherever_it_is_cut(pretrained: bool) -> None:
    models = [efficientnet_lite0(image_size=32, cut=cut, pretrained=pretrained).eval() for cut in (0, 4, 9, 16)]
    x = pixels(models[0])
    first, *rest = [model.features(model.encode(x)) for model in models]
    assert all(torch.equal(first, features) for features in rest)


@pytest.mark.parametrize("cut", [-1, 17])
def test_lite0_refuses_a_cut_it_does_not_have(cut: int) -> None:
    with pytest.raises(InvalidValue, match=rf"0\.\.16.*got {cut}"):
        efficientnet_lite0(cut=cut)


def test_lite0_recognises_real_photos() -> None:
    data = pytest.importorskip("skimage.data")
    photos = torch.cat([_square(data.chelsea()), _square(data.coffee())])
    model, weights = efficientnet_lite0().eval(), read_weights(_weight_file())
    with torch.no_grad():
        features = model.features(model.encode(photos))
        p = (features @ weights["_fc.weight"].T + weights["_fc.bias"]).softmax(1)
    assert p[0, 281:286].sum() > 0.8  # the five domestic cats of ImageNet
    assert p[1].argmax() == 967 and p[1, 967] > 0.8  # espresso


def _square(photo: np.ndarray[Any, Any]) -> Tensor:
    image = torch.from_numpy(photo.copy()).permute(2, 0, 1)[None]
    height, width = image.shape[2:]
    left = (width - height) // 2
    return resize(image[..., left : left + height], 224)


@pytest.mark.parametrize(
    ("size", "kernel", "before", "after"), [(8, 3, 0, 1), (9, 3, 1, 1), (8, 5, 1, 2), (9, 5, 2, 2)]
)
def test_same_padding_is_tensorflows(size: int, kernel: int, before: int, after: int) -> None:
    torch.manual_seed(0)
    layer, x = SameConv2d(1, 1, kernel, stride=2), torch.randn(1, 1, size, size)
    padded = nn.functional.pad(x, (before, after, before, after))
    assert torch.equal(layer(x), nn.functional.conv2d(padded, layer.weight, layer.bias, stride=2))


@pytest.mark.parametrize("size", [(1, 1), (2, 3), (3, 3), (4, 4), (6, 5)])
@pytest.mark.parametrize("kernel", [3, 5])
def test_depthwise_gradients_on_small_maps_are_those_of_torch(kernel: int, size: tuple[int, int]) -> None:
    torch.manual_seed(0)
    layer = conv(8, 8, kernel, groups=8).double()
    assert isinstance(layer, DepthwiseConv2d)
    nn.init.normal_(layer.weight)
    x, above = torch.randn(4, 8, *size).double().requires_grad_(), torch.randn(4, 8, *size).double()
    found = torch.autograd.grad(layer(x), (x, layer.weight), above)
    plain = nn.functional.conv2d(x, layer.weight, padding=kernel // 2, groups=8)
    wanted = torch.autograd.grad(plain, (x, layer.weight), above)
    for ours, torchs in zip(found, wanted, strict=True):
        torch.testing.assert_close(ours, torchs)


def test_depthwise_gradients_on_small_maps_survive_autocast() -> None:
    torch.manual_seed(0)
    layer = conv(8, 8, 5, groups=8)
    nn.init.normal_(layer.weight)
    x = torch.randn(4, 8, 3, 3, requires_grad=True)
    exact = torch.autograd.grad(layer(x).sum(), (x, layer.weight))
    with torch.autocast("cpu", torch.bfloat16):
        y = layer(x)
    rough = torch.autograd.grad(y.sum(), (x, layer.weight))
    for a, b in zip(rough, exact, strict=True):
        assert a.dtype == torch.float32
        torch.testing.assert_close(a, b, rtol=0.05, atol=0.1)


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
        ({"name": "vgg"}, "'vgg'; there are efficientnet_lite0, mobilenet_v1,"),
        ({"name": "small_cnn", "norm": "gn"}, "'bn'.*'brn'.*got 'gn'"),
        ({"name": "small_cnn", "cut": 3}, "small_cnn has no option cut; it has channels, image_size, seed"),
        ({"name": "resnet32", "weights": Path("x.pth")}, "resnet32 has no option weights"),
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
