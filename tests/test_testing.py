"""The public check-suite: every learner passes it, and broken ones do not."""

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
    Recipe,
    SplitClassifier,
    testing,
)
from triphase.context import Context
from triphase.data.batches import Batches
from triphase.testing import REST, check_learner, tiny_model, tiny_stream

LEARNERS: dict[str, Callable[[SplitClassifier, Memory], Learner]] = {
    "finetune": lambda model, memory: FineTune(model),
    "replay": FineTune,
    "joint": lambda model, memory: Joint(model),
    "joint-cumulative": lambda model, memory: Joint(model, Memory(None)),
    "tpc": TPC,
    "tpc-latent": lambda model, memory: TPC(model, Memory(12, store="latent")),
    "tpc-no-replay": lambda model, memory: TPC(model, None),
    "tpc-distil": lambda model, memory: TPC(model, memory, distill=1.0),
    "tpc-momentum-kept": lambda model, memory: TPC(model, memory, reset_momentum="never"),
    "ar1": AR1,
    "ar1-no-replay": lambda model, memory: AR1(model, None),
    "bic": BiC,
    "derpp": DERpp,
    "derpp-online": lambda model, memory: DERpp(model, memory, logits="online"),
    "ncm": lambda model, memory: NCM(model),
    "slda": lambda model, memory: SLDA(model),
    "slda-depths": lambda model, memory: DepthSLDA(model),
    "ranpac": lambda model, memory: RanPAC(model, n_projected=40),
    "anchored": Anchored,
    "anchored-no-replay": lambda model, memory: Anchored(model, None),
}  # each learner, and each variant that saves a state of its own

OPTIONS: dict[str, Callable[[SplitClassifier, Memory], Learner]] = {
    "tpc-latent-fp16": lambda model, memory: TPC(model, Memory(12, store="latent", dtype=torch.float16)),
    "tpc-explicit": lambda model, memory: TPC(model, memory, bc="explicit"),
    "tpc-no-bc": lambda model, memory: TPC(model, memory, bc="none"),
    "tpc-no-masking": lambda model, memory: TPC(model, memory, masking="none"),
    "tpc-single": lambda model, memory: TPC(model, memory, masking="single"),
    "tpc-group": lambda model, memory: TPC(model, memory, masking="group"),
    "tpc-pseudo": lambda model, memory: TPC(model, memory, unlabelled="pseudo", confidence=0.0),
    "tpc-no-phase-3": lambda model, memory: TPC(model, memory, share_3=0),
    "tpc-distil-no-replay": lambda model, memory: TPC(model, None, distill=1.0),
    "ar1-class-mean": lambda model, memory: AR1(model, memory, mean="class"),
    "bic-latent": lambda model, memory: BiC(model, Memory(12, store="latent")),
    "derpp-latent": lambda model, memory: DERpp(model, Memory(12, store="latent")),
}  # variants whose state is that of the learner


@pytest.mark.parametrize("name", LEARNERS)
def test_every_learner_passes_the_check_suite(name: str) -> None:
    check_learner(LEARNERS[name])


@pytest.mark.parametrize("name", OPTIONS)
def test_options_that_save_no_state_of_their_own_accept_any_experience(name: str) -> None:
    testing.check_any_experience_is_accepted(OPTIONS[name])
    testing.check_unlabelled_images_teach_no_class(OPTIONS[name])


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

    def logits(self, z: Tensor) -> Tensor:
        scores = super().logits(z)
        self.model.csf.train()
        return scores


class Hasty(FineTune):
    """A learner that takes a class for known because images of it were held out."""

    def learn(self, experience: Experience, *args: Any) -> None:
        super().learn(experience, *args)
        self.known |= set(experience.images.labels.tolist())


class Stubborn(FineTune):
    """A learner that never trains llf, whatever the recipe says."""

    def learn(self, experience: Experience, recipe: Recipe, *args: Any) -> None:
        super().learn(experience, replace(recipe, trainable="csf"), *args)


@pytest.mark.parametrize(
    ("broken", "check", "complaint"),
    [
        (Hasty, testing.check_held_out_images_teach_no_class, r"\[2.*\] were never learned but have a score"),
        (Stubborn, testing.check_trainable_all_is_obeyed_or_refused, "trainable='all' was ignored"),
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
    learner, held_out_ids = LEARNERS[name](tiny_model(), Memory(24, seed=0)), set()
    for experience in tiny_stream().experiences:
        held_out = torch.arange(len(experience.images)) % 4 == 0
        held_out_ids |= set(experience.images.ids[held_out].tolist())
        learner.learn(replace(experience, held_out=held_out), REST)
    assert trained and not trained & held_out_ids


class Relabeller(FineTune):
    """A learner that changes the labels of an experience."""

    def learn(self, experience: Experience, *args: Any) -> None:
        super().learn(experience, *args)
        if experience.index == 2:
            experience.images.labels[0] = 1 - experience.images.labels[0]


class Renamer(FineTune):
    """A learner that changes the ids of an experience."""

    def learn(self, experience: Experience, *args: Any) -> None:
        super().learn(experience, *args)
        experience.images.ids += 100


class Drifter(FineTune):
    """A learner that changes the running statistics of llf."""

    def learn(self, *args: Any) -> None:
        super().learn(*args)
        for name, buffer in self.model.llf.named_buffers():
            if name.endswith("running_mean"):
                buffer += 1


class Undefined(FineTune):
    """A learner whose scores are no numbers."""

    def logits(self, z: Tensor) -> Tensor:
        return super().logits(z) * float("nan")


class Silent(FineTune):
    """A learner that returns no scores."""

    def logits(self, z: Tensor) -> Tensor:
        return None  # type: ignore[return-value]


class Narrow(FineTune):
    """A learner that scores too few classes."""

    def logits(self, z: Tensor) -> Tensor:
        return super().logits(z)[:, :1]


class Hoarder(FineTune):
    """A learner whose state holds an object of its own."""

    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {"own": object()}


class Empty:
    """A learner without a learn."""

    def __init__(self, model: SplitClassifier, memory: Memory) -> None:
        self.model, self.context, self.logits = model, Context(), model.tail


class Voided(FineTune):
    """A learner that cannot load its state."""

    load_state_dict = None  # type: ignore[assignment]


@pytest.mark.parametrize(
    ("broken", "complaint"),
    [
        (Relabeller, "learning changed the labels of experience 2"),
        (Renamer, "learning changed the ids of experience 1"),
        (Meddler, "llf moved: 1.weight"),
        (Drifter, "llf moved: 2.running_mean"),
        (Undefined, r"classes \[0, 1\] were learned but have no finite score"),
        (Silent, "logits\\(\\) returned a NoneType instead of a tensor"),
        (Narrow, r"logits\(\) returned the shape \(36, 1\) instead of \(n, n_classes\) = \(36, 2\)"),
        (Guesser, "never learned but have a score"),
        (Hoarder, "state_dict\\(\\) holds something else than tensors and primitives.*object"),
        (Empty, "the learner has no learn, state_dict, load_state_dict"),
        (Voided, "the learner has no load_state_dict"),
        (Waker, "mode of the model or of a part"),
        (Forgetful, "continued after step"),
        (Gambler, "same seed differ"),
    ],
)
def test_the_complaint_names_the_property_that_does_not_hold(broken: Any, complaint: str) -> None:
    with pytest.raises(AssertionError, match=complaint):
        check_learner(broken)
