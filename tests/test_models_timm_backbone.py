"""Networks of timm compute in two halves what timm computes, with its preprocessing and from its weight files."""

import json
import runpy
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.error import URLError

import numpy as np
import pytest
import torch
from PIL import Image, ImageOps
from safetensors.torch import save_file
from torch import Tensor, nn

from lessons import COLOURS, done, paint, triphase
from triphase.app.export import _fit
from triphase.app.model import Model
from triphase.app.predictor import Predictor
from triphase.app.store.versions import Store
from triphase.data.decoding import decode
from triphase.data.images import resize
from triphase.data.squares import ORIENTATION, square
from triphase.errors import BadData, InvalidValue
from triphase.image_size import ImageSize, scaling_of
from triphase.models import DepthFeatures, SplitClassifier, backbone, build, timm_backbone
from triphase.models.timm_parts import Part

pytestmark = pytest.mark.skipif(find_spec("timm") is None, reason="timm is not installed")

NETWORKS = {  # cut, image size, shape of the latents
    "resnet18": ("layer3", 64, (256, 4, 4)),
    "mobilenetv4_conv_small": ("0.5", 64, (96, 4, 4)),
    "convnext_atto": ("stages.2", 64, (160, 4, 4)),
    "vit_tiny_patch16_224": ("0.75", 64, (17, 192)),
    "vit_small_patch14_reg4_dinov2": ("blocks.10", 56, (21, 384)),  # 16 patches, a class token and 4 registers
    "swin_tiny_patch4_window7_224": ("layers.2", 224, (384, 14, 14)),  # channels last in timm
    "eva02_tiny_patch14_224": ("0.9", 56, (17, 192)),  # its blocks are given rotary positions
}
SLOW = ("vit_small_patch14_reg4_dinov2", "swin_tiny_patch4_window7_224", "eva02_tiny_patch14_224")
SMALL = "test_vit"  # a network of timm's own tests


def _weights(network: str, size: int, folder: Path) -> tuple[Any, Path]:
    """A network of timm with random parameters and statistics, and the file of them."""
    timm = timm_backbone._timm()
    fixed = timm.get_pretrained_cfg(network).fixed_input_size
    whole = timm.create_model(network, **({"img_size": size} if fixed else {})).eval()
    draw = torch.Generator().manual_seed(1)
    for name, tensor in whole.state_dict().items():
        if tensor.is_floating_point():
            noise = 0.1 * torch.rand(tensor.shape, generator=draw)
            tensor += noise if "running" in name or "norm" in name else noise - 0.05
    file = folder / f"{network}.safetensors"
    save_file({name: tensor.contiguous() for name, tensor in whole.state_dict().items()}, file)
    return whole, file


def _pixels(size: int) -> Tensor:
    return torch.randint(256, (3, 3, size, size), generator=torch.Generator().manual_seed(2)).to(torch.uint8)


@pytest.mark.parametrize(
    "network", [pytest.param(n, marks=[pytest.mark.slow] if n in SLOW else []) for n in NETWORKS]
)
def test_the_halves_compute_what_the_network_computes(network: str, tmp_path: Path) -> None:
    cut, size, shape = NETWORKS[network]
    whole, file = _weights(network, size, tmp_path)
    model = build(f"timm:{network}@{cut}", 5, image_size=size, weights=file).eval()
    config = whole.pretrained_cfg
    mean, std = (torch.tensor(config[name]).view(1, 3, 1, 1) for name in ("mean", "std"))
    x = _pixels(size)
    with torch.no_grad():
        expected = whole.forward_head(whole.forward_features((x / 255 - mean) / std), pre_logits=True)
        z = model.encode(x)
        f = model.features(z)
    assert z.shape == (3, *shape)
    assert f.std() > 1e-2
    assert torch.allclose(f, expected, rtol=1e-4, atol=1e-5 * float(expected.abs().max()))
    assert model.n_classes == 5
    model.freeze("llf")
    model.features(z).sum().backward()
    assert [name for name, p in model.csf.named_parameters() if p.grad is None] == []


def test_a_network_takes_size_and_normalisation_from_timm() -> None:
    own = timm_backbone.preprocessing("timm:vit_small_patch14_reg4_dinov2@0.5")
    assert (own.size, own.fixed_size, own.mean) == (518, True, (0.485, 0.456, 0.406))
    assert backbone("timm:vit_small_patch14_reg4_dinov2").photo_size == 518


WAYS = [  # interpolation, crop_pct, crop_mode: most of timm's networks, and the others
    ("bicubic", 0.95, "center"),
    ("bilinear", 0.875, "center"),
    ("bicubic", 1.15, "center"),  # scaled to less than the square
    ("bilinear", 0.9, "squash"),
    ("bicubic", 1.0, "border"),
]
SIDE = 101


def _photo(folder: Path, width: int, height: int, **how: Any) -> Path:
    """A JPEG with fine detail, which every other way of scaling shows."""
    draw = np.random.default_rng(0)
    coarse = Image.fromarray(draw.integers(0, 256, (9, 9, 3), dtype=np.uint8)).resize((width, height))
    fine = np.asarray(coarse).astype(int) + draw.integers(-60, 60, (height, width, 3))
    Image.fromarray(fine.clip(0, 255).astype(np.uint8)).save(folder / "photo.jpg", quality=95, **how)
    return folder / "photo.jpg"


def _data(way: tuple[str, float, str]) -> dict[str, Any]:
    """A configuration of timm."""
    named = dict(zip(("interpolation", "crop_pct", "crop_mode"), way, strict=True))
    return {**timm_backbone._timm().data.resolve_data_config({"input_size": (3, SIDE, SIDE)}), **named}


@pytest.mark.parametrize("way", WAYS, ids=[" ".join(map(str, way)) for way in WAYS])
@pytest.mark.parametrize(("width", "height"), [(701, 500), (333, 900), (60, 45), (101, 101)])
def test_pixels_are_those_of_the_transform_that_timm_evaluates_with(
    way: tuple[str, float, str], width: int, height: int, tmp_path: Path
) -> None:
    file, data = _photo(tmp_path, width, height), _data(way)
    expected = timm_backbone._timm().data.create_transform(**data, normalize=False)(Image.open(file))
    size = ImageSize(SIDE, timm_backbone._scaling(data))
    assert torch.equal(decode(file, size), expected)
    assert torch.equal(square(Image.open(file), size), expected)
    array = torch.from_numpy(np.array(Image.open(file))).permute(2, 0, 1)
    if (width, height) != (SIDE, SIDE):  # an array of that size is taken as prepared
        assert torch.equal(resize(array[None], size)[0], expected)


@pytest.mark.parametrize("way", WAYS, ids=[" ".join(map(str, way)) for way in WAYS])
def test_the_example_for_exported_files_prepares_a_photo_in_the_same_way(
    way: tuple[str, float, str], tmp_path: Path
) -> None:
    size, file = ImageSize(SIDE, timm_backbone._scaling(_data(way))), _photo(tmp_path, 333, 900)
    prepare = runpy.run_path(str(Path(__file__).parents[1] / "examples" / "onnx_predict.py"))["prepare"]
    how = json.loads(json.dumps({"size": size, **_fit(size)}))
    assert torch.equal(torch.from_numpy(prepare(str(file), how).copy()).permute(2, 0, 1), decode(file, size))


def test_a_photo_that_lies_on_its_side_is_turned_before_it_is_scaled(tmp_path: Path) -> None:
    timm, exif = timm_backbone._timm(), Image.Exif()
    exif[ORIENTATION] = 6
    file = _photo(tmp_path, 333, 900, exif=exif)
    data = timm.data.resolve_data_config({"input_size": (3, SIDE, SIDE)})
    upright = ImageOps.exif_transpose(Image.open(file))
    expected = timm.data.create_transform(**data, normalize=False)(upright)
    assert torch.equal(decode(file, ImageSize(SIDE, timm_backbone._scaling(data))), expected)


def test_a_jpeg_that_is_too_large_to_decode_whole_is_decoded_at_a_fraction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, size = _photo(tmp_path, 1000, 800), backbone("timm:resnet18").sized(SIDE)
    whole = decode(file, size)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 500_000)
    part = decode(file, size)
    assert not torch.equal(part, whole) and (part.float() - whole.float()).abs().mean() < 10


def test_latents_are_those_of_timm_on_the_same_photo(tmp_path: Path) -> None:
    name = "resnet18.tv_in1k"  # bilinear, with a margin
    whole, weights = _weights(name, 64, tmp_path)
    model = build(f"timm:{name}@layer3", image_size=64, weights=weights).eval()
    assert model.image_size == 64 and "bilinear, crop_pct 0.875" in str(scaling_of(model.image_size))
    file = _photo(tmp_path, 701, 500)
    config = timm_backbone._timm().data.resolve_data_config({"input_size": (3, 64, 64)}, model=whole)
    x = timm_backbone._timm().data.create_transform(**config)(Image.open(file))[None]
    with torch.no_grad():
        expected = whole.layer3(whole.layer2(whole.layer1(whole.maxpool(whole.act1(whole.bn1(whole.conv1(x)))))))
        z = model.encode(decode(file, model.image_size)[None])
        plain = model.encode(decode(file, 64)[None])
    scale = float(expected.abs().max())
    assert (z - expected).abs().max() < 1e-5 * scale
    assert (plain - expected).abs().max() > 1e-2 * scale


def test_a_scaling_that_is_not_known_is_refused() -> None:
    data = timm_backbone._timm().data.resolve_data_config({"input_size": (3, 8, 8)}) | {"interpolation": "random"}
    with pytest.raises(InvalidValue, match="scaled by random and cropped by center, which this version"):
        timm_backbone._scaling(data)


def test_the_depth_features_of_a_transformer_are_means_over_tokens(tmp_path: Path) -> None:
    model = build(f"timm:{SMALL}@0.5", image_size=32, load_pretrained=False).eval()
    with torch.no_grad():
        z = model.encode(_pixels(32))
        f = DepthFeatures(model.csf, max_width=10_000)(z)
    tokens = nn.functional.normalize(z.mean(1))
    assert torch.allclose(f[:, : tokens.shape[1]], tokens, atol=1e-6)


def test_the_seed_alone_draws_random_weights() -> None:
    before = torch.random.get_rng_state()
    one, same, other = (
        build(f"timm:{SMALL}", image_size=32, load_pretrained=False, seed=seed) for seed in (1, 1, 2)
    )
    assert torch.equal(torch.random.get_rng_state(), before)
    assert _first(one).equal(_first(same)) and not _first(one).equal(_first(other))


@pytest.mark.parametrize("network", ["rexnet_100", "efficientformerv2_s2"])  # with dropout; with stochastic depth
def test_no_step_depends_on_the_global_generator(network: str) -> None:
    model = build(f"timm:{network}@0", load_pretrained=False)
    size = model.image_size or 0
    before = torch.random.get_rng_state()
    model(torch.zeros(2, 3, size, size))
    assert model.training and torch.equal(torch.random.get_rng_state(), before)


def test_a_network_without_blocks_is_cut_between_its_layers() -> None:
    parts = [Part(f"features.{i}", nn.ReLU(), {}) for i in range(8)]  # as VGG is
    assert [timm_backbone._n_before(f"timm:vgg11@{cut}", parts) for cut in ("0", "0.5", "1")] == [0, 4, 8]


def _first(model: SplitClassifier) -> Tensor:
    return next(p for p in model.llf.parameters() if p.dim() > 1 and bool(p.any()))


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("timm:resnet19", "timm has no network 'resnet19'; did you mean resnet18"),
        ("timm:resnet18.my_own", "Invalid pretrained tag"),
        ("timm:resnet18@layer9", "has no part 'layer9' to cut after; it has conv1, bn1, act1, maxpool, layer1"),
        ("timm:resnet18@1.5", "A share of the blocks is from 0 to 1"),
        ("timm:", "is written timm:NAME or timm:NAME@CUT"),
    ],
)
def test_names_and_cuts_that_do_not_exist_are_refused(name: str, sentence: str) -> None:
    with pytest.raises(InvalidValue, match=sentence):
        build(name, load_pretrained=False, image_size=32)


def test_a_cut_that_does_not_exist_is_refused_before_weights_are_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timm_backbone, "_cached_weights", lambda timm, network: None)
    monkeypatch.setattr(timm_backbone, "_check_hub", _never)
    with pytest.raises(InvalidValue, match="has no part 'blocks.x' to cut after; it has patch_embed, .*blocks"):
        build(f"timm:{SMALL}@blocks.x")


def test_a_weight_file_of_another_network_is_refused(tmp_path: Path) -> None:
    _, file = _weights(SMALL, 32, tmp_path)
    with pytest.raises(BadData, match="does not fit timm:test_vit2"):
        build("timm:test_vit2", weights=file, image_size=32)


def test_an_image_size_that_is_too_small_is_not_blamed_on_the_weights(tmp_path: Path) -> None:
    _, file = _weights("test_vit2", 32, tmp_path)
    sentence = r"test_vit2 cannot take images of 15 pixels: .*patch size \(16\)\. Its own size is 160"
    with pytest.raises(InvalidValue, match=sentence):
        build("timm:test_vit2", weights=file, image_size=15)


def test_without_the_hub_and_without_a_file_there_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable(*args: Any, **kwargs: Any) -> None:
        raise URLError("no route")

    monkeypatch.setattr(timm_backbone, "urlopen", unreachable)
    monkeypatch.setattr(timm_backbone, "_cached_weights", lambda timm, network: None)
    with pytest.raises(InvalidValue, match=r"cannot be fetched .*\(no route\): .* --weights"):
        build(f"timm:{SMALL}", image_size=32)


def test_weights_that_were_fetched_before_need_no_internet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, file = _weights(SMALL, 160, tmp_path)
    monkeypatch.setattr(timm_backbone, "_cached_weights", lambda timm, network: file)
    monkeypatch.setattr(timm_backbone, "_check_hub", _never)
    assert _first(build(f"timm:{SMALL}")).equal(_first(build(f"timm:{SMALL}", weights=file)))


def _never(*args: Any) -> None:
    raise AssertionError("it is not needed")


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    for colour in list(COLOURS)[:3]:
        paint(tmp_path / "photos" / colour, colour, range(8))
    return tmp_path / "photos"


@pytest.mark.slow
def test_a_model_is_taught_and_answers_without_internet(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, file = _weights(SMALL, 160, tmp_path)
    model = tmp_path / "model"
    done("teach", model, photos, "--backbone", f"timm:{SMALL}@0.5", "--weights", file, "--image-size", 32)
    file.unlink()
    for name in ("_check_hub", "_cached_weights"):
        monkeypatch.setattr(timm_backbone, name, _never)
    answer = json.loads(done("predict", model, photos / "red" / "1.png", "--json").out)
    assert answer["answers"][0]["label"] == "red"
    own = timm_backbone.preprocessing(f"timm:{SMALL}")
    with monkeypatch.context() as newer:  # another version of timm does not change what a model was taught with
        other = replace(own, scaling=replace(own.scaling, interpolation="nearest"))
        newer.setattr(timm_backbone, "preprocessing", lambda name: other)
        sizes = Predictor.open(model).size, Model.from_state(Store(model).load()[0]).size
    assert [scaling_of(size) for size in sizes] == [own.scaling, own.scaling]
    paint(photos / "yellow", "yellow", range(8))
    done("teach", model, photos)
    assert Predictor.open(model).names == ("blue", "green", "red", "yellow")


def test_bench_runs_a_network_of_timm(photos: Path, tmp_path: Path) -> None:
    _, file = _weights(SMALL, 160, tmp_path)
    run = ("bench", "run", "folder:2/2-1", "--data", photos, "--epochs", 3, "--memory", 6)
    network = ("--backbone", f"timm:{SMALL}", "--weights", file)
    done(*run, *network, "--image-size", 32, "--replay", "latent", "--out", tmp_path / "run")
    settings = json.loads((tmp_path / "run" / "report.json").read_text())["settings"]
    assert (settings["backbone"], settings["image_size"]) == (f"timm:{SMALL}", 32)
    assert settings["scaling"] == str(timm_backbone.preprocessing(f"timm:{SMALL}").scaling)
    answer = triphase(*run, *network, "--norm", "brn", "--image-size", 32, "--out", tmp_path / "other")
    assert answer.status == 1 and f"timm:{SMALL} has no BatchNorm to replace: use --norm bn" in answer.err


@pytest.mark.slow
@pytest.mark.parametrize("network", list(NETWORKS)[:5])
def test_each_kind_of_network_teaches_answers_and_is_benchmarked(
    network: str, photos: Path, tmp_path: Path
) -> None:
    cut, size, _ = NETWORKS[network]
    _, file = _weights(network, size, tmp_path)
    chosen = ("--backbone", f"timm:{network}@{cut}", "--weights", file, "--image-size", size)
    done("teach", tmp_path / "model", photos, *chosen)
    for colour in ("red", "green"):
        answer = json.loads(done("predict", tmp_path / "model", photos / colour / "3.png", "--json").out)
        assert answer["answers"][0]["best"] == colour
    run = ("bench", "run", "folder:2/2-1", "--data", photos, "--epochs", 3, "--memory", 6)
    done(*run, *chosen, "--engine", "onnx", "--out", tmp_path / "run")
    assert json.loads((tmp_path / "run" / "report.json").read_text())["settings"]["engine"].startswith("onnx")


def test_layers_that_do_more_than_batchnorm_are_not_swapped() -> None:
    with pytest.raises(InvalidValue, match="does more than BatchNorm"):
        build("timm:test_efficientnet", load_pretrained=False, image_size=32, norm="brn")
