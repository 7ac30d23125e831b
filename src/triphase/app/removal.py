"""Taking back what was taught: a class, or single photos.

What csf learned from them cannot be taken out of its weights.
"""

from __future__ import annotations

import torch

from triphase.app import ood
from triphase.app.model import Model
from triphase.data.feature_cache import features, latents, unpack
from triphase.data.images import Images
from triphase.data.memory import TRAIN
from triphase.learners import SLDA
from triphase.learners.anchored import evenly_spaced


def forget(model: Model, name: str) -> None:
    """Take a class out of everything that is stored by class."""
    _take_out(model, name)
    _measure(model)
    model.fit()


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
    counted = torch.tensor([id_ not in model.apart for id_ in ids.tolist()])
    model.apart -= set(ids.tolist())
    closed = model.closed
    if closed is not None and bool(counted.any()):
        z = latents(model.network, images.select(rows[counted]), context=model.context)
        f = features(closed.feature_model, z.unsqueeze(1))[:, 0]
        closed.remove(f, labels[counted])
    if model.memory is not None:
        model.memory.discard(ids)
    model.moments = [ood.fewer(m, labels) for m in model.moments]
    if model.estimated:  # these photos are in the counts, but perhaps not in the spread
        _rebuild_spread(model)
    left = {label for id_, label in model.taught.items() if id_ not in model.apart}
    gone = [model.names[label] for label in labels.unique().tolist() if label not in left]
    for name in gone:
        _take_out(model, name)
    _measure(model)
    model.fit()
    return len(rows)


def _take_out(model: Model, name: str) -> None:
    gone = model.names.index(name)
    stays = [label for label in range(len(model.names)) if label != gone]
    number = {label: new for new, label in enumerate(stays)}
    model.names = [model.names[label] for label in stays]
    model.taught = {id_: number[label] for id_, label in model.taught.items() if label != gone}
    model.pending = {id_: number[label] for id_, label in model.pending.items() if label != gone}
    model.apart &= model.taught.keys()
    if model.memory is not None:
        model.memory.drop_class(gone)
    model.learner.drop_class(gone)
    _rebuild_spread(model)
    model.moments = [
        ood.Moments(**{key: part[[c for c in stays if c < len(m.n)]] for key, part in vars(m).items()})
        for m in model.moments
    ]


def _measure(model: Model) -> None:
    """Let the learner refit its scale of scores on stored samples."""
    slots = model.memory.slots(TRAIN) if model.memory is not None else torch.empty(0)
    if len(slots):
        model.learner.rescale(unpack(model.latents_of(model.stored(slots[evenly_spaced(len(slots))])).float()))


def _rebuild_spread(model: Model) -> None:
    """The spread within classes is one matrix for all: estimate it anew from what is stored of the others."""
    closed = model.closed
    if not isinstance(closed, SLDA):
        return
    f, y = closed.sums[:0], torch.empty(0, dtype=torch.long)
    slots = model.memory.slots(TRAIN) if model.memory is not None else torch.empty(0)
    if model.memory is not None and len(slots):
        f = features(closed.model, model.latents_of(model.stored(slots)).float().unsqueeze(1))[:, 0]
        y = model.memory["y"][slots]
    closed.reestimate(f, y)
    model.estimated = True
    model.moments, model.thresholds = [], []  # they belong to the spread of before
