"""Calibration: fit a temperature for probabilities and thresholds for "unknown".

Both are fitted on exemplars: stored photos that are never trained on.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from triphase.app.ood import Moments, threshold, threshold_from_moments
from triphase.errors import InvalidValue
from triphase.maths.sampling import evenly_spaced

PRIOR = 5.0  # exemplars that the prior of the temperature is worth
MAX_WEIGHED = 500  # exemplars to which the weight of the closed form is fitted, evenly spaced
WEIGHT_FACTORS = tuple(2.0 ** (step / 2) for step in range(-4, 5))  # multiples of the constant weight to compare
WEIGHT_SPREAD = math.log(2) / 3  # standard deviation of the prior of the logarithm of the weight
MAX_FACTOR = 1e3  # the temperature stays within this factor of the spread of the logits, either way
N_BISECTIONS = 26  # which find log(1/T) to 2e-7; scipy would take longer to import
# Share of known images that each threshold accepts, by the number of out-of-distribution scores: 95 % in all.
ACCEPT = {1: (0.95,), 2: (0.96, 0.99)}


def fit_thresholds(ood_scores: Tensor) -> tuple[float, ...]:
    """The thresholds of the out-of-distribution scores (n, k) of exemplars."""
    columns = ood_scores.unbind(1)
    return tuple(threshold(column, accept) for column, accept in zip(columns, ACCEPT[len(columns)], strict=True))


def thresholds_from_moments(moments: tuple[Moments, ...]) -> tuple[float, ...]:
    """The thresholds from moments, where no scores were kept."""
    accept = ACCEPT[len(moments)]
    return tuple(threshold_from_moments(m, share) for m, share in zip(moments, accept, strict=True))


def fit_temperature(logits: Tensor, y: Tensor) -> float:
    """T for which softmax(logits / T) is most likely on held-out exemplars; it changes no arg max.

    The log-likelihood is concave in 1/T, and so is that of its Gamma prior, which is worth PRIOR exemplars and has
    its mode where the mean confidence equals the accuracy, one right and one wrong exemplar added. Without it, a
    few exemplars that happen to be all right would make T vanish. -inf marks classes never seen. T is 1
    if there are no exemplars, or all logits are equal.

    >>> logits = torch.tensor([[60.0, 0.0], [50.0, 0.0], [0.0, 70.0], [0.0, 40.0]])
    >>> fit_temperature(logits, torch.tensor([0, 0, 1, 0])) > 30
    True
    """
    z, true = _relative_to_best(logits, y)
    seen = torch.isfinite(z)
    spread = float(-z[seen].sum() / seen.sum().clamp(min=1))
    if spread == 0.0:
        return 1.0
    z, true = z / spread, true / spread
    accuracy = (int((true == 0).sum()) + 1) / (len(true) + 2)
    finite = z.masked_fill(~seen, 0.0)

    def overconfidence(log_inverse: float) -> float:
        return float((1 / (math.exp(log_inverse) * z).exp().sum(1)).mean()) - accuracy

    def slope(log_inverse: float) -> float:  # of the negative log-posterior
        inverse = math.exp(log_inverse)
        expected = ((inverse * z).softmax(1) * finite).sum(1)
        return float((expected - true).sum()) + PRIOR * (1 / mode - 1 / inverse)

    mode = math.exp(_root(overconfidence))
    return spread / math.exp(_root(slope))


def fit_weight(adapted: Tensor, closed: Tensor, y: Tensor, constant: float) -> float:
    """The weight w for which softmax((adapted + w closed) / T) is most likely on exemplars, T fitted to each w.

    The prior of w is log-normal around the constant: where exemplars are few, or say little, w stays near it.

    >>> adapted, closed = torch.eye(2).repeat(50, 1), torch.eye(2).flip(0).repeat(50, 1)
    >>> fit_weight(adapted, closed, torch.tensor([0, 1] * 50), constant=2.0) < 1
    True
    """
    rows = evenly_spaced(len(y), MAX_WEIGHED)
    adapted, closed, y = adapted[rows].double(), closed[rows].double(), y[rows]

    def posterior(factor: float) -> float:
        logits = adapted + factor * constant * closed
        log_p = (logits / fit_temperature(logits, y)).log_softmax(1).gather(1, y.view(-1, 1))
        return float(log_p.sum()) - (math.log(factor) / WEIGHT_SPREAD) ** 2 / 2

    best: float = max(WEIGHT_FACTORS, key=posterior)
    return constant * best


def _root(increasing: Callable[[float], float]) -> float:
    """The root of a function of log(1/T), by bisection; the nearer end of the range if there is none."""
    low, high = -math.log(MAX_FACTOR), math.log(MAX_FACTOR)
    if increasing(high) < 0:
        return high
    if increasing(low) >= 0:
        return low
    for _ in range(N_BISECTIONS):
        middle = (low + high) / 2
        low, high = (middle, high) if increasing(middle) < 0 else (low, middle)
    return high


def _relative_to_best(logits: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Logits relative to the highest of their row, and that of the true class."""
    logits, y = logits.detach().cpu().double(), y.cpu()
    if len(logits) != len(y):
        raise InvalidValue(f"{len(logits)} rows of logits but {len(y)} labels: give one label for each row.")
    if not len(y):
        return logits, logits.new_zeros(0)
    true = logits.gather(1, y.view(-1, 1)).view(-1)
    wrong = (~torch.isfinite(true) | logits.isnan().any(1) | (logits == math.inf).any(1)).nonzero().view(-1)
    if len(wrong):
        row = int(wrong[0])
        raise InvalidValue(
            f"The logits of exemplar {row} (class {int(y[row])}) are infinite or NaN where they should be finite: "
            "only classes never seen may be -inf. Leave out exemplars of classes that the model does not know."
        )
    best = logits.amax(1)
    return logits - best.view(-1, 1), true - best
