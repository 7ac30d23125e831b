"""Learners are compared under equal conditions: the same minibatches, the same memory."""

from typing import Any

import pytest
import torch
from torch import Tensor

from triphase import (
    AR1,
    TPC,
    BiC,
    DERpp,
    FineTune,
    Memory,
)
from triphase.data.batches import Batches
from triphase.testing import REST, tiny_model, tiny_stream


def test_all_gradient_learners_see_the_same_minibatches_where_their_algorithms_allow(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Replay, AR1 and DER++ the very same; TPC the same until Phase III; BiC all but what it holds out."""
    seen: list[tuple[Tensor, Tensor]] = []
    original = Batches._draw

    def spy(self: Batches, rows: Tensor, slots: Tensor, *rest: Any) -> Any:
        if len(rows):
            ids = self.memory["id"][slots] if self.memory is not None else slots
            seen.append((self.experience.images.ids[rows], ids))
        return original(self, rows, slots, *rest)

    monkeypatch.setattr(Batches, "_draw", spy)
    batches: dict[str, list[tuple[Tensor, Tensor]]] = {}
    for make in (FineTune, AR1, DERpp, TPC, BiC):
        seen.clear()
        learner: Any = make(tiny_model(), Memory(12, seed=0))
        for experience in tiny_stream().experiences:
            learner.learn(experience, REST)
        batches[make.__name__] = list(seen)
    for name in ("AR1", "DERpp"):
        assert len(batches[name]) == len(batches["FineTune"]) == 12
        for (a, b), (c, d) in zip(batches[name], batches["FineTune"], strict=True):
            assert torch.equal(a, c) and torch.equal(b, d)
    common = [batch for i, batch in enumerate(batches["FineTune"]) if i % 6 < 4]
    for (a, b), (c, d) in zip(batches["TPC"], common, strict=True):
        assert torch.equal(a, c) and torch.equal(b, d)
    assert {int(i) for a, _ in batches["BiC"] for i in a} < {int(i) for a, _ in batches["FineTune"] for i in a}


def test_images_in_memory_do_not_depend_on_the_learner() -> None:
    held = []
    for make in (FineTune, AR1, DERpp, TPC, BiC):
        learner: Any = make(tiny_model(), Memory(12, seed=0))
        for experience in tiny_stream().experiences:
            learner.learn(experience, REST)
        held.append(sorted(learner.memory["id"].tolist()))
    assert all(ids == held[0] for ids in held)
