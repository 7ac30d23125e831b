"""Weight files of others: what is read, and what is refused."""

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from triphase.errors import BadData
from triphase.models import (
    resnet18,
)


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
