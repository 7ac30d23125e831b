"""Occasions: photos of a class that were taken together.

They share light, background and often the object, so a model that was trained on some of them recognises the others
better than new photos. Photos that evaluate a model must come from other occasions than those that train it.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from triphase.app.near_duplicates import components
from triphase.data.feature_cache import unpack
from triphase.data.memory import HELD_OUT, Memory
from triphase.maths.sampling import evenly_spaced
from triphase.models import SplitClassifier
from triphase.models.depth_features import pooled_map

ALIKE = 0.18  # how far apart two photos of one occasion are, at most, as a share of the distance between classes
MIN_CHANNELS = 32  # of a feature map whose mean tells photos apart; that of an image is only its colour
MAX_COMPARED = 500  # photos from which the distance between classes is taken
MAX_SECONDS = 600.0  # between two photos of one occasion, one taken after the other
CHUNK = 256  # latents averaged together


def embeddings(network: SplitClassifier, z: Tensor) -> Tensor:
    """(n, channels), of unit length: mean feature maps of packed latents at the cut."""
    parts = [pooled_map(network.csf, unpack(part.float())) for part in z.split(CHUNK)]
    return F.normalize(torch.cat(parts)) if parts else z.new_empty(0, 0, dtype=torch.float)


def alike_distance(embedding: Tensor, labels: Tensor) -> float:
    """The distance (1 - cosine) up to which two photos of a class look alike.

    It is a share of the median distance between photos of different classes, so that it suits every network; where
    there is one class, between all of its photos. 0 where the mean of a feature map says nothing.
    """
    if embedding.shape[1] < MIN_CHANNELS:
        return 0.0
    rows = evenly_spaced(len(labels), MAX_COMPARED)
    apart = labels[rows, None] != labels[rows]
    if not bool(apart.any()):
        apart = ~torch.eye(len(rows), dtype=torch.bool)
    distances = (1 - embedding[rows] @ embedding[rows].T)[apart]
    return ALIKE * float(distances.median()) if len(distances) else 0.0


def groups(embedding: Tensor, times: Tensor, labels: Tensor, duplicates: Tensor) -> Tensor:
    """The occasion of each photo, as the row of its first member; it holds whole groups of near-duplicates.

    Photos of a class are linked if they look alike or were taken soon after each other; times are NaN where they
    are not known. On photos of products in shops, a model that is measured on near-duplicate groups alone seems to
    be 99 % right where it is 86 % right on test photos; measured on occasions, 85 % (closed form, Grocery
    Store, half A). Photos gathered one by one hardly form any: 91.0 % against 88.9 % (Caltech-101).

    >>> embedding = torch.eye(4, 32)[[0, 0, 1, 2]]
    >>> times, labels = torch.full((4,), torch.nan), torch.tensor([0, 0, 0, 1])
    >>> groups(embedding, times, labels, torch.arange(4)).tolist()
    [0, 0, 2, 3]
    """
    occasion, least = torch.arange(len(labels)), 1 - alike_distance(embedding, labels)
    for label in labels.unique().tolist():
        rows = (labels == label).nonzero().view(-1)

        def linked(some: Tensor, rows: Tensor = rows) -> Tensor:
            a, near = rows[some], duplicates[rows[some], None] == duplicates[rows]
            return (
                near
                | (embedding[a] @ embedding[rows].T > least)
                | ((times[a, None] - times[rows]).abs() <= MAX_SECONDS)
            )

        occasion[rows] = rows[components(len(rows), linked)]
    return occasion


def resembles(embedding: Tensor, labels: Tensor, others: Tensor, other_labels: Tensor) -> Tensor:
    """(n,) bool: which photos look like another one of their class."""
    found = torch.zeros(len(labels), dtype=torch.bool)
    least = 1 - alike_distance(torch.cat([embedding, others]), torch.cat([labels, other_labels]))
    for label in set(labels.tolist()) & set(other_labels.tolist()):
        rows = (labels == label).nonzero().view(-1)
        found[rows] = (embedding[rows] @ others[other_labels == label].T > least).any(1)
    return found


def n_alike(network: SplitClassifier, memory: Memory | None) -> int:
    """How many exemplars look like a stored training photo of their class; 0 where no latents are stored."""
    if memory is None or memory.store != "latent" or len(memory) == 0:
        return 0
    embedding, y = embeddings(network, memory["z"]), memory["y"]
    exemplars, trained = memory.slots(HELD_OUT), memory.slots()
    return int(resembles(embedding[exemplars], y[exemplars], embedding[trained], y[trained]).sum())
