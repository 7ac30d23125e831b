"""Streams of which only a part is labelled."""

from __future__ import annotations

from dataclasses import replace

import torch

from triphase.data.streams import UNLABELLED, Stream
from triphase.errors import InvalidValue
from triphase.randomness import generator


def hide_labels(source: Stream, share: float, seed: int = 0) -> Stream:
    """The stream with labels for a `share` of each class's images in each experience, for at least one of them.

    A larger share has the labels of a smaller one, and more.
    """
    check_share(share)
    experiences = []
    for experience in source.experiences:
        labels = torch.full_like(experience.images.labels, UNLABELLED)
        for label in experience.classes:
            rows = (experience.images.labels == label).nonzero().view(-1)
            order = torch.randperm(len(rows), generator=generator(seed, "labelled", experience.index, label))
            labels[rows[order[: max(1, round(share * len(rows)))]]] = label
        images = experience.images.select(torch.arange(len(labels)), labels)
        experiences.append(replace(experience, images=images))
    return replace(source, experiences=tuple(experiences))


def check_share(share: float) -> None:
    """Refuse a share outside (0, 1]."""
    if not 0 < share <= 1:
        raise InvalidValue(f"The share of the images that are labelled must be above 0 and at most 1, got {share}.")
