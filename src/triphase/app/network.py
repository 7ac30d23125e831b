"""Build the network of a model."""

from __future__ import annotations

import warnings
from pathlib import Path

from triphase.app.options import ModelOptions
from triphase.errors import TriphaseWarning
from triphase.models import SplitClassifier, backbone, build_for_photos


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
