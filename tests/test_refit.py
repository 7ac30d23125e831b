"""What answers has counted the held-out photos; what they measure has not."""

import copy
from pathlib import Path

import numpy as np
import pytest
import torch

from lessons import SMALL, World, done
from test_predictor import arrays, photos
from triphase.app.model import Model
from triphase.app.refit import inference_with_held_out
from triphase.app.store.versions import Store
from triphase.data.feature_cache import latents, unpack
from triphase.learners.anchored import Anchored
from triphase.learners.slda import SLDA
from triphase.models.inference import Ensemble, Member


@pytest.fixture(scope="module", params=["anchored", "slda"])
def taught(request: pytest.FixtureRequest, original: World, tmp_path_factory: pytest.TempPathFactory) -> Model:
    path = tmp_path_factory.mktemp("refit") / "model"
    done("teach", path, original.one, *SMALL, "--learner", request.param)
    return Model.from_state(Store(path).load()[0])


def last(ensemble: Ensemble) -> Ensemble:
    """The closed form alone."""
    member = ensemble.members[-1]
    assert isinstance(member, Member)
    return Ensemble([member])


def test_the_closed_form_that_answers_is_that_of_all_photos(taught: Model, original: World) -> None:
    z = unpack(latents(taught.network, photos(Path(original.test)), context=taught.context))
    ids, y, stored = taught.exemplars()
    closed = taught.learner.closed_form
    assert isinstance(closed, SLDA) and len(ids) > 0
    trained = taught.memory.slots() if taught.memory is not None else torch.empty(0)
    everything = torch.cat([taught.stored(trained), stored])
    labels = torch.cat([taught.memory["y"][trained], y]) if taught.memory is not None else y
    fresh = SLDA(closed.feature_model, shrinkage=closed.shrinkage, crops=closed.crops)
    f = taught.closed_form_features(taught.latents_of(everything))
    fresh.add(f, labels)
    fresh.count_crops(taught.latents_of(taught.stored(trained)), f[: len(trained)])
    fresh.known = set(closed.known)
    expected = fresh.inference()(z)[0]
    answered, measured = last(inference_with_held_out(taught))(z)[0], last(taught.inference())(z)[0]
    torch.testing.assert_close(answered, expected, rtol=1e-2, atol=1e-2)  # features are kept in half precision
    assert not torch.allclose(measured, expected, rtol=1e-2, atol=1e-2)


def test_answering_leaves_what_is_measured_as_it_was(taught: Model) -> None:
    before = copy.deepcopy(arrays(taught.state_dict()))
    inference_with_held_out(taught)
    after = arrays(taught.state_dict())
    assert before and before.keys() == after.keys()
    assert all(np.array_equal(before[name], after[name]) for name in before)


def test_the_discriminant_of_the_adapted_csf_counts_held_out_samples_only_to_answer(taught: Model) -> None:
    learner = taught.learner
    if not isinstance(learner, Anchored):
        pytest.skip("slda has no adapted csf")
    assert learner.solved is not None and learner.solved_with_held_out is not None
    assert not torch.equal(learner.solved[0], learner.solved_with_held_out[0])
    ensembles = taught.inference(), inference_with_held_out(taught)
    weights = [dict(ensemble.named_buffers())["members.0.weight"] for ensemble in ensembles]
    assert torch.equal(weights[0], learner.solved[0]) and torch.equal(weights[1], learner.solved_with_held_out[0])
