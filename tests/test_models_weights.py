"""Weight files: what loads, what stays random, what is refused, and BatchNorm that comes back (SPEC 5)."""

import os
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn import functional as F

from triphase.errors import BadData, TriphaseWarning
from triphase.models import (
    SplitClassifier,
    build,
    lacks_statistics,
    linear_head,
    mobilenet_v1,
    rebuild_batchnorm,
    resnet18,
)
from triphase.models.mobilenet_v1 import PAIRS

SHARED = Path(os.environ.get("TRIPHASE_SHARED", Path(__file__).parents[2] / "shared"))
REAL_FILE = SHARED / "data" / "mobilenet_v1_folded.safetensors"


def pixels(n: int, size: int) -> Tensor:
    """Smooth colour gradients with some noise: nearer to photos than noise alone."""
    draw = torch.Generator().manual_seed(0)
    coarse = torch.rand(n, 3, 4, 4, generator=draw)
    smooth = F.interpolate(coarse, size=(size, size), mode="bicubic")
    noise = 0.05 * torch.randn(n, 3, size, size, generator=draw)
    return ((smooth + noise) * 255).clamp(0, 255).to(torch.uint8)


def folded_file(path: Path) -> Path:
    """A random file in the layout of the real one."""
    draw = torch.Generator().manual_seed(0)
    weights, channels = {"conv0.weight": torch.randn(32, 3, 3, 3, generator=draw) / 3}, 32
    for k, (_, c_out) in enumerate(PAIRS, start=1):
        weights[f"dw{k}.weight"] = torch.randn(channels, 1, 3, 3, generator=draw) / 2
        weights[f"pw{k}.weight"] = torch.randn(c_out, channels, 1, 1, generator=draw) * (2 / channels) ** 0.5
        channels = c_out
    biases = {key.replace("weight", "bias"): torch.rand(len(w), generator=draw) for key, w in weights.items()}
    save_file({key: value.half() for key, value in (weights | biases).items()}, path)
    return path


@pytest.fixture(params=["random", "real"])
def folded(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    if request.param == "random":
        return folded_file(tmp_path / "folded.safetensors")
    if not REAL_FILE.is_file():
        pytest.skip(f"needs {REAL_FILE.name}; set TRIPHASE_SHARED to the directory that holds data/")
    return REAL_FILE


def folded_forward(path: Path, x: Tensor) -> tuple[Tensor, Tensor]:
    """Latents and features computed from the file alone."""
    weights = {key: value.float() for key, value in load_file(path).items()}

    def layer(x: Tensor, name: str, stride: int) -> Tensor:
        w = weights[f"{name}.weight"]
        margin = (0, 1, 0, 1) if stride == 2 else (w.shape[-1] // 2,) * 4
        groups = len(w) if name.startswith("dw") else 1
        return F.relu6(F.conv2d(F.pad(x, margin), w, weights[f"{name}.bias"], stride, groups=groups))

    x, latent = layer(x / 127.5 - 1, "conv0", 2), x
    for k, (stride, _) in enumerate(PAIRS, start=1):
        x = layer(x, f"dw{k}", stride)
        latent = x if k == 10 else latent
        x = layer(x, f"pw{k}", 1)
    return latent, x.mean((2, 3))


def test_mobilenet_computes_what_the_folded_file_says(folded: Path) -> None:
    model = mobilenet_v1(max_channels=1024, image_size=64, weights=folded).eval()
    x = pixels(2, 64)
    latent, features = folded_forward(folded, x.float())
    with torch.no_grad():
        z = model.encode(x)
        torch.testing.assert_close(z, latent, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(model.features(z), features, rtol=1e-4, atol=1e-4)
    assert model.random_layers == ()


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


def torchvision_weights(seed: int) -> dict[str, Tensor]:
    """resnet18 under torchvision's names, `fc` included, with every value different."""
    state = resnet18(seed=seed).state_dict()
    draw = torch.Generator().manual_seed(seed)
    weights = {k.split(".", 1)[1]: v + torch.rand(v.shape, generator=draw) if v.is_floating_point() else v
               for k, v in state.items() if k != "head.weight"}  # fmt: skip
    return weights | {"fc.weight": torch.zeros(1000, 512), "fc.bias": torch.zeros(1000)}


def save(content: Any, path: Path) -> Path:
    if path.suffix == ".safetensors":
        save_file({key: value.contiguous() for key, value in content.items()}, path)
    else:
        torch.save(content, path)
    return path


@pytest.mark.parametrize("layout", ["plain.pth", "parallel.pth.tar", "plain.safetensors"])
def test_resnet18_loads_checkpoints(layout: str, tmp_path: Path) -> None:
    weights = torchvision_weights(1)
    assert len([key for key in weights if key.endswith(".weight") and weights[key].dim() == 4]) == 20
    content: Any = weights
    if layout.startswith("parallel"):  # as Places365 has it: nested, prefixed, older than num_batches_tracked
        old = {k: v for k, v in weights.items() if not k.endswith("num_batches_tracked")}
        content = {"epoch": 90, "arch": "resnet18", "state_dict": {f"module.{k}": v for k, v in old.items()}}
    model = resnet18(7, weights=save(content, tmp_path / layout), seed=2)
    loaded = {k.split(".", 1)[1]: v for k, v in model.state_dict().items() if k != "head.weight"}
    assert loaded.keys() == {k for k in weights if not k.startswith("fc.")}
    assert all(torch.equal(loaded[key], weights[key]) for key in loaded)
    assert not model.head.weight.any() and model.n_classes == 7
    stem = model.llf.get_submodule("conv1")
    assert isinstance(stem, nn.Conv2d) and stem.weight.is_contiguous(memory_format=torch.channels_last)


def test_wrong_names_and_shapes_are_listed_in_one_sentence(tmp_path: Path) -> None:
    weights = torchvision_weights(1)
    weights["layer9.weight"] = weights.pop("layer4.1.bn2.bias")
    weights["conv1.weight"] = weights["conv1.weight"][:, :1]
    path = save(weights, tmp_path / "other.pth")
    sentence = (
        f"{path} does not fit this network: it lacks layer4.1.bn2.bias; it has besides layer9.weight; "
        "it has with another shape conv1.weight (64, 1, 7, 7) instead of (64, 3, 7, 7)."
    )
    with pytest.raises(BadData, match=f"^{re.escape(sentence)}$"):
        resnet18(weights=path)


def test_a_long_list_of_missing_names_is_shortened(tmp_path: Path) -> None:
    with pytest.raises(BadData, match=r"it lacks conv1.weight, .* and 95 more"):
        resnet18(weights=save({}, tmp_path / "empty.pth"))


@pytest.mark.parametrize("name", ["junk.pth", "junk.safetensors", "cut.pth", "cut.safetensors"])
def test_unreadable_file_is_named(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    whole = save({"a": torch.zeros(100)}, path).read_bytes()
    path.write_bytes(b"no weights here" if name.startswith("junk") else whole[: len(whole) // 2])
    with pytest.raises(BadData, match=f"{name} cannot be read as a weight file: ."):
        resnet18(weights=path)


def test_absent_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadData, match="no weight file .*absent.pth"):
        resnet18(weights=tmp_path / "absent.pth")


def test_checkpoint_without_tensors_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadData, match="holds no state dict"):
        resnet18(weights=save({"epoch": 3}, tmp_path / "log.pth"))
