"""What learners refuse before anything is learned."""

import copy
from typing import Any

import pytest
import torch
from torch import nn

from triphase import (
    AR1,
    NCM,
    SLDA,
    TPC,
    Anchored,
    BiC,
    DERpp,
    FineTune,
    Joint,
    Memory,
    SplitClassifier,
)
from triphase.data.feature_cache import latents, unpack
from triphase.errors import InvalidValue, TriphaseWarning
from triphase.testing import FIRST, REST, tiny_images, tiny_model, tiny_stream


@pytest.mark.parametrize("make", [TPC, FineTune])
def test_a_memory_smaller_than_the_number_of_classes_is_refused_before_learning(make: type[FineTune]) -> None:
    model = tiny_model()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    with pytest.raises(InvalidValue, match="A memory of 1 cannot hold 2 classes"):
        make(model, Memory(1)).learn(tiny_stream().experiences[0], REST)
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())


def with_bias() -> SplitClassifier:
    model = tiny_model()
    with pytest.warns(TriphaseWarning, match="head has a bias"):
        return SplitClassifier(model.llf, model.csf, nn.Linear(16, 4), image_size=6)


@pytest.mark.parametrize("make", [TPC, Anchored, AR1])
def test_learners_that_deal_with_weight_rows_alone_refuse_a_head_with_bias(make: Any) -> None:
    with pytest.raises(InvalidValue, match=r"head alone: use nn\.Linear\(\.\.\., bias=False\)"):
        make(with_bias(), Memory(12))


@pytest.mark.parametrize("make", [FineTune, Joint, DERpp, BiC, NCM, SLDA])
def test_the_others_learn_with_one_and_continue_from_their_state(make: Any) -> None:
    learner, again = (make(with_bias(), Memory(None) if make is Joint else Memory(12)) for _ in range(2))
    one, two = tiny_stream().experiences
    learner.learn(one, FIRST)
    again.load_state_dict(copy.deepcopy(learner.state_dict()))
    for each in (learner, again):
        each.learn(two, REST)
    z = unpack(latents(learner.model, tiny_images()))
    assert torch.equal(learner.logits(z), again.logits(z)) and torch.isfinite(learner.logits(z)[:, :3]).all()


def test_a_choice_that_an_option_does_not_have_is_refused_with_those_it_has() -> None:
    with pytest.raises(InvalidValue, match="bc must be one of loss, explicit, loss_only, final_only, none, got"):
        TPC(tiny_model(), Memory(12), bc="l2")  # type: ignore[arg-type]
