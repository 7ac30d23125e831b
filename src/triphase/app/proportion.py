"""A proportion with its confidence interval."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

Z = NormalDist().inv_cdf(0.975)


@dataclass(frozen=True)
class Proportion:
    """A proportion of n, with its 95 % Wilson interval."""

    right: int
    n: int
    share: float | None  # None of nothing
    low: float
    high: float

    @classmethod
    def of(cls, right: int, n: int) -> Proportion:
        """The proportion and its interval.

        >>> Proportion.of(9, 10)  # doctest: +ELLIPSIS
        Proportion(right=9, n=10, share=0.9, low=0.59..., high=0.98...)
        """
        if n == 0:
            return cls(0, 0, None, 0.0, 1.0)
        share, squared = right / n, Z**2
        centre = (share + squared / (2 * n)) / (1 + squared / n)
        half = Z * math.sqrt(share * (1 - share) / n + squared / (4 * n**2)) / (1 + squared / n)
        return cls(right, n, share, max(0.0, centre - half), min(1.0, centre + half))
