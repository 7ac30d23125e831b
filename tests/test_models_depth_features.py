"""csf read at every depth."""

import torch
from torch.nn import functional as F

from triphase.data.feature_cache import latents, unpack
from triphase.models import DepthFeatures
from triphase.testing import tiny_images, tiny_model


def test_features_are_the_depths_that_fit_each_of_length_1() -> None:
    model = tiny_model().eval()
    z = unpack(latents(model, tiny_images()))
    f, pooled = F.normalize(model.features(z)), F.normalize(z.mean((2, 3)))  # 16 and 6 numbers
    for max_width, expected in ((16, f), (21, f), (22, torch.cat([pooled, f], 1)), (32, torch.cat([pooled, f], 1))):
        torch.testing.assert_close(DepthFeatures(model.csf, max_width)(z), expected)
