"""The form in which a classifier answers: the same scores as the learner, and nothing that changes."""

import copy
from typing import Any

import pytest
import torch

from triphase import NCM, SLDA, TPC, Anchored, Memory
from triphase.data.feature_cache import latents, unpack
from triphase.learners import DepthSLDA
from triphase.models import DepthFeatures
from triphase.models.inference import ensemble_state, load_ensemble
from triphase.scoring import standardize
from triphase.testing import FIRST, REST, tiny_images, tiny_model, tiny_stream

LEARNERS: dict[str, Any] = {
    "tpc": lambda: TPC(tiny_model(0), Memory(12)),
    "anchored": lambda: Anchored(tiny_model(0), Memory(12)),
    "slda": lambda: SLDA(tiny_model(0)),
    "slda_depths": lambda: DepthSLDA(tiny_model(0)),
    "ncm": lambda: NCM(tiny_model(0)),
}
learners = pytest.mark.parametrize("name", LEARNERS)


def taught(name: str) -> Any:
    learner = LEARNERS[name]()
    for experience, recipe in zip(tiny_stream().experiences, (FIRST, REST), strict=True):
        learner.learn(experience, recipe)
    return learner


@learners
def test_an_ensemble_scores_as_its_learner_does(name: str) -> None:
    learner = taught(name)
    z = unpack(latents(learner.model, tiny_images()))
    scores, distances = learner.inference()(z)
    expected, closed = learner.logits(z), learner.closed_form
    centred = [part - part.mean(1, keepdim=True) for part in (scores, expected)]
    torch.testing.assert_close(*centred, rtol=1e-3, atol=1e-3)
    if closed is None:
        assert distances.shape == (len(z), 0)
    else:
        found = closed.distances(closed.features(z))
        torch.testing.assert_close(distances.double(), found, rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("name", ["anchored", "slda", "slda_depths"])
def test_given_features_are_used_in_place_of_those_of_the_last_member(name: str) -> None:
    learner = taught(name)
    z = unpack(latents(learner.model, tiny_images()))
    f, ensemble = learner.closed_form.features(z), learner.inference()
    for given, computed in zip(ensemble(z, f), ensemble(z), strict=True):
        assert torch.equal(given, computed)
    assert not torch.equal(ensemble(z, f.flip(0))[1], ensemble(z)[1])


@learners
def test_an_ensemble_goes_through_its_state_bit_for_bit(name: str) -> None:
    learner = taught(name)
    z = unpack(latents(learner.model, tiny_images()))
    ensemble = learner.inference()
    loaded = load_ensemble(copy.deepcopy(ensemble_state(ensemble)), _csf)
    for a, b in zip(ensemble(z), loaded(z), strict=True):
        assert torch.equal(a, b)


@learners
def test_an_ensemble_is_a_copy_that_does_not_learn(name: str) -> None:
    learner = taught(name)
    z = unpack(latents(learner.model, tiny_images()))
    ensemble = learner.inference()
    before = copy.deepcopy(ensemble.state_dict()), ensemble(z)
    learner.learn(tiny_stream().experiences[1], REST)
    assert not any(part.training for part in ensemble.modules())
    assert all(torch.equal(before[0][key], tensor) for key, tensor in ensemble.state_dict().items())
    assert all(torch.equal(a, b) for a, b in zip(before[1], ensemble(z), strict=True))


def test_standardized_scores_have_mean_0_and_std_1_or_share_a_given_std() -> None:
    scores = torch.tensor([[1.0, 3.0, 8.0], [5.0, 5.0, 5.0]])
    own = standardize(scores)
    torch.testing.assert_close(own.mean(1), torch.zeros(2))
    torch.testing.assert_close(own[0].std(correction=0), torch.tensor(1.0))
    assert own[1].tolist() == [0.0] * 3, "equal scores say nothing"
    torch.testing.assert_close(standardize(scores, std=2.0)[0], torch.tensor([-1.5, -0.5, 2.0]))


def _csf(saved: Any, max_width: int | None) -> torch.nn.Module:
    csf = tiny_model().csf
    csf.load_state_dict(saved)
    return csf if max_width is None else DepthFeatures(csf, max_width=max_width)
