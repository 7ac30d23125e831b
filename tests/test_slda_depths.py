"""Discriminant analysis of csf at every depth."""

import torch

from triphase.data.feature_cache import latents, unpack
from triphase.learners import DepthSLDA
from triphase.testing import REST, tiny_images, tiny_model, tiny_stream


def test_reading_at_every_depth_never_trains_the_network() -> None:
    learner = DepthSLDA(tiny_model())
    before = {name: tensor.clone() for name, tensor in learner.model.state_dict().items()}
    for experience in tiny_stream().experiences:
        learner.learn(experience, REST)
        learner.logits(unpack(latents(learner.model, tiny_images())))
    assert learner.n_features == 22 and learner.settings["learner"] == "slda_depths"
    after = learner.model.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before if not name.startswith("head."))
