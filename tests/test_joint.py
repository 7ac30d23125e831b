"""Joint training: everything seen so far, from the initial weights."""

import copy

import pytest
import torch
from torch import nn

from triphase import (
    Experience,
    Joint,
    Memory,
    SplitClassifier,
    joint,
)
from triphase.errors import TriphaseWarning
from triphase.testing import REST, tiny_model, tiny_stream


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


def with_bias() -> SplitClassifier:
    model = tiny_model()
    with pytest.warns(TriphaseWarning, match="head has a bias"):
        return SplitClassifier(model.llf, model.csf, zero_head(), image_size=6)


def zero_head() -> nn.Linear:
    head = nn.Linear(16, 4)
    for parameter in head.parameters():
        nn.init.zeros_(parameter)
    return head


def test_joint_starts_again_with_the_bias_of_the_head_too() -> None:
    source = tiny_stream()
    grown, at_once = Joint(with_bias(), Memory(None)), Joint(with_bias())
    for experience in source.experiences:
        grown.learn(experience, REST)
    at_once.learn(Experience(2, joint(source).experiences[0].images), REST)
    assert torch.equal(grown.model.head.bias, at_once.model.head.bias)
    assert grown.model.head.bias.any()
