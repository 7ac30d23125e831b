"""Accuracy on held-out photos as a version has recorded it, without opening the model."""

from __future__ import annotations

import torch

from triphase.app.held_out_report import Proportion
from triphase.app.store.versions import Store
from triphase.data.memory import HELD_OUT


def held_out_accuracy(store: Store, number: int | None = None) -> tuple[Proportion, list[Proportion]]:
    """Of a version (by default the one in use): over all held-out photos, and for each class."""
    parts, version = store.load(number, parts=("app", "memory"))
    correct, n_classes = parts["app"]["exemplar_correct"], len(version.info["classes"])
    y = torch.empty(0, dtype=torch.long)
    if "memory" in parts and len(correct):
        columns = parts["memory"]["columns"]
        y = columns["y"][columns["split"] == HELD_OUT]
    right = torch.bincount(y[correct], minlength=n_classes).tolist()
    total = torch.bincount(y, minlength=n_classes).tolist()
    each = [Proportion.of(*pair) for pair in zip(right, total, strict=True)]
    return Proportion.of(sum(right), sum(total)), each
