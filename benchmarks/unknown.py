"""Does the model know what it does not know? 50 classes of CIFAR-100 are taught, the other 50 never.

    python benchmarks/unknown.py --data DIR --figure unknown.png      # DIR holds cifar-100-binary/

EfficientNet-Lite0 at 96 px learns 5 lessons of 10 classes with TPC, 100 images a class of which a few are held out
inside the same memory as replay. Several scores then separate test images of taught classes from
those of the others; thresholds and the temperature come from the held-out images alone. Prints one JSON
document: each class order, and the mean over them.
"""

from __future__ import annotations

import argparse
import copy
import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from detection_scores import (
    auroc,
    cosine,
    discriminant_mahalanobis,
    energy,
    expected_calibration_error,
    max_logit,
    max_softmax,
    nearest_neighbour,
)
from matplotlib.figure import Figure
from torch import Tensor

from triphase import TPC, Memory, Recipe
from triphase.app import calibration, ood
from triphase.context import Context
from triphase.data import sources
from triphase.data.feature_cache import features, latents, unpack
from triphase.data.images import Images, subsample
from triphase.data.streams import class_incremental, random_class_order
from triphase.learners.anchored import CLOSED_FORM_WEIGHT
from triphase.learners.slda_depths import SHRINKAGE
from triphase.maths.mahalanobis import mahalanobis, relative_mahalanobis
from triphase.models import build
from triphase.models.depth_features import DepthFeatures

TAUGHT, LESSONS, PER_CLASS, TESTED = 50, 5, 100, 50
MEMORY, HELD_OUT = 1000, 5  # samples in all, and those of each class among them that are held out
N_MBE, N_MBR = 72, 56  # 128 as 950 images of a lesson to 750 replayed ones
CHOSEN = "relative Mahalanobis, SLDA"  # drawn in full: the one in use
Scores = dict[str, Tensor]


@dataclass(frozen=True)
class Seen:
    """Some images as the model sees them after the last lesson."""

    y: Tensor  # -1 where the class was never taught
    logits: Tensor
    learned: Tensor  # features of csf as TPC left it
    frozen: Tensor  # features at every depth of csf as it came


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure calibration and the detection of unknown classes.")
    parser.add_argument("--data", type=Path, required=True, help="directory that holds cifar-100-binary/")
    parser.add_argument("--orders", type=int, default=3, help="class orders")
    parser.add_argument("--figure", type=Path, help="where to draw ROC curves and histograms of the first order")
    arguments = parser.parse_args()
    began = time.process_time()
    results: list[dict[str, Any]] = []
    for order in range(arguments.orders):
        held_out, test, train, replayed = teach(arguments.data, order)
        closed = statistics(train.frozen, train.y)
        held, tested = scores([held_out, test], held_out, closed, replayed)
        found = measure(held_out.y, test.y, held, tested)
        found["TPC"] = calibration_errors(held_out.logits, held_out.y, test.logits, test.y)
        found["TPC + SLDA"] = calibration_errors(
            summed(held_out, *closed), held_out.y, summed(test, *closed), test.y
        )
        results.append(found)
        if order == 0 and arguments.figure:
            draw(arguments.figure, tested, test.y >= 0, ood.threshold(held[CHOSEN]))
    document = {"orders": results, "mean": mean_of(results), "cpu_seconds": time.process_time() - began}
    print(json.dumps(document, indent=1))


def teach(data: Path, order: int) -> tuple[Seen, Seen, Seen, Seen]:
    """Exemplars, test images, training images and replayed ones, as seen after the last lesson."""
    train, test, names = sources.cifar100(data)
    train, test = train.resized(96), subsample(test.resized(96), TESTED)
    classes = random_class_order(len(names), order)[:TAUGHT]
    chosen = torch.isin(train.labels, torch.tensor(classes)).nonzero().view(-1)
    given = subsample(train.select(chosen), PER_CLASS, seed=order)
    held_out = subsample(given, HELD_OUT, seed=order)
    lessons = given.select((~torch.isin(given.ids, held_out.ids)).nonzero().view(-1))
    each = TAUGHT // LESSONS
    stream = class_incremental(lessons, test, names, first=each, then=each, order=classes)
    label = torch.full((len(names),), -1)
    label[torch.tensor([names.index(name) for name in stream.names])] = torch.arange(TAUGHT)

    model = build("efficientnet_lite0", image_size=96).eval()
    model.freeze("llf")
    pretrained_csf = DepthFeatures(copy.deepcopy(model.csf), max_width=2 * model.n_features).eval()
    learner = TPC(model, Memory(MEMORY - HELD_OUT * TAUGHT, seed=order, store="latent"), seed=order)

    def at_first(images: Images) -> tuple[Tensor, Tensor, Tensor]:
        z = latents(model, images)
        with torch.no_grad():
            return label[images.labels], z, torch.cat([pretrained_csf(unpack(part)) for part in z.split(500)])

    def at_last(y: Tensor, z: Tensor, frozen: Tensor) -> Seen:
        logits = torch.cat([learner.logits(unpack(part)) for part in z.split(500)])
        return Seen(y, logits, features(model.eval(), z.unsqueeze(1), Context())[:, 0], frozen)

    everything = [at_first(images) for images in (held_out, test, lessons)]
    for experience in stream.experiences:
        n_mbe, n_mbr = (N_MBE, N_MBR) if experience.index > 1 else (N_MBE + N_MBR, 0)
        learner.learn(experience, Recipe(4, lr=0.1, csf_lr=0.03, n_mbe=n_mbe, n_mbr=n_mbr, augment="flip"))
    assert learner.memory is not None
    kept = torch.isin(lessons.ids, learner.memory["id"])
    held, tested, trained = (at_last(*part) for part in everything)
    replayed = Seen(trained.y[kept], trained.logits[kept], trained.learned[kept], trained.frozen[kept])
    return held, tested, trained, replayed


def summed(seen: Seen, means: Tensor, precision: Tensor) -> Tensor:
    """The scores of both members together, as `Anchored` answers."""
    return standardized(seen.logits) + CLOSED_FORM_WEIGHT["head"] * standardized(
        slda(seen.frozen, means, precision)
    )


def scores(wanted: list[Seen], held_out: Seen, closed: tuple[Tensor, Tensor], replayed: Seen) -> list[Scores]:
    """Each out-of-distribution score, higher where an image looks like a class that was taught."""
    temperature = calibration.fit_temperature(held_out.logits, held_out.y)
    means, precision = closed
    learned_means, learned_precision = statistics(replayed.learned, replayed.y)
    white, learned_white = torch.linalg.cholesky(precision), torch.linalg.cholesky(learned_precision)
    both = calibration.fit_temperature(summed(held_out, *closed), held_out.y)
    return [
        {
            "max softmax, TPC": max_softmax(seen.logits, temperature),
            "max logit, TPC": max_logit(seen.logits),
            "energy, TPC": energy(seen.logits, temperature),
            "max softmax, TPC + SLDA": max_softmax(summed(seen, *closed), both),
            "energy, TPC + SLDA": energy(summed(seen, *closed), both),
            "cosine, SLDA": cosine(seen.frozen, means),
            "Mahalanobis, SLDA": mahalanobis(seen.frozen @ white, means @ white),
            "discriminant Mahalanobis, SLDA": discriminant_mahalanobis(seen.frozen @ white, means @ white),
            "relative Mahalanobis, SLDA": relative_mahalanobis(seen.frozen @ white, means @ white),
            "relative Mahalanobis, memory": relative_mahalanobis(
                seen.learned @ learned_white, learned_means @ learned_white
            ),
            "nearest of memory": nearest_neighbour(seen.learned, replayed.learned),
        }
        for seen in wanted
    ]


def statistics(f: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Class means, and the inverse of the covariance that they share."""
    means = torch.stack([f[y == c].mean(0) for c in range(TAUGHT)])
    around = (f - means[y]).double()
    covariance = around.T @ around / (len(f) - TAUGHT)
    isotropic = covariance.diagonal().mean() * torch.eye(f.shape[1], dtype=torch.float64)
    return means, torch.linalg.inv((1 - SHRINKAGE) * covariance + SHRINKAGE * isotropic).float()


def slda(f: Tensor, means: Tensor, precision: Tensor) -> Tensor:
    """Logits of linear discriminant analysis."""
    rows = means @ precision
    return f @ rows.T - (rows * means).sum(1) / 2


def standardized(logits: Tensor) -> Tensor:
    return (logits - logits.mean(1, keepdim=True)) / logits.std(1, keepdim=True)


def calibration_errors(held: Tensor, y_held: Tensor, logits: Tensor, y: Tensor) -> dict[str, float]:
    """How far probabilities are from frequencies on known test images, before and after one temperature."""
    temperature = calibration.fit_temperature(held, y_held)
    logits, y = logits[y >= 0], y[y >= 0]
    return {
        "accuracy": share(logits.argmax(1) == y),
        "temperature": temperature,
        "ece_before": expected_calibration_error(logits.softmax(1), y),
        "ece_after": expected_calibration_error((logits / temperature).softmax(1), y),
    }


def measure(y_held: Tensor, y: Tensor, held: Scores, tested: Scores) -> dict[str, Any]:
    """How well each score separates known from unknown images in one class order."""
    known = y >= 0
    found: dict[str, Any] = {"scores": {}}
    for name, score in tested.items():
        at = ood.threshold(held[name])
        at_moments = ood.threshold_from_moments(ood.moments(held[name], y_held, TAUGHT))
        found["scores"][name] = {
            "auroc": auroc(score[known], score[~known]),
            "known_accepted": share(score[known] >= at),
            "unknown_rejected": share(score[~known] < at),
            "known_accepted_by_moments": share(score[known] >= at_moments),
            "unknown_rejected_by_moments": share(score[~known] < at_moments),
        }
    return found


def share(yes: Tensor) -> float:
    return float(yes.double().mean())


def mean_of(results: list[Any]) -> Any:
    """The mean of each figure over the orders, in the shape of one of them."""
    if isinstance(results[0], dict):
        return {key: mean_of([result[key] for result in results]) for key in results[0]}
    return sum(results) / len(results)


def draw(path: Path, tested: Scores, known: Tensor, threshold: float) -> None:
    """ROC curves of all scores, and the chosen one's histogram with its threshold."""
    figure = Figure(figsize=(11, 4.5), layout="constrained")
    roc, histogram = figure.subplots(1, 2)
    for name, score in sorted(tested.items(), key=lambda item: -auroc(item[1][known], item[1][~known])):
        levels = score[~known].quantile(torch.linspace(1, 0, 200))
        kept = [share(score[known] >= level) for level in levels]
        label = f"{name}: {auroc(score[known], score[~known]):.3f}"
        roc.plot(torch.linspace(0, 1, 200), kept, label=label, lw=2.5 if name == CHOSEN else 1)
    roc.plot([0, 1], [0, 1], color="grey", lw=0.5)
    roc.set(
        xlabel="unknown images accepted", ylabel="known images accepted", title="Taught or never taught? (AUROC)"
    )
    roc.legend(fontsize="x-small", loc="lower right")
    score = tested[CHOSEN]
    low, high = score.quantile(torch.tensor([0.002, 0.998]))
    edges = torch.linspace(low, high, 50).tolist()
    for which, label in ((known, "classes taught"), (~known, "classes never taught")):
        histogram.hist(score[which].tolist(), edges, alpha=0.5, density=True, label=label)
    histogram.axvline(threshold, color="black", label='"unknown" below')
    histogram.set(xlabel=CHOSEN, yticks=[], title="The score in use")
    histogram.legend()
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    main()
