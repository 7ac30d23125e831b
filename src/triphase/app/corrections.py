"""Correct taught photos by id, from what is stored of them: take them back, or move them to another class."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch

from triphase.app import removal
from triphase.app.class_names import no_such_class, normalized
from triphase.app.manage import changing, info_without_accuracy, publish_untaught
from triphase.app.model import Model
from triphase.app.publishing import version_state
from triphase.app.store.schema import Version
from triphase.errors import BadData, InvalidValue, PhotosNeeded


def take_back(path: Path, ids: Sequence[int]) -> tuple[Version, int]:
    """Publish a version without these photos, as `unteach` does with the photos themselves; return their number.

    Ids that were never taught are ignored. PhotosNeeded if a photo is in the statistics and nothing is stored
    of it. What is subtracted comes from stored latents, in half precision with `--replay latent`: to leave no
    rounding behind, give the photo to `unteach`.
    """
    with changing(path) as (store, model, version):
        taught = _taught(model, ids)
        if model.learner.closed_form is not None:
            _check_stored(model, taught, "give the photos themselves, as to `triphase unteach`")
        removal.unteach_stored(model, torch.tensor(taught))
        return publish_untaught(store, model, version, taught), len(taught)


def move(path: Path, ids: Sequence[int], name: str) -> tuple[Version, int]:
    """Publish a version in which these photos belong to another known class; return how many changed.

    The closed form and the held-out photos change at once, TPC with the next lesson, which replays the photos
    under their new class. PhotosNeeded as for `take_back`.
    """
    name = normalized(name)
    with changing(path) as (store, model, version):
        if name not in model.names:
            raise no_such_class(model.names, name)
        label = model.names.index(name)
        moved = [id_ for id_ in _taught(model, ids) if model.taught[id_] != label]
        if not moved:
            raise InvalidValue(f"These photos are in the class {name} already: nothing to move.")
        _check_stored(model, moved, f"teach the photos themselves as {name}")
        removal.move_stored(model, torch.tensor(moved), label)
        info = info_without_accuracy(version.info, model)
        event = {"event": "moved", "images": len(moved), "classes": {name: len(moved)}}
        store.discard_work()
        return store.publish(version_state(model), info, event), len(moved)


def _taught(model: Model, ids: Sequence[int]) -> list[int]:
    """The ids that were taught, each once."""
    found = [id_ for id_ in dict.fromkeys(ids) if id_ in model.taught]
    if not found:
        raise BadData("None of these photos was taught to this model; take photos from its lists.")
    return found


def _check_stored(model: Model, ids: Sequence[int], remedy: str) -> None:
    """Refuse photos that were learned from if nothing is stored of them."""
    stored = set(model.memory["id"].tolist()) if model.memory is not None else set()
    missing = [id_ for id_ in ids if id_ not in stored and id_ not in model.held_out]
    if missing:
        raise PhotosNeeded(f"Nothing is stored of {len(missing)} of these {len(ids)} photos: {remedy}.", missing)
