"""The classes of a version as it has recorded them: their photos and accuracy, without opening the model."""

from __future__ import annotations

from typing import NamedTuple

import torch

from triphase.app.proportion import Proportion
from triphase.app.store.schema import Version
from triphase.app.store.versions import Store
from triphase.data.memory import HELD_OUT


class TaughtClasses(NamedTuple):
    """Accuracy on held-out photos and ids of photos, of each class."""

    accuracy: Proportion  # over all held-out photos
    accuracies: list[Proportion]
    photos: list[list[int]]  # in the order in which they were taught


def taught_classes(store: Store, version: Version) -> TaughtClasses:
    """What a version has recorded of its classes."""
    parts, version = store.load(version.number, parts=("app", "memory", "taught"))
    correct, n = parts["app"]["exemplar_correct"], len(version.info["classes"])
    y = torch.empty(0, dtype=torch.long)
    if "memory" in parts and len(correct):
        columns = parts["memory"]["columns"]
        y = columns["y"][columns["split"] == HELD_OUT]
    right, total = (torch.bincount(labels, minlength=n).tolist() for labels in (y[correct], y))
    accuracies = [Proportion.of(*pair) for pair in zip(right, total, strict=True)]
    photos: list[list[int]] = [[] for _ in range(n)]
    taught = parts["taught"]
    for ids, labels in (("ids", "labels"), ("pending_ids", "pending_labels")):
        for id_, label in zip(taught[ids].tolist(), taught[labels].tolist(), strict=True):
            photos[label].append(id_)
    return TaughtClasses(Proportion.of(sum(right), sum(total)), accuracies, photos)
