"""Discriminant analysis of csf at every depth."""

import torch
from torch.nn import functional as F

from triphase.data.feature_cache import latents, unpack
from triphase.learners import DepthSLDA
from triphase.models import DepthFeatures
from triphase.testing import REST, tiny_images, tiny_model, tiny_stream


def test_features_are_the_depths_that_fit_each_of_length_1() -> None:
    model = tiny_model().eval()
    z = unpack(latents(model, tiny_images()))
    f, pooled = F.normalize(model.features(z)), F.normalize(z.mean((2, 3)))
    # z has 6 channels, f has 16 numbers
    for max_width, expected in ((16, f), (21, f), (22, torch.cat([pooled, f], 1)), (32, torch.cat([pooled, f], 1))):
        torch.testing.assert_close(
            DepthFeatures(model.csf, max_width)(z), expected
        )  # z has 6 channels, f has 16 numbers


def test_reading_at_every_depth_never_trains_the_network() -> None:
    learner = DepthSLDA(tiny_model())
    before = {name: tensor.clone() for name, tensor in learner.model.state_dict().items()}
    for experience in tiny_stream().experiences:
        learner.learn(experience, REST)
        learner.logits(unpack(latents(learner.model, tiny_images())))
    assert learner.n_features == 22 and learner.settings["learner"] == "slda_depths"
    after = learner.model.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before if not name.startswith("head."))
