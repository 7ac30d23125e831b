"""Check that an exported graph answers like the predictor."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from triphase.app.answer_graph import INPUT, LATENTS, OUTPUTS
from triphase.app.predictor import Predictor
from triphase.errors import Mismatch

TOLERANCE = 1e-4  # of probabilities
MARGIN = 1e-3  # relative: nearer to a threshold, rounding may decide whether an image is unknown
Run = Callable[[Tensor], tuple[Tensor, Tensor, Tensor]]


@dataclass(frozen=True)
class Parity:
    """How the answers of a graph differ from those of the predictor."""

    n: int  # inputs
    difference: float  # of probabilities, the largest
    other_class: int  # images with another class, though no second class is as probable
    other_flag: int  # images that only one of the two calls unknown, though no score is near its threshold


def run_pixels(session: Any) -> Run:
    """A session as a function of uint8 pixels (n, 3, size, size)."""
    return lambda pixels: _run(session, INPUT, pixels.permute(0, 2, 3, 1))


def run_latents(session: Any) -> Run:
    """A session that starts after llf as a function of latents (n, ...)."""
    return lambda z: _run(session, LATENTS, z)


def check_pixels(predictor: Predictor, run: Run, pixels: Tensor) -> Parity:
    """Compare answers to uint8 pixels (n, 3, size, size); a difference that matters is an error."""
    return _check(predictor, run, pixels, predictor.latents)


def check_latents(predictor: Predictor, run: Run, z: Tensor) -> Parity:
    """Compare answers to latents (n, ...); a difference that matters is an error."""
    return _check(predictor, run, z, lambda part: part)


def _run(session: Any, name: str, given: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    probabilities, label, unknown = session.run(list(OUTPUTS), {name: given.contiguous().numpy()})
    return torch.from_numpy(probabilities), torch.from_numpy(label), torch.from_numpy(unknown)


def _check(predictor: Predictor, run: Run, given: Tensor, latents: Callable[[Tensor], Tensor]) -> Parity:
    differences, other_class, other_flag = [], 0, 0
    for part in given.split(predictor.chunk):
        logits, ood = predictor.latent_scores(latents(part))
        expected, known = predictor.calibration.probabilities(logits), predictor.calibration.accepts(ood)
        probabilities, label, unknown = run(part)
        differences.append((probabilities - expected).abs().max())
        wrong = label != expected.argmax(1)
        other_class += int((wrong & _leads_clearly(expected)).sum())
        other_flag += int(((unknown == known) & _far_from_thresholds(ood, predictor.calibration.thresholds)).sum())
    difference = float(torch.stack(differences).max())  # NaN if any is
    parity = Parity(len(given), difference, other_class, other_flag)
    if not difference <= TOLERANCE or other_class or other_flag:
        raise Mismatch(
            f"The exported graph does not answer as the model does: of {parity.n} answers {other_class} have "
            f"another class, {other_flag} differ in whether they are unknown, and probabilities differ by up to "
            f"{difference:.2g} (allowed: {TOLERANCE:g}). Nothing was written; try another version of onnxruntime."
        )
    return parity


def _leads_clearly(probabilities: Tensor) -> Tensor:
    """(n,) bool: whether the best class leads by more than the tolerance."""
    best = probabilities.topk(min(2, probabilities.shape[1])).values
    return best[:, 0] - best[:, 1:].sum(1) > 2 * TOLERANCE


def _far_from_thresholds(ood: Tensor, thresholds: tuple[float, ...]) -> Tensor:
    """(n,) bool: whether no out-of-distribution score (n, k) is near its threshold."""
    far = torch.ones(len(ood), dtype=torch.bool)
    for column, least in zip(ood.unbind(1), thresholds, strict=False):  # there may be no thresholds at all
        if least > -math.inf:
            far &= (column - least).abs() > MARGIN * max(1.0, abs(least))
    return far
