"""Pseudo-labels: confident predictions on unlabelled images."""

from __future__ import annotations

import warnings
from collections.abc import Collection

import torch
from torch import Tensor
from torch.nn import functional as F

from triphase.data.batches import Batches
from triphase.data.streams import UNLABELLED
from triphase.errors import InvalidValue, TriphaseWarning
from triphase.learners.training import eval_mode, mask_unseen
from triphase.maths import normalize_

CHUNK = 256  # images that are labelled together


def pseudo_labels(batches: Batches, seen: Collection[int], confidence: float, s: float) -> Tensor:
    """(n,): the most probable class of each unlabelled image of the experience, -1 where its probability is lower.

    Only classes that were seen can be given. The rows of the head have one size here (Eq. 9), as they have when
    the model answers: those of novel classes are still small, and nearly everything would be taken for a known
    class. Each process labels its shard, so all of them have the same labels.
    """
    model, processes = batches.model, batches.context.processes
    W = model.head.weight.detach().clone()
    normalize_(W, seen, s)
    labels = torch.zeros(len(batches.experience.unlabelled), dtype=torch.long)
    with eval_mode(model), torch.no_grad():
        for rows in torch.arange(len(labels)).split(CHUNK):
            z, mine = batches.unlabelled_latents(rows), processes.shard()
            if len(rows[mine]):
                logits = F.linear(model.features(z[mine]), W).cpu()
                labels[rows[mine]] = confident(mask_unseen(logits, seen), confidence)
    labels = processes.sum_(labels)
    if bool((labels < 0).all()):
        warnings.warn(
            f"None of {len(labels)} unlabelled images is used: no class has a probability of {confidence:g}; lower "
            "confidence to learn from them.",
            TriphaseWarning,
            stacklevel=3,
        )
    return labels


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
