"""Leave-out scores: how a closed form scores photos that it has learned, without counting them.

Photos that are in the statistics score far higher than others of their class, so a few of each class at a
time are left out of them.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from triphase.app.model import Model
from triphase.data.feature_cache import latents
from triphase.data.images import Images
from triphase.learners.frozen import without
from triphase.learners.protocol import ClosedForm

MIN_PHOTOS = 10  # of a class, for its labels to be checked
FOLDS = 4  # parts of a lesson that are scored in turn, where no exemplar is kept


def leave_out_scores(model: Model, images: Images) -> tuple[Tensor, Tensor]:
    """Scores (n, classes) of learned photos and their classes.

    Only of classes with enough photos to be without half of them; none for learners without closed form.
    """
    closed, y = model.learner.closed_form, images.labels
    if closed is None:
        return torch.empty(0, len(model.names)), y[:0]
    scored = closed.counts[y] >= MIN_PHOTOS
    scores = torch.empty(len(y), len(model.names))
    if bool(scored.any()):
        f = _features(model, images)
        for rows, others in _folds(closed, f, y, scored, 2):
            scores[rows] = others.scores(f[rows])[:, : len(model.names)]
    return scores[scored], y[scored]


def leave_out_distances(model: Model, images: Images) -> tuple[Tensor, Tensor]:
    """Out-of-distribution scores (n, k) of learned photos and their classes; k is 0 without closed form.

    Photos of classes of which nothing would be left are not scored.
    """
    closed, y = model.learner.closed_form, images.labels
    if closed is None:
        return torch.empty(len(y), 0), y
    f = _features(model, images)
    scored = closed.counts[y] > 1
    distances = torch.empty(len(y), closed.distances(f[:0]).shape[1], dtype=torch.float64)
    for rows, others in _folds(closed, f, y, scored, FOLDS):
        distances[rows] = others.distances(f[rows])
    return distances[scored], y[scored]


def _features(model: Model, images: Images) -> Tensor:
    return model.closed_form_features(latents(model.network, images, context=model.context))


def _folds(closed: ClosedForm, f: Tensor, y: Tensor, scored: Tensor, n: int) -> Iterator[tuple[Tensor, ClosedForm]]:
    """Folds of the rows to score, each with a share of every class, and the statistics without them."""
    fold = torch.empty_like(y)
    for label in y.unique().tolist():
        fold[y == label] = torch.arange(int((y == label).sum())) % n
    for k in fold[scored].unique().tolist():
        rows = scored & (fold == k)
        yield rows, without(closed, f[rows], y[rows])
