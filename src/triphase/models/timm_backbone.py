"""Networks of timm (PyTorch Image Models), convolutional or transformers, cut after any of their parts.

`timm:NAME` is cut at three quarters of its blocks, `timm:NAME@CUT` elsewhere: CUT is a part by timm's own name,
such as `layer3`, `stages.2` or `blocks.8`, which ends llf, or a share of the blocks, such as `0.5`.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, get_args
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import torch
from torch import nn
from torch.nn.modules.dropout import _DropoutNd

from triphase.errors import BadData, InvalidValue
from triphase.image_size import CropMode, ImageSize, Interpolation, Scaling
from triphase.models.split import Normalize, SplitClassifier, linear_head
from triphase.models.timm_parts import Part, compute_the_same, halves, parts_called
from triphase.models.weights import read_weights
from triphase.torchvision_operators import declare_torchvision_operators

PREFIX = "timm:"
CUT = 0.75
HUB_SECONDS = 5  # to wait for an answer


@dataclass(frozen=True)
class Preprocessing:
    """What a network expects of its images, as timm says; mean and std are those of pixels in 0..1."""

    size: int
    fixed_size: bool  # another size is another network
    mean: tuple[float, ...]
    std: tuple[float, ...]
    scaling: Scaling


def timm_network(
    n_classes: int = 0,
    *,
    name: str,  # with its prefix
    image_size: int | None = None,
    weights: Path | None = None,
    pretrained: bool = True,
    seed: int = 0,
) -> SplitClassifier:
    """A network of timm with the weights of a file, else those of timm's hub, else random ones."""
    own = preprocessing(name)
    size = ImageSize(own.size if image_size is None else image_size, own.scaling)
    network = _network(name, own, size, weights, pretrained, seed).eval()
    one, other = torch.rand(2, 1, 3, size, size, generator=torch.Generator().manual_seed(0))
    try:
        with torch.no_grad():
            expected = network.forward_head(network.forward_features(other), pre_logits=True)
            parts = parts_called(network, network.forward_features, one)
    except (AssertionError, RuntimeError, ValueError) as error:
        raise InvalidValue(
            f"{name} cannot take images of {size} pixels: {_first_line(error)} Its own size is {own.size}."
        ) from error
    llf, csf = halves(network, parts, _n_before(name, parts), one)
    if not compute_the_same(llf, csf, other, expected):
        raise InvalidValue(
            f"{name} cannot be cut there: what follows is no chain of parts. Cut it later, or not at all (@1)."
        )
    normalize = Normalize(*(tuple(255 * value for value in values) for values in (own.mean, own.std)))
    model = SplitClassifier(
        nn.Sequential(normalize, *llf), csf, linear_head(expected.shape[1], n_classes), image_size=size
    )
    return model.train()


def preprocessing(name: str) -> Preprocessing:
    """What the network of this name expects of its images; refuses a name that timm does not know."""
    timm, (network, _) = _timm(), _parsed(name)
    if not timm.is_model(network):
        near = difflib.get_close_matches(network.split(".")[0], timm.list_models(), 3, cutoff=0.5)
        hint = f"did you mean {' or '.join(near)}?" if near else "timm.list_models() lists all."
        raise InvalidValue(f"timm has no network {network!r}; {hint}")
    try:
        config = timm.get_pretrained_cfg(network, allow_unregistered=False)
    except RuntimeError as error:  # the tag after the dot
        raise InvalidValue(f"timm has no weights {network!r}: {_first_line(error)}") from error
    data = timm.data.resolve_data_config(pretrained_cfg=config.to_dict())
    numbers = tuple(data["mean"]), tuple(data["std"])
    return Preprocessing(data["input_size"][-1], bool(config.fixed_input_size), *numbers, _scaling(data))


def _scaling(data: dict[str, Any]) -> Scaling:
    """The scaling of timm's transform for evaluation, by the configuration that it is made from."""
    interpolation, mode = data["interpolation"], data["crop_mode"]
    if interpolation not in get_args(Interpolation) or mode not in get_args(CropMode):
        raise InvalidValue(
            f"Its images are to be scaled by {interpolation} and cropped by {mode}, which this version of triphase "
            "does not know; take another network."
        )
    red, green, blue = (round(255 * value) if mode == "border" else 0 for value in data["mean"])
    return Scaling(interpolation, float(data["crop_pct"]), mode, (red, green, blue))


def _timm() -> Any:
    declare_torchvision_operators()
    try:
        return import_module("timm")
    except ImportError as error:
        raise InvalidValue(f"timm cannot be imported ({error}): pip install 'triphase[timm]'.") from error


def _parsed(name: str) -> tuple[str, str | float]:
    """timm's name and the cut.

    >>> _parsed("timm:resnet18@layer3"), _parsed("timm:vit_tiny_patch16_224")
    (('resnet18', 'layer3'), ('vit_tiny_patch16_224', 0.75))
    """
    match = re.fullmatch(rf"{PREFIX}([\w.-]+)(?:@([\w.]+))?", name)
    if match is None:
        raise InvalidValue(f"A network of timm is written {PREFIX}NAME or {PREFIX}NAME@CUT, got {name!r}.")
    cut = match[2] or str(CUT)
    if not re.fullmatch(r"\d*\.?\d+|\d+\.", cut):
        return match[1], cut
    if float(cut) > 1:
        raise InvalidValue(f"A share of the blocks is from 0 to 1, got {name}.")
    return match[1], float(cut)


def _network(name: str, own: Preprocessing, size: int, weights: Path | None, pretrained: bool, seed: int) -> Any:
    """The network without its classifier, at random or with weights."""
    timm, (network, _) = _timm(), _parsed(name)
    options: dict[str, Any] = {"img_size": size} if own.fixed_size else {}
    if weights is None and pretrained:
        weights = _cached_weights(timm, network)
    if weights is not None:
        options |= _with_weights(timm, network, weights)
    elif pretrained:
        _check_part(timm, name)
        _check_hub(network)
        options |= {"pretrained": True, "num_classes": 0}
    try:
        with torch.random.fork_rng(devices=()):
            torch.manual_seed(seed)
            created = timm.create_model(network, **{"num_classes": 0, **options})
    except Exception as error:  # timm, the hub and each network have errors of their own
        if pretrained or weights is not None:
            timm_network(name=name, image_size=size, pretrained=False)  # refuses what no weights would make fit
        if weights is not None:
            raise BadData(f"{weights} does not fit {name}: {_first_line(error)}") from error
        raise InvalidValue(f"timm cannot make {network} at {size} pixels: {_first_line(error)}") from error
    created.pretrained_cfg.pop("state_dict", None)  # or the weights would be held twice
    created.reset_classifier(0)
    _turn_off_dropout_(created)
    return created


def _turn_off_dropout_(network: Any) -> None:
    """Turn off dropout and stochastic depth, which some networks have by default.

    They draw from torch's global generator: a run that is continued, or shared by processes, would end with other
    weights.
    """
    for module in network.modules():
        if isinstance(module, _DropoutNd):
            module.p = 0.0
        elif hasattr(module, "drop_prob"):  # DropPath and its like
            module.drop_prob = 0.0


def _with_weights(timm: Any, network: str, file: Path) -> dict[str, Any]:
    """Options by which timm loads a file, all of it, adapting what depends on the image size."""
    weights = read_weights(file)
    classifier = timm.get_pretrained_cfg(network).classifier or "fc"
    name = classifier if isinstance(classifier, str) else classifier[0]
    n = len(weights[f"{name}.weight"]) if f"{name}.weight" in weights else 0
    overlay = {"state_dict": weights, "num_classes": n, "label_offset": 0, "custom_load": False}
    return {"pretrained": True, "num_classes": n, "pretrained_cfg_overlay": overlay}


def _cached_weights(timm: Any, network: str) -> Path | None:
    """The file that an earlier download has left."""
    repository = timm.get_pretrained_cfg(network).hf_hub_id
    if not repository:
        return None
    found = import_module("huggingface_hub").try_to_load_from_cache(repository, "model.safetensors")
    return Path(found) if isinstance(found, str) else None


def _check_hub(network: str) -> None:
    """Refuse at once where weights cannot be fetched: the hub's own library tries for a minute."""
    endpoint = import_module("huggingface_hub.constants").ENDPOINT
    try:
        with urlopen(Request(endpoint, method="HEAD"), timeout=HUB_SECONDS):
            pass
    except HTTPError:
        pass  # it has answered
    except OSError as error:
        reason = getattr(error, "reason", error)
        raise InvalidValue(
            f"The weights of {network} cannot be fetched from {endpoint} ({reason}): connect to the internet, or "
            "give a file of them with --weights."
        ) from error


def _n_before(name: str, parts: Sequence[Part]) -> int:
    """How many parts are before the cut."""
    cut = _parsed(name)[1]
    if isinstance(cut, float):
        large = [i for i, part in enumerate(parts) if list(part.module.children())]
        blocks = [i for i in large if "." in parts[i].name] or large or list(range(len(parts)))
        n = round(cut * len(blocks))
        return len(parts) if cut == 1 else blocks[n - 1] + 1 if n else blocks[0]
    inside = [i for i, part in enumerate(parts) if f"{part.name}.".startswith(f"{cut}.")]
    if not inside:
        raise _no_part(name, [part.name.rpartition(".")[0] or part.name for part in parts])
    return inside[-1] + 1


def _check_part(timm: Any, name: str) -> None:
    """Refuse a part that does not exist, before the weights of the network are fetched."""
    network, cut = _parsed(name)
    if isinstance(cut, str):
        with torch.device("meta"):
            whole = timm.create_model(network, num_classes=0)
        if cut not in dict(whole.named_modules()):
            raise _no_part(name, [part for part, _ in whole.named_children()])


def _no_part(name: str, parts: Sequence[str]) -> InvalidValue:
    (network, cut), there = name.split("@"), ", ".join(dict.fromkeys(parts))
    return InvalidValue(
        f"{network} has no part {cut!r} to cut after; it has {there} and what is in them. A share of its blocks, "
        "as in @0.5, will do too."
    )


def _first_line(error: BaseException) -> str:
    """The first line of another library's error, as a sentence."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    text = " ".join(lines[:2])[:200]
    return text if text.endswith((".", "?", "!")) else f"{text}."
