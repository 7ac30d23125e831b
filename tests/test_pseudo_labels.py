"""Pseudo-labels in TPC: what enters which phase, and what never does."""

import copy
from typing import Any, Literal

import pytest
import torch
from torch import Tensor

from triphase import TPC, Anchored, Experience, Memory
from triphase.data.batches import Batches
from triphase.data.partial_labels import hide_labels
from triphase.data.streams import Stream, joint
from triphase.errors import InvalidValue, TriphaseWarning
from triphase.learners.protocol import Step
from triphase.maths.masking import gradient_masks
from triphase.testing import FIRST, REST, tiny_model, tiny_stream

HIDDEN = hide_labels(tiny_stream(), 0.5)
LABELLED = [Experience(e.index, e.images) for e in HIDDEN.experiences]
Unlabelled = Literal["ignore", "pseudo"]


def learner(unlabelled: Unlabelled = "pseudo", confidence: float = 0.3, **options: Any) -> TPC:
    return TPC(tiny_model(), Memory(12, **options), unlabelled=unlabelled, confidence=confidence)


def learn(tpc: TPC | Anchored, experiences: tuple[Experience, ...] | list[Experience]) -> list[Step]:
    steps: list[Step] = []
    for experience in experiences:
        tpc.learn(experience, FIRST if experience.index == 1 else REST, steps.append)
    return steps


def same(a: TPC | Anchored, b: TPC | Anchored) -> bool:
    pairs = zip(a.model.state_dict().values(), b.model.state_dict().values(), strict=True)
    return all(torch.equal(x, y) for x, y in pairs)


@pytest.mark.parametrize("make", [TPC, Anchored])
def test_ignored_they_change_nothing_bit_for_bit(make: type[TPC] | type[Anchored]) -> None:
    ends = []
    for experiences in (HIDDEN.experiences, LABELLED):
        ends.append(make(tiny_model(), Memory(12)))
        learn(ends[-1], experiences)
    assert same(*ends)
    assert torch.equal(ends[0].memory["id"], ends[1].memory["id"])  # type: ignore[index]


def rows_drawn(monkeypatch: pytest.MonkeyPatch, tpc: TPC, experiences: list[Experience]) -> dict[str, set[int]]:
    """Which rows beyond the labelled ones came in each phase, and that every label is a class that was seen."""
    drawn: dict[str, set[int]] = {"I": set(), "II": set()}
    original = Batches.mixed

    def mixed(self: Batches, *arguments: Any) -> Any:
        for mb in original(self, *arguments):
            beyond = mb.rows[mb.rows >= len(self.experience.images)]
            drawn[tpc.loop.section] |= set(beyond.tolist())
            assert set(mb.y.tolist()) <= tpc.known | set(self.experience.classes)
            yield mb

    monkeypatch.setattr(Batches, "mixed", mixed)
    learn(tpc, experiences)
    return drawn


def test_phase_1_never_draws_them_and_phase_2_draws_the_confident_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    tpc, labels = learner(confidence=0.35), []
    original = Batches.with_pseudo_labels

    def record(self: Batches, given: Tensor) -> Batches:
        labels.append((len(self.experience.images), given))
        return original(self, given)

    monkeypatch.setattr(Batches, "with_pseudo_labels", record)
    drawn = rows_drawn(monkeypatch, tpc, [HIDDEN.experiences[0]])
    [(n, given)] = labels
    used = {n + row for row in (given >= 0).nonzero().view(-1).tolist()}
    assert drawn == {"I": set(), "II": used} and used


def test_nothing_is_used_where_nothing_is_confident_and_a_warning_says_so() -> None:
    used, ignored = learner(confidence=1.0), learner("ignore")
    with pytest.warns(TriphaseWarning, match="None of 6 unlabelled images is used.*lower confidence"):
        steps = [learn(used, HIDDEN.experiences)]
    steps.append(learn(ignored, HIDDEN.experiences))
    assert [(s.phase, s.step, s.steps) for s in steps[0]] == [(s.phase, s.step, s.steps) for s in steps[1]]
    assert same(used, ignored)


@pytest.mark.parametrize("store", ["raw", "latent"])
def test_they_are_learned_from_and_never_stored(store: Literal["raw", "latent"]) -> None:
    used, ignored = learner(store=store), learner("ignore", store=store)
    for tpc in (used, ignored):
        learn(tpc, HIDDEN.experiences)
    assert not same(used, ignored)
    assert used.known == ignored.known and used.memory is not None and ignored.memory is not None
    assert torch.equal(used.memory["id"], ignored.memory["id"])
    assert torch.equal(used.memory["y"], ignored.memory["y"])


def test_cached_and_uncached_latents_give_the_same_to_numerical_noise() -> None:
    ends = []
    for kept in ("float32", "off"):
        tpc = learner()
        for e in HIDDEN.experiences:
            recipe = FIRST if e.index == 1 else REST
            tpc.learn(e, type(recipe)(**{**recipe.to_json(), "latents": kept}))
        ends.append(tpc.model.head.weight.detach())
    torch.testing.assert_close(*ends, atol=1e-4, rtol=1e-3)


def test_masks_hold_for_pseudo_labels_of_classes_outside_the_experience() -> None:
    """Such a class is treated as a replayed one: its own column learns, other columns only where they threaten."""
    _, mask = gradient_masks("tpc", frozenset({2}), frozenset({1, 2}), t=0.5)
    logits, pseudo = torch.tensor([[2.0, 0.0, 0.0, -3.0]]), torch.tensor([0])
    assert mask(logits, pseudo).tolist() == [[False, False, False, True]]


def test_resumed_after_any_step_it_ends_bit_for_bit_the_same() -> None:
    whole, snapshots = learner(), []
    whole.learn(HIDDEN.experiences[0], FIRST)
    tick = lambda step: snapshots.append(copy.deepcopy(whole.state_dict()))  # noqa: E731
    whole.learn(HIDDEN.experiences[1], REST, tick)
    assert any("pseudo_labels" in snapshot for snapshot in snapshots)
    assert "pseudo_labels" not in whole.state_dict()
    for snapshot in snapshots:
        again = learner()
        again.load_state_dict(snapshot)
        again.learn(HIDDEN.experiences[1], REST)
        assert same(again, whole)


def test_settings_name_them_only_where_they_are_used() -> None:
    assert "unlabelled" not in learner("ignore").settings
    assert learner(confidence=0.8).settings["confidence"] == 0.8
    with pytest.raises(InvalidValue, match="confidence is a probability"):
        learner(confidence=1.5)


def test_joint_training_has_the_labelled_images_alone() -> None:
    whole: Stream = joint(HIDDEN)
    assert sum(len(e.images) for e in HIDDEN.experiences) == len(whole.experiences[0].images)
    assert len(whole.experiences[0].unlabelled) == 0
