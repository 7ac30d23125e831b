"""Every learner passes the public check-suite; equal conditions really are equal."""

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from triphase import (
    AR1,
    NCM,
    SLDA,
    TPC,
    Anchored,
    BiC,
    DepthSLDA,
    DERpp,
    Experience,
    FineTune,
    Joint,
    Learner,
    Memory,
    RanPAC,
    SplitClassifier,
    joint,
    testing,
)
from triphase.data.batches import Batches
from triphase.errors import InvalidValue
from triphase.testing import REST, check_learner, tiny_model, tiny_stream

MAKERS: dict[str, Callable[[SplitClassifier, Memory], Learner]] = {
    "finetune": lambda model, memory: FineTune(model),
    "replay": FineTune,
    "joint": lambda model, memory: Joint(model),
    "joint-cumulative": lambda model, memory: Joint(model, Memory(None)),
    "tpc": TPC,
    "tpc-latent": lambda model, memory: TPC(model, Memory(12, store="latent")),
    "tpc-latent-fp16": lambda model, memory: TPC(model, Memory(12, store="latent", dtype=torch.float16)),
    "tpc-no-replay": lambda model, memory: TPC(model, None),
    "tpc-explicit": lambda model, memory: TPC(model, memory, bc="explicit"),
    "tpc-no-bc": lambda model, memory: TPC(model, memory, bc="none"),
    "tpc-no-masking": lambda model, memory: TPC(model, memory, masking="none"),
    "tpc-single": lambda model, memory: TPC(model, memory, masking="single"),
    "tpc-group": lambda model, memory: TPC(model, memory, masking="group"),
    "tpc-no-phase-3": lambda model, memory: TPC(model, memory, share_3=0),
    "tpc-distil": lambda model, memory: TPC(model, memory, distill=1.0),
    "tpc-distil-no-replay": lambda model, memory: TPC(model, None, distill=1.0),
    "ar1": AR1,
    "ar1-class-mean": lambda model, memory: AR1(model, memory, mean="class"),
    "ar1-no-replay": lambda model, memory: AR1(model, None),
    "bic": BiC,
    "bic-latent": lambda model, memory: BiC(model, Memory(12, store="latent")),
    "derpp": DERpp,
    "derpp-latent": lambda model, memory: DERpp(model, Memory(12, store="latent")),
    "derpp-online": lambda model, memory: DERpp(model, memory, logits="online"),
    "ncm": lambda model, memory: NCM(model),
    "slda": lambda model, memory: SLDA(model),
    "slda-depths": lambda model, memory: DepthSLDA(model),
    "ranpac": lambda model, memory: RanPAC(model, n_projected=40),
    "anchored": Anchored,
    "anchored-no-replay": lambda model, memory: Anchored(model, None),
    "tpc-momentum-kept": lambda model, memory: TPC(model, memory, reset_momentum="never"),
}


@pytest.mark.parametrize("name", MAKERS)
def test_learner_passes_the_check_suite(name: str) -> None:
    check_learner(MAKERS[name])


class Forgetful(FineTune):
    """A learner whose saved state lacks the momentum: resuming it goes wrong."""

    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {"momentum": {}}


class Meddler(FineTune):
    """A learner that changes llf."""

    def learn(self, *args: Any) -> None:
        super().learn(*args)
        with torch.no_grad():
            next(iter(self.model.llf.parameters())).add_(1)


class Guesser(FineTune):
    """A learner that scores classes it never saw."""

    def logits(self, z: Tensor) -> Tensor:
        return super().logits(z).nan_to_num(neginf=0.0)


class Amnesiac(NCM):
    """A closed form that keeps its sums out of what it loads."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        sums, counts = self.sums, self.counts
        super().load_state_dict(state)
        self.sums, self.counts = sums, counts


class Gambler(NCM):
    """A closed form that draws from torch's global generator."""

    def learn(self, *args: Any) -> None:
        super().learn(*args)
        self.sums += torch.rand(self.sums.shape)


class Waker(SLDA):
    """A learner whose evaluation ends in training mode, frozen blocks included."""

    def logits(self, z: Tensor, f: Tensor | None = None) -> Tensor:
        said = super().logits(z, f)
        self.model.csf.train()
        return said


@pytest.mark.parametrize(
    ("broken", "check", "complaint"),
    [
        (Amnesiac, testing.check_resumed_equals_uninterrupted, "the end differs: scores"),
        (Gambler, testing.check_same_seed_same_weights, "same seed differ: scores"),
        (Waker, testing.check_logits_leave_the_learner_alone, "mode of the model or of a part"),
        (Forgetful, testing.check_resumed_equals_uninterrupted, "continued after step"),
        (Meddler, testing.check_frozen_llf_does_not_move, "llf moved"),
        (Guesser, testing.check_any_experience_is_accepted, "never learned but have a score"),
    ],
)
def test_the_check_suite_catches_broken_learners(
    broken: testing.Make, check: Callable[[testing.Make], None], complaint: str
) -> None:
    assert check in testing.CHECKS
    with pytest.raises(AssertionError, match=complaint):
        check(broken)


def test_joint_on_a_growing_memory_equals_joint_on_everything_at_once() -> None:
    source = tiny_stream()
    grown = Joint(tiny_model(), Memory(None))
    for experience in source.experiences:
        grown.learn(experience, REST)
    at_once = Joint(tiny_model())
    at_once.learn(Experience(2, joint(source).experiences[0].images), REST)
    assert grown.known == at_once.known == {0, 1, 2}
    for name, tensor in at_once.model.state_dict().items():
        assert torch.equal(tensor, grown.model.state_dict()[name]), name


def test_joint_goes_on_from_its_first_weights_whatever_network_it_is_loaded_into() -> None:
    one, two = tiny_stream().experiences
    learner = Joint(tiny_model(), Memory(None))
    learner.learn(one, REST)
    other = tiny_model()
    for parameter in other.csf.parameters():
        parameter.data += 1
    again = Joint(other, Memory(None))
    again.load_state_dict(copy.deepcopy(learner.state_dict()))
    for each in (learner, again):
        each.learn(two, REST)
    for name, tensor in learner.model.state_dict().items():
        assert torch.equal(again.model.state_dict()[name], tensor), name


@pytest.mark.parametrize("name", ["joint-cumulative", "replay", "tpc", "ar1", "bic", "derpp"])
def test_held_out_images_are_never_trained_on(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    trained: set[int] = set()
    original = Batches._draw

    def spy(self: Batches, rows: Tensor, slots: Tensor, *rest: Any) -> Any:
        trained.update(self.experience.images.ids[rows].tolist())
        if self.memory is not None:
            trained.update(self.memory["id"][slots].tolist())
        return original(self, rows, slots, *rest)

    monkeypatch.setattr(Batches, "_draw", spy)
    learner, apart = MAKERS[name](tiny_model(), Memory(24, seed=0)), set()
    for experience in tiny_stream().experiences:
        held_out = torch.arange(len(experience.images)) % 4 == 0
        apart |= set(experience.images.ids[held_out].tolist())
        learner.learn(replace(experience, held_out=held_out), REST)
    assert trained and not trained & apart


@pytest.mark.parametrize("make", [TPC, FineTune])
def test_a_memory_smaller_than_the_number_of_classes_is_refused_before_learning(make: type[FineTune]) -> None:
    model = tiny_model()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    with pytest.raises(InvalidValue, match="A memory of 1 cannot hold 2 classes"):
        make(model, Memory(1)).learn(tiny_stream().experiences[0], REST)
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())


def test_stored_latents_are_refused_where_llf_learns() -> None:
    learner = FineTune(tiny_model(), Memory(12, store="latent"))
    with pytest.raises(InvalidValue, match="Stored latents belong to one llf"):
        learner.learn(tiny_stream().experiences[0], replace(REST, trainable="all"))
