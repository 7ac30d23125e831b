"""Learners without gradient: a network that is trained at most once, then frozen."""

from typing import Any

import numpy as np
import pytest
import torch

from derivation import (
    scores,
)
from triphase import (
    NCM,
    SLDA,
    Anchored,
    Experience,
    FineTune,
    Memory,
    RanPAC,
)
from triphase.learners.protocol import Step
from triphase.testing import FIRST, REST, tiny_images, tiny_model, tiny_stream


@pytest.mark.parametrize("make", [NCM, SLDA, lambda model: RanPAC(model, n_projected=60, ridge=1.0)])
def test_closed_forms_do_not_depend_on_the_order_or_the_cut_of_experiences(make: Any) -> None:
    images = tiny_images(3)
    forward, backward, at_once = make(tiny_model()), make(tiny_model()), make(tiny_model())
    rows = torch.arange(len(images))
    for index, part in enumerate(rows.split(9), start=1):
        forward.learn(Experience(index, images.select(part)), REST)
    for index, part in enumerate(reversed(rows.split(9)), start=1):
        backward.learn(Experience(index, images.select(part)), REST)
    at_once.learn(Experience(1, images), REST)
    for other in (backward, at_once):
        np.testing.assert_allclose(scores(forward), scores(other), rtol=1e-2, atol=2e-3)


@pytest.mark.parametrize("make", [NCM, SLDA, lambda model, **o: RanPAC(model, n_projected=60, **o)])
def test_closed_forms_from_scratch_train_on_the_first_experience_only(make: Any) -> None:
    learner, plain = make(tiny_model(), pretrained=False), FineTune(tiny_model(), pretrained=False)
    one, two = tiny_stream().experiences
    steps: list[Step] = []
    learner.learn(one, FIRST, steps.append)
    plain.learn(one, FIRST)
    assert len(steps) == 3 * 2
    for name, tensor in plain.model.state_dict().items():
        assert torch.equal(learner.model.state_dict()[name], tensor), name
    before = {name: tensor.clone() for name, tensor in learner.model.state_dict().items()}
    learner.learn(two, REST, steps.append)
    assert len(steps) == 6
    assert all(torch.equal(before[name], tensor) for name, tensor in learner.model.state_dict().items())


@pytest.mark.parametrize(
    "make", [NCM, SLDA, lambda model: RanPAC(model, n_projected=40), lambda model: Anchored(model, Memory(12))]
)
def test_a_loaded_closed_form_is_frozen_like_one_that_learned(make: Any) -> None:
    one, two = tiny_stream().experiences
    learner, again = make(tiny_model()), make(tiny_model())
    learner.learn(one, REST)
    again.load_state_dict(learner.state_dict())
    still = again.frozen_model if isinstance(again, Anchored) else again.model
    assert still.is_frozen("csf") and not still.csf.training
    learner.learn(two, REST)
    again.learn(two, REST)
    np.testing.assert_array_equal(scores(learner), scores(again))
