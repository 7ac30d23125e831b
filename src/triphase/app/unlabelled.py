"""Photos in `_unlabelled/`: add them to a lesson, and report on them."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import torch
from torch import Tensor

from triphase.app import occasions
from triphase.app.hold_out import Lesson
from triphase.app.model import Model
from triphase.app.near_duplicates import matches_stored
from triphase.app.scan import UnlabelledPhotos
from triphase.data import UNLABELLED_FOLDER
from triphase.data.feature_cache import latents
from triphase.data.memory import HELD_OUT
from triphase.learners.protocol import UsesUnlabelled
from triphase.printable import count

Unlabelled = Literal["ignore", "pseudo"]


def with_unlabelled(model: Model, lesson: Lesson, photos: UnlabelledPhotos) -> Lesson:
    """The lesson with unlabelled photos that TPC may learn from.

    Photos that look like a held-out photo are left out, because held-out photos are never trained on.
    """
    if len(photos.images) == 0:
        return lesson
    alike = _near_duplicates(model, lesson, photos.hashes) | _same_occasion(model, lesson, photos)
    images = photos.images.select((~alike).nonzero().view(-1))
    return replace(lesson, experience=replace(lesson.experience, unlabelled=images))


def left_out_message(n: int, learner: str, uses: bool, asked_for: bool) -> str:
    """The sentence about n photos that are left out."""
    left_out = f"{count(n, 'photo')} in {UNLABELLED_FOLDER} {'was' if n == 1 else 'were'} left out"
    if not uses:
        return f"{left_out}: {learner} learns from labelled photos alone."
    if asked_for:
        return f"{left_out}: there is no labelled photo to learn with them."
    return f"{left_out}; --unlabelled pseudo learns from those whose class the model is sure of."


def learned_message(model: Model, lesson: Lesson, n: int) -> list[str]:
    """The sentence about n photos of which some were learned from."""
    learner, offered = model.learner, len(lesson.experience.unlabelled)
    if n == 0 or not isinstance(learner, UsesUnlabelled):
        return []
    used = learner.n_pseudo_labelled
    alike = f"; too much like held-out photos: {n - offered:,}" if offered < n else ""
    return [
        f"{count(n, 'photo')} in {UNLABELLED_FOLDER}: learned with the class that the model was sure of: {used:,}; "
        f"left out because it was not sure: {offered - used:,}{alike}."
    ]


def _near_duplicates(model: Model, lesson: Lesson, hashes: Tensor) -> Tensor:
    """(n,) bool: which photos are near-duplicates of a held-out photo."""
    experience, memory = lesson.experience, model.memory
    held = [hashes[:0]]
    if experience.held_out is not None and "hash" in experience.columns:
        held.append(experience.columns["hash"][experience.held_out])
    if memory is not None and "hash" in memory.columns:
        held.append(memory["hash"][memory.slots(HELD_OUT)])
    others = torch.cat(held)
    return matches_stored(hashes, _one_class(hashes), others, _one_class(others))


def _same_occasion(model: Model, lesson: Lesson, photos: UnlabelledPhotos) -> Tensor:
    """(n,) bool: which photos look as if they were taken together with a held-out photo."""
    experience, memory, network = lesson.experience, model.memory, model.network
    held = []
    if experience.held_out is not None and bool(experience.held_out.any()):
        rows = experience.held_out.nonzero().view(-1)
        held.append(latents(network, experience.images.select(rows), context=model.context))
    if memory is not None and memory.store == "latent" and len(memory.slots(HELD_OUT)):
        held.append(memory["z"][memory.slots(HELD_OUT)].float())
    if not held:
        return torch.zeros(len(photos.images), dtype=torch.bool)
    embedding = occasions.embeddings(network, latents(network, photos.images, context=model.context))
    others = occasions.embeddings(network, torch.cat(held))
    return occasions.resembles(embedding, _one_class(embedding), others, _one_class(others))


def _one_class(rows: Tensor) -> Tensor:
    """The same label for all: a photo without one may belong to any class."""
    return torch.zeros(len(rows), dtype=torch.long)
