"""The model that answers: its class statistics include the held-out photos.

Held-out photos evaluate a model that has never seen them. After that, the published model counts them in its class
statistics, too. csf never learns from them.
"""

from __future__ import annotations

import torch
from torch import Tensor

from triphase.app.model import Model, rows_of
from triphase.app.options import LEARNERS
from triphase.models.inference import Ensemble


def inference_with_held_out(model: Model) -> Ensemble:
    """The learner in inference form with held-out photos counted; exemplars evaluate `Model.inference` instead."""
    ids, y, stored = model.exemplars()
    f = exemplar_features(model, ids, model.latents_of(stored))
    if f.numel() == 0:
        return model.inference()
    return model.inference((f.float(), y))


def exemplar_features(model: Model, ids: Tensor, z: Tensor) -> Tensor:
    """(n, D) in half precision: the closed form's features of exemplars, each computed once and stored."""
    if LEARNERS[model.options.learner].feature_multiple == 0 or len(ids) == 0:
        return torch.empty(len(ids), 0, dtype=torch.float16)
    known, f = model.exemplar_features
    rows = rows_of(known, ids)
    missing = (rows < 0).nonzero().view(-1)
    if len(missing):
        computed = model.closed_form_features(z[missing]).half()
        rows[missing] = torch.arange(len(f), len(f) + len(missing))
        f = torch.cat([f, computed]) if len(f) else computed
    return f[rows]
