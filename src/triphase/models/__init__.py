"""Networks cut into llf, csf and head, by name."""

import inspect
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

from triphase.errors import InvalidValue
from triphase.models.batchrenorm import BatchRenorm2d, with_batch_renorm
from triphase.models.calibration import rebuild_batchnorm
from triphase.models.efficientnet_lite0 import efficientnet_lite0, imagenet_classifier
from triphase.models.mobilenet_v1 import mobilenet_v1
from triphase.models.resnet import resnet18, resnet32
from triphase.models.small_cnn import small_cnn
from triphase.models.split import Normalize, SplitClassifier, linear_head

BACKBONES: Mapping[str, Callable[..., SplitClassifier]] = MappingProxyType(
    {
        "efficientnet_lite0": efficientnet_lite0,
        "mobilenet_v1": mobilenet_v1,
        "mobilenet_v1_1024": partial(mobilenet_v1, max_channels=1024),
        "resnet32": resnet32,
        "resnet18": resnet18,
        "small_cnn": small_cnn,
    }
)


def build(
    name: str,
    n_classes: int = 0,
    *,
    image_size: int | None = None,
    weights: Path | None = None,
    seed: int = 0,
    norm: str = "bn",
    **options: Any,
) -> SplitClassifier:
    """The backbone of that name at its own or the given image size, with BatchNorm or renorm (SPEC 1.6, 5).

    `options` are those of the backbone's own function, such as `cut` or `max_channels`.

    >>> build("resnet32", 10, norm="brn").n_classes
    10
    """
    if name not in BACKBONES:
        raise InvalidValue(f"No backbone is called {name!r}; there are {', '.join(BACKBONES)}.")
    if norm not in ("bn", "brn"):
        raise InvalidValue(f"norm must be 'bn' (BatchNorm) or 'brn' (batch renormalisation), got {norm!r}.")
    options |= {} if image_size is None else {"image_size": image_size}
    options |= {} if weights is None else {"weights": weights}
    allowed = [option for option in inspect.signature(BACKBONES[name]).parameters if option != "n_classes"]
    unknown = [option for option in options if option not in allowed]
    if unknown:
        raise InvalidValue(f"{name} has no option {', '.join(unknown)}; it has {', '.join(allowed)}.")
    model = BACKBONES[name](n_classes, seed=seed, **options)
    if norm == "brn":
        with_batch_renorm(model)  # llf too: the same while frozen, and needed where it learns
    return model


__all__ = [
    "BACKBONES",
    "BatchRenorm2d",
    "Normalize",
    "SplitClassifier",
    "build",
    "efficientnet_lite0",
    "imagenet_classifier",
    "linear_head",
    "mobilenet_v1",
    "rebuild_batchnorm",
    "resnet18",
    "resnet32",
    "small_cnn",
    "with_batch_renorm",
]
