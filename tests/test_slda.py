"""Streaming discriminant analysis, derived again in NumPy."""

import numpy as np
import pytest
import torch
from torch import nn

from derivation import (
    scores,
    taught,
)
from triphase import (
    SLDA,
    SplitClassifier,
)
from triphase.data.feature_cache import latents, pack, unpack
from triphase.data.latent_crops import middle_crops
from triphase.errors import BadData, CorruptState, InvalidValue
from triphase.learners.slda import CROP_WEIGHT, cholesky
from triphase.models import linear_head
from triphase.testing import REST, tiny_images, tiny_model, tiny_stream


def test_slda_is_linear_discriminant_analysis_of_everything_seen() -> None:
    learner, f, y, everything = taught(SLDA(tiny_model(), shrinkage=0.2))
    means = np.stack([f[y == c].mean(0) for c in range(3)])
    centred = f - means[y]
    within = centred.T @ centred / len(f)
    sigma = 0.8 * within + 0.2 * np.trace(within) / 16 * np.eye(16)
    precision = np.linalg.inv(sigma)
    likelihood = -0.5 * np.einsum(
        "ncd,de,nce->nc", everything[:, None] - means, precision, everything[:, None] - means
    )
    found = scores(learner)
    np.testing.assert_allclose(
        found - found.mean(1, keepdims=True), likelihood - likelihood.mean(1, keepdims=True), rtol=1e-3, atol=1e-3
    )


@pytest.mark.parametrize("size", [1.0, 1e3, 1e5])
def test_slda_answers_with_one_image_a_class_whatever_the_scale_of_the_features(size: float) -> None:
    model = SplitClassifier(nn.Identity(), nn.Identity(), linear_head(128, 0))
    learner, draw = SLDA(model), torch.Generator().manual_seed(0)
    f, y = size * torch.rand(20, 128, generator=draw), torch.arange(20)
    learner.add(f, y)
    model.grow(20)
    learner.known = set(range(20))
    assert learner.logits(f).argmax(1).tolist() == y.tolist()


def test_slda_says_nothing_before_it_has_learned_and_refuses_statistics_that_do_not_fit() -> None:
    learner = SLDA(tiny_model())
    assert torch.isneginf(learner.logits(unpack(latents(learner.model, tiny_images())))).all()
    learner.learn(tiny_stream().experiences[0], REST)
    state = learner.state_dict()
    assert learner.state_dict()["statistics"]["products"] is state["statistics"]["products"], "saved once"
    state["statistics"]["products"] = state["statistics"]["products"][:-1]
    with pytest.raises(CorruptState, match="16 features"):
        SLDA(tiny_model()).load_state_dict(state)


@pytest.mark.parametrize("shrinkage", [0, 1.5])
def test_a_shrinkage_outside_its_range_is_refused(shrinkage: float) -> None:
    with pytest.raises(InvalidValue, match=f"shrinkage must be above 0 and at most 1, got {shrinkage}"):
        SLDA(tiny_model(), shrinkage=shrinkage)


def test_what_a_crop_changes_is_variance_within_classes_and_can_be_taken_out_again() -> None:
    csf = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten())
    learner = SLDA(SplitClassifier(nn.Identity(), csf, linear_head(2, 2)), shrinkage=0.2, crops=True)
    z = torch.rand(8, 2, 14, 14, generator=torch.Generator().manual_seed(0))
    z[:, 0, 4:10, 4:10] += 5  # the middle has more of the first feature
    f, y = learner.features(z), torch.arange(8) % 2
    learner.add(f, y)
    before, counts, means = learner.products, learner.counts, learner.means
    plain = learner.covariance()
    learner.count_crops(pack(z), f)
    change = (middle_crops(z).mean((2, 3)) - f).double()
    torch.testing.assert_close(learner.products - before, CROP_WEIGHT * change.T @ change)
    assert torch.equal(learner.counts, counts) and torch.equal(learner.means, means)
    wider = learner.covariance().diagonal() / plain.diagonal()
    assert wider[0] > 10 * wider[1], "the feature that a crop changes is trusted less"
    learner.count_crops(pack(z), f, -1.0)
    torch.testing.assert_close(learner.products, before)


def test_features_that_are_not_finite_end_in_a_sentence() -> None:
    with pytest.raises(BadData, match="not finite: check its weights"):
        cholesky(torch.full((2, 2), torch.nan))
