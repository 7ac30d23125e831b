"""Pseudo-labels: what a learner believes of unlabelled images, where it is confident."""

from __future__ import annotations

from collections.abc import Collection

import torch
from torch import Tensor

from triphase.data.batches import Batches
from triphase.data.streams import UNLABELLED
from triphase.errors import InvalidValue
from triphase.learners.training import eval_mode, predict

CHUNK = 256  # images that are labelled together


def pseudo_labels(batches: Batches, seen: Collection[int], confidence: float) -> Tensor:
    """(n,): the most probable class of each unlabelled image of the experience, -1 where its probability is lower.

    Only classes that were seen can be given. Each process labels its shard, so all of them have the same.
    """
    model, processes = batches.model, batches.context.processes
    labels = torch.zeros(len(batches.experience.unlabelled), dtype=torch.long)
    with eval_mode(model):
        for rows in torch.arange(len(labels)).split(CHUNK):
            z, mine = batches.unlabelled_latents(rows), processes.shard()
            if len(rows[mine]):
                labels[rows[mine]] = confident(predict(model, z[mine], seen), confidence)
    return processes.sum_(labels)


def confident(logits: Tensor, confidence: float) -> Tensor:
    """(n,): the most probable class, or -1 where its softmax is below `confidence`.

    >>> confident(torch.tensor([[0.0, 3.0], [0.0, 1.0]]), 0.9).tolist()
    [1, -1]
    """
    probability, label = logits.softmax(1).max(1)
    return torch.where(probability >= confidence, label, UNLABELLED)


def check_confidence(confidence: float) -> None:
    """Refuse what is no probability."""
    if not 0 <= confidence <= 1:
        raise InvalidValue(f"confidence is a probability, in [0, 1], got {confidence}.")
