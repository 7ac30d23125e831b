"""Remove a class or single photos from a model, or move photos to another class.

What csf learned from them cannot be removed from its weights.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from triphase.app import ood
from triphase.app.learning import calibrate
from triphase.app.model import Model, rows_of
from triphase.data.feature_cache import latents, unpack
from triphase.data.images import Images
from triphase.data.memory import TRAIN
from triphase.maths.sampling import evenly_spaced

RESCALE_SAMPLES = 64  # stored samples that scales of scores are fitted on


def forget(model: Model, name: str) -> None:
    """Remove a class from everything that is stored per class."""
    _drop_class(model, name)
    _rescale(model)
    calibrate(model)


def forgotten_message(name: str) -> str:
    """The sentence about a class whose last photo was removed."""
    return f"{name} has no photo left that it was learned from, so the class is forgotten."


def unteach(model: Model, images: Images) -> int:
    """Remove single images (by id) from memory, exemplars and statistics; return how many were known.

    A class of which nothing is left that it was learned from is forgotten.
    """
    rows = torch.tensor(
        [row for row, id_ in enumerate(images.ids.tolist()) if id_ in model.taught], dtype=torch.long
    )
    if len(rows):
        taken = images.select(rows)
        _unteach(model, taken.ids, lambda at: latents(model.network, taken.select(at), context=model.context))
    return len(rows)


def unteach_stored(model: Model, ids: Tensor) -> None:
    """The same for taught photos that are stored, or were held out, without the photos themselves.

    What is removed from the statistics follows from the stored latents, which have half precision.
    """
    _unteach(model, ids, lambda at: _stored_latents(model, ids[at]))


def move_stored(model: Model, ids: Tensor, label: int) -> None:
    """Give taught photos that are stored, or were held out, another class: in memory, exemplars and statistics.

    A class of which nothing is left that it was learned from is forgotten.
    """
    before = torch.tensor([model.taught[id_] for id_ in ids.tolist()])
    counted = torch.tensor([id_ not in model.held_out for id_ in ids.tolist()])
    model.taught |= dict.fromkeys(ids.tolist(), label)
    closed = model.learner.closed_form
    if closed is not None and bool(counted.any()):
        f = model.closed_form_features(_stored_latents(model, ids[counted]))
        closed.remove(f, before[counted])
        closed.add(f, torch.full_like(before[counted], label))
    if model.memory is not None:
        model.memory.relabel(ids, label)
    _clear_up(model, before)


def _unteach(model: Model, ids: Tensor, z: Callable[[Tensor], Tensor]) -> None:
    """Take out taught photos; z gives the packed latents of rows of `ids`."""
    labels = torch.tensor([model.taught.pop(id_) for id_ in ids.tolist()])
    counted = torch.tensor([id_ not in model.held_out for id_ in ids.tolist()])
    model.held_out -= set(ids.tolist())
    closed = model.learner.closed_form
    if closed is not None and bool(counted.any()):
        taken = z(counted.nonzero().view(-1))
        f = model.closed_form_features(taken)
        closed.remove(f, labels[counted])
        closed.count_crops(taken, f, -1.0)
    if model.memory is not None:
        model.memory.discard(ids)
    thinned = tuple(ood.without(m, labels) for m in model.calibration.moments)
    model.calibration = replace(model.calibration, moments=thinned)
    _clear_up(model, labels)


def _stored_latents(model: Model, ids: Tensor) -> Tensor:
    """Packed latents of photos that are stored."""
    assert model.memory is not None
    slots = rows_of(model.memory["id"], ids)
    assert bool((slots >= 0).all()), "the caller asks for the photos that are not stored"
    return model.latents_of(model.stored(slots))


def _clear_up(model: Model, labels: Tensor) -> None:
    """Forget classes that have no photo left, and calibrate again."""
    if model.covariance_reestimated:  # these photos are in the counts, but perhaps not in the covariance
        _reestimate_covariance(model)
    left = {label for id_, label in model.taught.items() if id_ not in model.held_out}
    for name in [model.names[label] for label in labels.unique().tolist() if label not in left]:
        _drop_class(model, name)
    _rescale(model)
    calibrate(model)


def _drop_class(model: Model, name: str) -> None:
    """Drop one label everywhere; the labels after it move down by one."""
    dropped = model.names.index(name)
    stays = [label for label in range(len(model.names)) if label != dropped]
    number = {label: new for new, label in enumerate(stays)}
    model.names = [model.names[label] for label in stays]
    model.taught = {id_: number[label] for id_, label in model.taught.items() if label != dropped}
    model.pending = {id_: number[label] for id_, label in model.pending.items() if label != dropped}
    model.held_out &= model.taught.keys()
    if model.memory is not None:
        model.memory.drop_class(dropped)
    model.learner.drop_class(dropped)
    moments = tuple(ood.drop_class(m, dropped) for m in model.calibration.moments)
    model.calibration = replace(model.calibration, moments=moments)
    closed = model.learner.closed_form
    if closed is not None and closed.has_covariance:
        _reestimate_covariance(model)


def _reestimate_covariance(model: Model) -> None:
    """Estimate the covariance that all classes share again, from stored samples of the remaining classes."""
    closed, memory = model.learner.closed_form, model.memory
    assert closed is not None
    slots = memory.slots(TRAIN) if memory is not None else torch.empty(0, dtype=torch.long)
    y = torch.empty(0, dtype=torch.long) if memory is None else memory["y"][slots]
    z, f = torch.empty(0), torch.empty(0, closed.n_features)
    if len(slots):
        z = model.latents_of(model.stored(slots))
        f = model.closed_form_features(z)
    closed.reestimate(f, y)
    closed.count_crops(z, f, float(closed.counts.sum()) / max(len(f), 1))
    model.covariance_reestimated = True
    # moments and thresholds belong to the covariance of before
    model.calibration = replace(model.calibration, moments=(), thresholds=())


def _rescale(model: Model) -> None:
    """Fit the scales of the members' scores again: without a class they have another spread."""
    slots = model.memory.slots(TRAIN) if model.memory is not None else torch.empty(0, dtype=torch.long)
    if len(slots):
        sample = model.latents_of(model.stored(slots[evenly_spaced(len(slots), RESCALE_SAMPLES)]))
        model.learner.rescale(unpack(sample.float()))
