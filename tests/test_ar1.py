"""AR1 against CWR*, derived again in NumPy."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from derivation import (
    RECIPE,
    Linear,
    cross_entropy_gradient,
    features,
    minibatches,
    sgd,
)
from triphase import (
    AR1,
    Memory,
)
from triphase.data.batches import Batches
from triphase.errors import InvalidValue
from triphase.models.batchrenorm import BatchRenorm2d
from triphase.testing import FIRST, REST, tiny_model, tiny_stream


@pytest.mark.parametrize("mean", ["global", "class"])
def test_ar1_consolidates_as_cwr_star_says(mean: Any) -> None:
    model, memory = Linear(108, 4), Memory(12)  # this memory serves the derivation, not the learner
    learner = AR1(model, Memory(12), mean=mean)
    cw, past = np.zeros((4, 108)), np.zeros(4)
    for experience in tiny_stream().experiences:
        learner.learn(experience, RECIPE)
        n_cur = np.bincount(torch.cat([experience.images.labels, memory["y"]]).numpy(), minlength=4)
        current = np.flatnonzero(n_cur)
        W, V = np.where((n_cur > 0)[:, None], cw, 0.0), np.zeros((4, 108))
        batches = Batches(model, experience, memory, RECIPE, seed=0)
        for mb in minibatches(batches, 3, 0):
            W, V = sgd(W, V, cross_entropy_gradient(W, *features(mb)))
        trained = W[current] - (W[current].mean() if mean == "global" else W[current].mean(1, keepdims=True))
        w_past = np.sqrt(past[current] / n_cur[current])[:, None]
        cw[current] = (cw[current] * w_past + trained) / (w_past + 1)
        past += n_cur
        batches.update_memory()
        np.testing.assert_allclose(model.head.weight.detach().numpy(), cw, rtol=1e-3, atol=1e-6)
    assert past.tolist() == learner.n_past.tolist() and past[1] > 13 / 2  # replayed samples were counted again


def test_ar1_without_replay_leaves_csf_alone_after_the_first_experience() -> None:
    learner = AR1(tiny_model(), None)
    one, two = tiny_stream().experiences
    learner.learn(one, FIRST)
    csf = {name: tensor.clone() for name, tensor in learner.model.csf.state_dict().items()}
    first = learner.model.head.weight[0].detach().clone()
    learner.learn(two, REST)
    assert all(torch.equal(csf[name], tensor) for name, tensor in learner.model.csf.state_dict().items())
    assert torch.equal(learner.model.head.weight[0], first)  # class 0 was absent: its consolidated row stays
    assert learner.model.head.weight[2].abs().sum() > 0


def test_ar1_lets_batch_renormalisation_hardly_move_after_the_first_experience() -> None:
    model, layer = tiny_model(), BatchRenorm2d(16)
    model.csf = nn.Sequential(
        *(layer if isinstance(part, nn.BatchNorm2d) else part for part in model.csf.children())
    )
    learner, rates = AR1(model, Memory(12)), []
    for experience in tiny_stream().experiences:
        learner.learn(experience, REST)
        rates.append(round(float(layer.momentum), 7))
    assert rates == [0.01, 5e-5]


def test_a_mean_that_is_none_of_the_two_is_refused() -> None:
    with pytest.raises(InvalidValue, match="mean must be one of global, class, got 'median'"):
        AR1(tiny_model(), Memory(12), mean="median")  # type: ignore[arg-type]
