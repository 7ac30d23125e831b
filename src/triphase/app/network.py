"""Choose and build the network of a model."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch

from triphase.app.options import AUTO, ModelOptions
from triphase.errors import InvalidValue, TriphaseWarning
from triphase.models import SplitClassifier, backbone, build_for_photos
from triphase.models.efficientnet_lite import weight_file
from triphase.printable import count

MAX_SECONDS = 60  # of a first lesson with a network that `auto` takes, unless it is the last of them
MEASURED_SIZE = 224  # pixels
SECONDS_PER_PHOTO = {  # processor seconds of a first lesson at that size; the most accurate network comes first
    "efficientnet_lite2": 0.18,
    "efficientnet_lite0": 0.13,
}


def complete_options(
    options: ModelOptions, n_photos: int, suitable_size: Callable[[int], int]
) -> tuple[ModelOptions, list[str]]:
    """The options of a new model with a network in place of "auto" and an image size, and sentences that say why.

    `suitable_size` says which image size suits the first photos, given the size that the network suggests.
    """

    def size_with(name: str) -> int:
        own = backbone(name)
        return options.image_size or (own.photo_size if own.fixed_size else suitable_size(own.photo_size))

    if options.backbone != AUTO:
        return replace(options, image_size=size_with(options.backbone)), []
    if options.weights is not None:
        raise InvalidValue("A file of weights belongs to one network: name it in place of the backbone auto.")
    best, *_ = SECONDS_PER_PHOTO
    size = size_with(best)  # the networks that `auto` takes suggest the same one
    name, reason = choose_backbone(n_photos, size, torch.get_num_threads())
    return replace(options, backbone=name, image_size=size), [reason]


def choose_backbone(n_photos: int, size: int, threads: int) -> tuple[str, str]:
    """The most accurate network whose first lesson is short enough, and why it was chosen.

    benchmarks/results/photos_rule.md, choice 14, says how networks are ranked.
    """
    best, *_, fastest = SECONDS_PER_PHOTO
    seconds = SECONDS_PER_PHOTO[best] * n_photos * (size / MEASURED_SIZE) ** 2 / threads
    if seconds > MAX_SECONDS:
        minutes = count(round(seconds / 60), "minute")
        why = f"{best} is more accurate, but would take about {minutes} for {n_photos:,} photos"
        return fastest, f"The network is {fastest}: {why}. To take it all the same: --backbone {best}."
    try:
        weight_file(best)
    except InvalidValue as error:
        return fastest, f"The network is {fastest}, because a more accurate one is missing. {error}"
    return best, f"The network is {best}, the most accurate one; {fastest} is faster."


def build_network(options: ModelOptions, *, blank: bool = False, size: int | None = None) -> SplitClassifier:
    """The network of a model, without its weights if a state will be loaded."""
    chosen = backbone(options.backbone)
    weights = None if blank or options.weights is None else Path(options.weights)
    if not (blank or chosen.pretrained or weights):
        warnings.warn(
            f"{options.backbone} comes without pre-trained weights: its frozen half stays random, and it will "
            "recognise little. Take a backbone that is pre-trained for photos.",
            TriphaseWarning,
            stacklevel=3,
        )
    network = build_for_photos(
        options.backbone,
        image_size=size or options.image_size or chosen.photo_size,
        weights=weights,
        seed=options.seed,
        load_pretrained=not blank,
    )
    network.image_size = size or network.image_size  # what timm says of scaling may have changed
    return network
