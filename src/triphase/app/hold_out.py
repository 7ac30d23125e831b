"""Choose the held-out photos of a lesson: they evaluate the model and are never trained on.

Whole occasions are held out, so that photos taken together are not on both sides of the split. In a class of one
occasion, whole groups of near-duplicates are held out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from triphase.app import near_duplicates, occasions
from triphase.app.model import Model
from triphase.app.near_duplicates import matches_stored, whole_groups
from triphase.data.feature_cache import latents
from triphase.data.images import Images
from triphase.data.memory import HELD_OUT, TRAIN, Memory
from triphase.data.streams import Experience
from triphase.errors import InvalidValue
from triphase.randomness import keys as random_keys

EXEMPLARS = 50  # of a class at most, near-duplicates of them not counted
SHARE = 0.2  # of a class's photos that are held out


@dataclass(frozen=True)
class Lesson:
    """Photos as the next experience of a model."""

    experience: Experience
    names: list[str]  # of all classes after it, in the order of their labels


def hold_out(
    model: Model, images: Images, names: Sequence[str], hashes: Tensor, times: Tensor | None = None
) -> Lesson:
    """Make images (labels are rows of `names`) the next experience, some of each class held out.

    About a fifth of each class's photos is held out, in whole occasions; so is whatever is a near-duplicate of a
    photo that is held out already. `times` says when photos were taken, NaN if unknown. Without replay
    nothing is held out.
    """
    present = [names[label] for label in images.labels.unique().tolist()]
    after = model.names + [name for name in names if name in present and name not in model.names]
    number = {name: label for label, name in enumerate(after)}
    labels = torch.tensor([number.get(name, -1) for name in names], dtype=torch.long)[images.labels]
    renamed, index = images.select(torch.arange(len(images)), labels), model.lessons + 1
    if model.memory is None:
        return Lesson(Experience(index, renamed), after)
    held_out = _held_out(model, model.memory, renamed, hashes, times, len(after))
    return Lesson(Experience(index, renamed, held_out, {"hash": hashes}), after)


def _held_out(
    model: Model, memory: Memory, images: Images, hashes: Tensor, times: Tensor | None, n_classes: int
) -> Tensor:
    """(n,) bool"""
    labels, slots = images.labels, memory.slots(HELD_OUT)
    groups = near_duplicates.groups(hashes, labels)
    held_out = _by_occasion(model, memory, images, groups, times, n_classes)
    like_exemplars = torch.zeros_like(held_out)
    if "hash" in memory.columns:
        matches = matches_stored(hashes, labels, memory["hash"][slots], memory["y"][slots])
        like_exemplars = whole_groups(matches, groups)
        held_out = whole_groups(held_out | matches, groups)
        trained = memory.slots(TRAIN)
        seen = matches_stored(hashes, labels, memory["hash"][trained], memory["y"][trained])
        # near-duplicates of training photos would overstate accuracy
        held_out &= ~whole_groups(seen & ~matches, groups)
    for label in labels.unique().tolist():  # a new class is never left without a photo to learn from
        rows = labels == label
        if bool(held_out[rows].all()) and label >= len(model.names):
            held_out[rows] = False
    # near-duplicates of exemplars are never trained on, even if nothing else is left
    return like_exemplars if bool(held_out.all()) else held_out


def _by_occasion(
    model: Model, memory: Memory, images: Images, duplicates: Tensor, times: Tensor | None, n_classes: int
) -> Tensor:
    """(n,) bool: whole occasions; near-duplicates of a class that would have no exemplar otherwise."""
    labels, before = images.labels, memory["y"][memory.slots(HELD_OUT)]
    embedding = occasions.embeddings(model.network, latents(model.network, images, context=model.context))
    unknown = torch.full((len(labels),), torch.nan, dtype=torch.double)
    together = occasions.groups(embedding, unknown if times is None else times, labels, duplicates)
    limit = min(EXEMPLARS, max(1, (memory.capacity or 0) // n_classes // 4))
    key = random_keys(model.options.seed + 1, images.ids)
    held_out = choose(together, labels, key, limit, SHARE, held_before=before.tolist())
    held_out &= ~whole_groups(_like_training(model, memory, embedding, labels), together)
    measured = torch.isin(labels, torch.cat([before, labels[held_out]]))
    return held_out | (~measured & choose(duplicates, labels, key, limit, SHARE))


def _like_training(model: Model, memory: Memory, embedding: Tensor, labels: Tensor) -> Tensor:
    """(n,) bool: which photos look like one that is stored to learn from; compared where latents are stored."""
    trained = memory.slots(TRAIN)
    trained = trained[torch.isin(memory["y"][trained], labels)] if len(trained) else trained
    if memory.store != "latent" or len(trained) == 0:
        return torch.zeros(len(labels), dtype=torch.bool)
    stored = occasions.embeddings(model.network, memory["z"][trained])
    return occasions.resembles(embedding, labels, stored, memory["y"][trained])


def choose(
    groups: Tensor,
    labels: Tensor,
    keys: Tensor,
    limit: int,
    share: float = SHARE,
    held_before: Sequence[int] = (),  # the classes of photos that are held out already; the limit counts them
) -> Tensor:
    """Which photos to hold out, bool (n,): of each class about `share`, at most `limit`, in whole groups.

    Groups are drawn by their members' random keys, so the same photos are always split the same way. A class of
    one group has none held out; any other has at least one group held out, if it is within the limit and half
    the class.
    """
    if not 0 < share <= 0.5:
        raise InvalidValue(f"The share that is held out must be above 0 and at most 0.5, got {share}.")
    held = torch.zeros(len(groups), dtype=torch.bool)
    for label in labels.unique().tolist():
        rows = (labels == label).nonzero().view(-1)
        _, member, sizes = groups[rows].unique(return_inverse=True, return_counts=True)
        # The largest of k uniform keys, to the power of k, is uniform again: large groups are drawn no more often.
        uniform = keys[rows].double() / 2**63
        top = torch.zeros(len(sizes), dtype=torch.double).scatter_reduce(0, member, uniform, "amax") ** sizes
        order = top.argsort(descending=True)
        room = limit - held_before.count(label)
        target = min(room, max(1, round(share * len(rows))))
        chosen = _fill(sizes[order].tolist(), target, most=min(room, len(rows) // 2))
        held[rows] = torch.isin(member, order[chosen])
    return held


def _fill(sizes: list[int], target: int, most: int) -> list[int]:
    """The first groups that fit into the target together; if none does, the smallest, if it has at most `most`."""
    chosen: list[int] = []
    if len(sizes) < 2:
        return chosen
    for i, size in enumerate(sizes):
        if size <= target:
            chosen.append(i)
            target -= size
    smallest = min(range(len(sizes)), key=sizes.__getitem__)
    return chosen or ([smallest] if sizes[smallest] <= most else [])
