"""BiC: both stages derived again in NumPy, and validation inside the budget."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from derivation import (
    RECIPE,
    Linear,
    features,
    minibatches,
    sgd,
    softmax,
)
from triphase import (
    BiC,
    Experience,
    Memory,
    Recipe,
)
from triphase.data.batches import Batches
from triphase.data.feature_cache import latents, unpack
from triphase.data.memory import HELD_OUT, TRAIN
from triphase.errors import InvalidValue
from triphase.learners.protocol import Step
from triphase.randomness import keys
from triphase.testing import FIRST, REST, tiny_images, tiny_model, tiny_stream


def test_bic_stage_1_distils_over_classes_and_weighs_by_the_number_of_old_ones() -> None:
    T = 2.0
    model, memory = Linear(108, 4), Memory(30)
    learner = BiC(model, Memory(30))
    W, V = np.zeros((4, 108)), np.zeros((4, 108))
    known: set[int] = set()
    pair, corrected = np.array([1.0, 0.0]), set[int]()
    images = tiny_images()
    lessons = [Experience(i + 1, images.select(torch.isin(images.labels, torch.tensor(c)).nonzero().view(-1)))
               for i, c in enumerate([[0, 1], [2], [3]])]  # fmt: skip
    for experience in lessons:
        learner.learn(experience, RECIPE)
        new = set(experience.classes)
        old, seen = sorted(known - new), sorted(known | new)
        n_val = max(1, 30 // len(known or new) // 10)
        held_out = learner_holds_out(experience, memory, n_val)
        batches = Batches(model, experience, memory, RECIPE, seed=0, held_out=held_out)
        teacher, share, V = W.copy(), len(old) / len(seen), np.zeros_like(W)
        for mb in minibatches(batches, 3, 0):
            f, y = features(mb)
            G = np.zeros((len(y), 4))
            position = np.searchsorted(seen, y)
            G[:, seen] = (1 - share) * (softmax((f @ W.T)[:, seen]) - np.eye(len(seen))[position])
            if old:
                said = f @ teacher.T
                fix = sorted(corrected & set(old))
                said[:, fix] = pair[0] * said[:, fix] + pair[1]
                G[:, old] += share / T * (softmax((f @ W.T)[:, old] / T) - softmax(said[:, old] / T))
            W, V = sgd(W, V, G.T @ f / len(y))
        np.testing.assert_allclose(model.head.weight.detach().numpy(), W, rtol=1e-3, atol=1e-6)
        batches.update_memory(lambda rows, held=held_out: {"split": held[rows].to(torch.int8)})  # type: ignore[misc]
        memory.release_held_out(max(1, 30 // len(seen) // 10))
        known, corrected = set(seen), (new if known else set())
        pair = learner.pair.double().numpy()


def learner_holds_out(experience: Experience, memory: Memory, n_val: int) -> Tensor:
    """Of each class of these lessons, all new, the images with the highest keys."""
    key, out = keys(0, experience.images.ids), torch.zeros(len(experience.images), dtype=torch.bool)
    for label in experience.classes:
        rows = (experience.images.labels == label).nonzero().view(-1)
        out[rows[key[rows].argsort(descending=True)[:n_val]]] = True
    return out


@pytest.mark.parametrize("epochs", [1, 2, 3])
def test_bic_stage_2_begins_at_its_full_rate_however_short_it_is(epochs: int) -> None:
    learner = BiC(tiny_model(), Memory(40), stage2_epochs=epochs)
    one, two = tiny_stream().experiences
    learner.learn(one, FIRST)
    learner.learn(two, replace(REST, n_mbe=64, n_mbr=192))  # stage 2's rate grows with the minibatch
    assert (learner.pair - torch.tensor([1.0, 0.0])).abs().max() > 1e-3


def test_bic_tells_when_stage_2_is_done_so_that_its_time_is_not_stage_1s() -> None:
    learner = BiC(tiny_model(), Memory(40), stage2_epochs=5)
    one, two = tiny_stream().experiences
    for experience, recipe, last in ((one, FIRST, "stage 1"), (two, REST, "stage 2")):
        steps: list[Step] = []
        learner.learn(experience, recipe, steps.append)
        assert steps[-1].phase == last and {s.phase for s in steps[:-1]} == {"stage 1"}


def test_bic_refuses_to_train_what_its_two_models_share() -> None:
    learner = BiC(tiny_model(), Memory(40))
    with pytest.raises(InvalidValue, match="train csf only"):
        learner.learn(tiny_stream().experiences[0], replace(FIRST, trainable="all"))


def test_bic_stage_2_finds_the_minimum_of_cross_entropy_and_beta() -> None:
    learner = BiC(tiny_model(), Memory(40), stage2_epochs=800)
    one, two = tiny_stream().experiences
    learner.learn(one, FIRST)
    assert learner.pair.tolist() == [1.0, 0.0] and not learner.corrected  # none for the first experience
    seen: dict[str, Any] = {}
    original = BiC._stage_2

    def spy(self: BiC, batches: Batches, recipe: Recipe, classes: set[int], new: set[int]) -> tuple[Tensor, Tensor]:
        slots = self.memory.slots(HELD_OUT)
        seen["y"] = self.memory["y"][slots].numpy()
        self.model.eval()
        seen["logits"] = self.model.tail(batches.memory_latents(slots)).detach().double().numpy()[:, :3]
        self.model.train()
        return original(self, batches, recipe, classes, new)

    learner._stage_2 = spy.__get__(learner)  # type: ignore[method-assign]
    learner.learn(two, replace(REST, n_mbe=64, n_mbr=192))  # stage 2's rate grows with the minibatch
    logits, y = seen["logits"], seen["y"]
    assert set(y) == {0, 1, 2} and learner.corrected == {1, 2}

    def loss(alpha: float, beta: float) -> float:
        z = logits.copy()
        z[:, 1:] = alpha * z[:, 1:] + beta
        return float(-np.log(softmax(z)[np.arange(len(y)), y]).mean() + 0.1 * beta**2 / 2)

    alpha, beta = learner.pair.tolist()
    assert loss(alpha, beta) < loss(1.0, 0.0)
    grid = min(loss(a, b) for a in np.linspace(0, 4, 81) for b in np.linspace(-3, 3, 61))
    assert loss(alpha, beta) < grid + 0.01
    z = unpack(latents(learner.model, tiny_images()))
    learner.model.eval()
    plain = learner.model.tail(z).detach()
    torch.testing.assert_close(learner.logits(z)[:, 1], alpha * plain[:, 1] + beta)
    torch.testing.assert_close(learner.logits(z)[:, 0], plain[:, 0])


def test_bic_validates_inside_the_budget_on_samples_it_never_trained_on(monkeypatch: pytest.MonkeyPatch) -> None:
    learner = BiC(tiny_model(), Memory(20))
    trained: set[int] = set()
    original = Batches._draw

    def spy(self: Batches, rows: Tensor, slots: Tensor, *rest: Any) -> Any:
        trained.update(self.experience.images.ids[rows].tolist())
        if self.memory is not None and len(slots):
            trained.update(self.memory["id"][slots].tolist())
        return original(self, rows, slots, *rest)

    monkeypatch.setattr(Batches, "_draw", spy)
    images = tiny_images()
    lessons = [([0, 1], 0), ([2], 0), ([0, 1], 1), ([3], 0), ([2, 3], 1)]  # classes, which half of their images
    for index, (classes, half) in enumerate(lessons, start=1):
        rows = torch.cat([(images.labels == c).nonzero().view(-1)[half::2] for c in classes])
        learner.learn(Experience(index, images.select(rows)), FIRST if index == 1 else REST)
        held = learner.memory.slots(HELD_OUT)
        assert len(learner.memory) <= 20
        assert set(learner.memory["y"][held].tolist()) == learner.known
        assert not trained & set(learner.memory["id"][held].tolist())
        assert len(learner.memory.slots(TRAIN)) + len(held) == len(learner.memory)


def test_bic_stores_all_that_it_holds_out_however_many_classes_arrive_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    images, held_out = tiny_images(n_classes=13, per_class=8), []
    learner = BiC(tiny_model(13), Memory(60))
    original = BiC._choose_validation

    def spy(self: BiC, experience: Experience, *rest: int) -> Tensor:
        held_out.append(experience.images.ids[original(self, experience, *rest)])
        return original(self, experience, *rest)

    monkeypatch.setattr(BiC, "_choose_validation", spy)
    for index, rows in enumerate([images.labels == 0, images.labels > 0], start=1):
        learner.learn(Experience(index, images.select(rows.nonzero().view(-1))), FIRST if index == 1 else REST)
    assert len(held_out[1]) and torch.isin(held_out[1], learner.memory["id"]).all()


def test_bic_refuses_to_go_without_memory() -> None:
    with pytest.raises(InvalidValue, match="give it a memory"):
        BiC(tiny_model(), None)


@pytest.mark.parametrize("options", [{"stage2_epochs": 0}, {"distill_axis": "pixels"}])
def test_options_outside_their_range_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidValue, match=f"^{next(iter(options))} must"):
        BiC(tiny_model(), Memory(12), **options)
