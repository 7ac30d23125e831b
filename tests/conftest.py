"""Shared set-up: no test depends on timing, and one thread per worker keeps two workers on two cores."""

import torch
from hypothesis import settings

settings.register_profile("triphase", deadline=None, derandomize=True)
settings.load_profile("triphase")
torch.set_num_threads(1)
