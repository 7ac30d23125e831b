"""Networks cut into llf, csf and head, by name."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

from triphase.errors import InvalidValue
from triphase.image_size import Scaling, with_scaling
from triphase.models.batchnorm import lacks_statistics, rebuild_batchnorm
from triphase.models.batchrenorm import BatchRenorm2d, with_batch_renorm
from triphase.models.depth_features import DepthFeatures
from triphase.models.efficientnet_lite import efficientnet_lite0, efficientnet_lite1, efficientnet_lite2
from triphase.models.mobilenet_v1 import mobilenet_v1
from triphase.models.resnet import resnet18, resnet32
from triphase.models.small_cnn import small_cnn
from triphase.models.split import Normalize, SplitClassifier, linear_head, placed
from triphase.models.timm_backbone import PREFIX as TIMM
from triphase.models.timm_backbone import preprocessing, timm_network


@dataclass(frozen=True)
class Backbone:
    """How a network is built, and what differs from one to another."""

    build: Callable[..., SplitClassifier]
    photo_size: int  # side in pixels that photos are scaled to unless another one is asked for
    pretrained: bool = False  # comes with weights; without, and without a weight file, it is untrained
    any_channels: bool = False  # takes grey images too, not only RGB
    summaries: bool = False  # its latents can carry the means of earlier feature maps
    own_size: bool = False  # benchmarks scale images to its photo_size, not to a size of their own
    fixed_size: bool = False  # small photos are scaled to its photo_size as well
    scaling: Scaling | None = None  # how photos become squares; None: scaled to cover, cropped

    def sized(self, size: int) -> int:
        """A size with the scaling that this backbone expects."""
        return with_scaling(size, self.scaling)


BACKBONES: Mapping[str, Backbone] = MappingProxyType(
    {
        "efficientnet_lite0": Backbone(efficientnet_lite0, photo_size=224, pretrained=True, summaries=True),
        "efficientnet_lite1": Backbone(efficientnet_lite1, photo_size=224, pretrained=True, summaries=True),
        "efficientnet_lite2": Backbone(efficientnet_lite2, photo_size=224, pretrained=True, summaries=True),
        "mobilenet_v1": Backbone(mobilenet_v1, photo_size=128),
        "mobilenet_v1_1024": Backbone(partial(mobilenet_v1, max_channels=1024), photo_size=128),
        "resnet32": Backbone(resnet32, photo_size=32),
        "resnet18": Backbone(resnet18, photo_size=224),
        "small_cnn": Backbone(small_cnn, photo_size=8, any_channels=True),
    }
)


def backbone(name: str) -> Backbone:
    """The backbone of that name; `timm:NAME` is one of timm's (`triphase.models.timm_backbone`)."""
    if name.startswith(TIMM):
        wanted = preprocessing(name)
        return Backbone(
            partial(timm_network, name=name),
            wanted.size,
            pretrained=True,
            own_size=True,
            fixed_size=wanted.fixed_size,
            scaling=wanted.scaling,
        )
    if name not in BACKBONES:
        raise InvalidValue(
            f"No backbone is called {name!r}; there are {', '.join(BACKBONES)}, and {TIMM}NAME for those of timm."
        )
    return BACKBONES[name]


def build(
    name: str,
    n_classes: int = 0,
    *,
    image_size: int | None = None,
    channels: int = 3,
    weights: Path | None = None,
    load_pretrained: bool = True,  # False: a saved state will be loaded, so the weights need not be read
    seed: int = 0,
    norm: str = "bn",
    **options: Any,
) -> SplitClassifier:
    """The backbone of that name at its own or the given image size, with BatchNorm or renorm.

    `options` are those of the backbone's own function, such as `cut` or `max_channels`.

    >>> build("resnet32", 10, norm="brn").n_classes
    10
    """
    chosen = backbone(name)
    if norm not in ("bn", "brn"):
        raise InvalidValue(f"norm must be 'bn' (BatchNorm) or 'brn' (batch renormalisation), got {norm!r}.")
    if channels != 3 and not chosen.any_channels:
        able = ", ".join(name for name, one in BACKBONES.items() if one.any_channels)
        raise InvalidValue(f"{name} takes RGB images, and these have {channels} channel; use {able}.")
    options |= {} if image_size is None else {"image_size": image_size}
    options |= {} if weights is None else {"weights": weights}
    options |= {"channels": channels} if chosen.any_channels else {}
    options |= {"pretrained": False} if chosen.pretrained and not load_pretrained else {}
    allowed = _options_of(chosen)
    if weights is not None and "weights" not in allowed:
        able = ", ".join(name for name, one in BACKBONES.items() if "weights" in _options_of(one))
        raise InvalidValue(f"{name} takes no file of weights; {able} and networks of timm do.")
    unknown = [option for option in options if option not in allowed]
    if unknown:
        raise InvalidValue(f"{name} has no option {', '.join(unknown)}; it has {', '.join(allowed)}.")
    model = chosen.build(n_classes, seed=seed, **options)
    if norm == "brn":
        with_batch_renorm(model)  # llf too: the same while frozen, and needed where it learns
        if not any(isinstance(part, BatchRenorm2d) for part in model.modules()):
            raise InvalidValue(f"{name} has no BatchNorm to replace: use --norm bn.")
    return model


def _options_of(chosen: Backbone) -> list[str]:
    """The options that the function of a backbone has."""
    return [name for name in inspect.signature(chosen.build).parameters if name not in ("n_classes", "name")]


def build_for_photos(
    name: str,
    *,
    image_size: int | None = None,
    weights: Path | None = None,
    load_pretrained: bool = True,
    seed: int = 0,
) -> SplitClassifier:
    """The backbone of that name as models of photos have it: latents carry summaries where it offers them."""
    chosen = backbone(name)
    options: dict[str, Any] = {"summaries": True} if chosen.summaries else {}
    size = image_size or chosen.photo_size
    return build(name, image_size=size, weights=weights, load_pretrained=load_pretrained, seed=seed, **options)


__all__ = [
    "BACKBONES",
    "Backbone",
    "BatchRenorm2d",
    "DepthFeatures",
    "Normalize",
    "SplitClassifier",
    "backbone",
    "build",
    "build_for_photos",
    "efficientnet_lite0",
    "efficientnet_lite1",
    "efficientnet_lite2",
    "lacks_statistics",
    "linear_head",
    "mobilenet_v1",
    "placed",
    "rebuild_batchnorm",
    "resnet18",
    "resnet32",
    "small_cnn",
    "with_batch_renorm",
]
