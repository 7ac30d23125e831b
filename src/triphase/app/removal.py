"""Unlearn a class, or single photos.

What csf learned from them cannot be taken out of its weights.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from triphase.app import ood
from triphase.app.learning import calibrate
from triphase.app.model import Model
from triphase.data.feature_cache import latents, unpack
from triphase.data.images import Images
from triphase.data.memory import TRAIN
from triphase.maths.sampling import evenly_spaced

RESCALE_SAMPLES = 64  # stored samples that scales of scores are fitted on


def forget(model: Model, name: str) -> None:
    """Take a class out of everything that is stored by class."""
    _drop_class(model, name)
    _rescale(model)
    calibrate(model)


def unteach(model: Model, images: Images) -> int:
    """Take single images (by id) out of memory, exemplars and statistics; how many were known.

    A class of which nothing is left that it was learned from is forgotten.
    """
    rows = torch.tensor(
        [row for row, id_ in enumerate(images.ids.tolist()) if id_ in model.taught], dtype=torch.long
    )
    if len(rows) == 0:
        return 0
    ids = images.ids[rows]
    labels = torch.tensor([model.taught.pop(id_) for id_ in ids.tolist()])
    counted = torch.tensor([id_ not in model.held_out for id_ in ids.tolist()])
    model.held_out -= set(ids.tolist())
    closed = model.learner.closed_form
    if closed is not None and bool(counted.any()):
        z = latents(model.network, images.select(rows[counted]), context=model.context)
        closed.remove(model.closed_form_features(z), labels[counted])
    if model.memory is not None:
        model.memory.discard(ids)
    thinned = tuple(ood.without(m, labels) for m in model.calibration.moments)
    model.calibration = replace(model.calibration, moments=thinned)
    if model.covariance_reestimated:  # these photos are in the counts, but perhaps not in the covariance
        _reestimate_covariance(model)
    left = {label for id_, label in model.taught.items() if id_ not in model.held_out}
    for name in [model.names[label] for label in labels.unique().tolist() if label not in left]:
        _drop_class(model, name)
    _rescale(model)
    calibrate(model)
    return len(rows)


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
    """One covariance serves all classes: estimate it anew from what is stored of those that stay."""
    closed, memory = model.learner.closed_form, model.memory
    assert closed is not None
    slots = memory.slots(TRAIN) if memory is not None else torch.empty(0, dtype=torch.long)
    y = torch.empty(0, dtype=torch.long) if memory is None else memory["y"][slots]
    f = torch.empty(0, closed.n_features)
    if len(slots):
        f = model.closed_form_features(model.latents_of(model.stored(slots)))
    closed.reestimate(f, y)
    model.covariance_reestimated = True
    # moments and thresholds belong to the covariance of before
    model.calibration = replace(model.calibration, moments=(), thresholds=())


def _rescale(model: Model) -> None:
    """Fit the scales of the members' scores anew: without a class they are spread differently."""
    slots = model.memory.slots(TRAIN) if model.memory is not None else torch.empty(0, dtype=torch.long)
    if len(slots):
        sample = model.latents_of(model.stored(slots[evenly_spaced(len(slots), RESCALE_SAMPLES)]))
        model.learner.rescale(unpack(sample.float()))
