"""Fine-tuning and plain replay: what every gradient learner has in common."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from triphase import (
    AR1,
    DERpp,
    FineTune,
    Memory,
)
from triphase.errors import InvalidValue
from triphase.testing import FIRST, REST, tiny_model, tiny_stream


@pytest.mark.parametrize("make", [FineTune, AR1, DERpp])
def test_no_epochs_means_already_trained(make: Any) -> None:
    """What trains E_1 with plain cross-entropy may start from another learner's E_1."""
    one, two = tiny_stream().experiences
    whole, shared, plain = make(tiny_model(), Memory(12)), make(tiny_model(), Memory(12)), FineTune(tiny_model())
    plain.learn(one, FIRST)
    shared.model.load_state_dict(plain.model.state_dict())
    whole.learn(one, FIRST)
    shared.learn(one, replace(FIRST, epochs=0))
    for learner in (whole, shared):
        learner.learn(two, REST)
    for name, tensor in whole.model.state_dict().items():
        assert torch.equal(shared.model.state_dict()[name], tensor), name


def test_stored_latents_are_refused_where_llf_learns() -> None:
    learner = FineTune(tiny_model(), Memory(12, store="latent"))
    with pytest.raises(InvalidValue, match="Stored latents belong to one llf"):
        learner.learn(tiny_stream().experiences[0], replace(REST, trainable="all"))
