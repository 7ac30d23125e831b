"""Evenly spaced samples."""

import torch
from torch import Tensor


def evenly_spaced(n: int, limit: int) -> Tensor:
    """At most `limit` of the rows 0 to n - 1, first and last included.

    >>> evenly_spaced(10, 4).tolist(), evenly_spaced(3, 4).tolist()
    ([0, 3, 6, 9], [0, 1, 2])
    """
    return torch.linspace(0, n - 1, min(limit, n)).long()
