"""DER++ against its three terms, derived again in NumPy."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from derivation import (
    RECIPE,
    Linear,
    cross_entropy_gradient,
    features,
    minibatches,
    sgd,
)
from triphase import (
    DERpp,
    Memory,
)
from triphase.data.batches import Batches
from triphase.errors import InvalidValue
from triphase.testing import FIRST, REST, tiny_model, tiny_stream


def test_derpp_minimises_its_three_terms() -> None:
    alpha, beta = 0.3, 0.7
    model, memory = Linear(108, 4), Memory(12)
    learner = DERpp(model, Memory(12), alpha=alpha, beta=beta)
    W, V = np.zeros((4, 108)), np.zeros((4, 108))
    stored: dict[int, np.ndarray] = {}
    for experience in tiny_stream().experiences:
        learner.learn(experience, RECIPE)
        batches = Batches(model, experience, memory, RECIPE, seed=0)
        V = np.zeros_like(W)
        for mb in minibatches(batches, 3, 0):
            f, y = features(mb)
            n, m = mb.n_current, len(mb.slots)
            dW = cross_entropy_gradient(W, f[:n], y[:n])
            if m:
                target = np.stack([stored[int(i)] for i in memory["id"][mb.slots]])
                dW += alpha * 2 * (f[n:] @ W.T - target).T @ f[n:] / (m * 4)
                dW += beta * cross_entropy_gradient(W, f[n:], y[n:])
            W, V = sgd(W, V, dW)
        np.testing.assert_allclose(model.head.weight.detach().numpy(), W, rtol=1e-3, atol=1e-6)
        before = set(memory["id"].tolist())
        batches.update_memory()
        for i, x in zip(memory["id"].tolist(), memory["x"], strict=True):
            if i not in before:
                stored[i] = x.double().flatten().numpy() / 255 @ W.T
    held = np.stack([stored[int(i)] for i in learner.memory["id"]])
    np.testing.assert_allclose(learner.memory["logits"].numpy(), held, rtol=1e-3, atol=1e-4)


def test_derpp_keeps_the_logits_of_the_experience_in_which_a_sample_entered() -> None:
    learner = DERpp(tiny_model(), Memory(12))
    one, two = tiny_stream().experiences
    learner.learn(one, FIRST)
    before = dict(zip(learner.memory["id"].tolist(), learner.memory["logits"], strict=True))
    learner.learn(two, REST)
    after = dict(zip(learner.memory["id"].tolist(), learner.memory["logits"], strict=True))
    stayed = before.keys() & after.keys()
    assert stayed and after.keys() - before.keys()
    assert all(torch.equal(before[i], after[i]) for i in stayed)


def test_derpp_compares_only_columns_that_were_stored() -> None:
    learner = DERpp(tiny_model(n_classes=0), Memory(12))
    one, two = tiny_stream().experiences
    learner.learn(one, FIRST)
    assert learner.memory["logits"].shape[1] == 2
    learner.learn(two, REST)
    logits, entered_first = learner.memory["logits"], learner.memory["y"] == 0
    assert logits.shape[1] == 3
    assert logits[entered_first, 2].isnan().all() and not logits[entered_first, :2].isnan().any()
    assert all(torch.isfinite(p).all() for p in learner.model.parameters())


def test_derpp_online_stores_what_was_said_while_training(monkeypatch: pytest.MonkeyPatch) -> None:
    learner = DERpp(tiny_model(), Memory(100), logits="online")
    said: dict[int, Tensor] = {}
    original = DERpp._loss

    def spy(self: DERpp, logits: Tensor, mb: Any) -> Tensor:
        said.update(zip(mb.rows.tolist(), logits[: mb.n_current].detach(), strict=True))
        return original(self, logits, mb)

    monkeypatch.setattr(DERpp, "_loss", spy)
    one = tiny_stream().experiences[0]
    learner.learn(one, FIRST)
    for i, logits in zip(learner.memory["id"], learner.memory["logits"], strict=True):
        assert torch.equal(said[int((one.images.ids == i).nonzero())], logits)


def test_derpp_refuses_to_go_without_memory() -> None:
    with pytest.raises(InvalidValue, match="give it a memory"):
        DERpp(tiny_model(), None)


@pytest.mark.parametrize("options", [{"alpha": -1}, {"beta": -1}, {"logits": "never"}])
def test_options_outside_their_range_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidValue, match=f"^{next(iter(options))} must"):
        DERpp(tiny_model(), Memory(12), **options)
