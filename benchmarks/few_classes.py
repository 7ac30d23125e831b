"""Confidence of models of few classes: scores divided by each image's own standard deviation, or by one for all.

    python benchmarks/few_classes.py --data DIR      # DIR holds cifar-100-binary/; 3 minutes of one core

Models of 2 to 8 classes of CIFAR-100, 60 photos a class, one class at a time after the first ones; six draws of
classes each. Prints a table: accuracy of both members and of their sum, how well the probability of an answer
separates right from wrong answers (AUROC), and the negative log-likelihood at the best temperature.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from detection_scores import auroc
from torch import Tensor
from torch.nn import functional as F

from triphase import Anchored, Memory, class_incremental
from triphase.app.learning import recipe_for
from triphase.data import sources
from triphase.data.feature_cache import latents, unpack
from triphase.data.images import subsample
from triphase.data.streams import random_class_order
from triphase.learners.anchored import CLOSED_FORM_WEIGHT, standardize_seen
from triphase.models import build

TEMPERATURES = torch.logspace(-1.5, 3, 90).tolist()


def scores(learner: Anchored, z: Tensor) -> dict[str, Tensor]:
    """What the members say, and their sum in both ways."""
    assert learner.score_stds is not None
    members = [torch.cat([m.logits(part) for part in z.split(200)]) for m in (learner.tpc, learner.closed_form)]
    own = [standardize_seen(member, learner.known) for member in members]
    shared = [
        standardize_seen(member, learner.known, s) for member, s in zip(members, learner.score_stds, strict=True)
    ]
    found = {"TPC": members[0], "SLDA of every depth": members[1]}
    return found | {
        "own standard deviation": own[0] + CLOSED_FORM_WEIGHT["head"] * own[1],
        "one standard deviation": shared[0] + CLOSED_FORM_WEIGHT["head"] * shared[1],
    }


def evaluate(said: Tensor, y: Tensor) -> tuple[float, float, float]:
    """Accuracy in percent, AUROC of the confidence, likelihood."""
    likelihood, best = min((float(F.cross_entropy(said / t, y)), t) for t in TEMPERATURES)
    right, sure = said.argmax(1) == y, (said / best).softmax(1).amax(1)
    return 100 * float(right.float().mean()), auroc(sure[right], sure[~right]), likelihood


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="directory that holds cifar-100-binary/")
    train, test, names = sources.cifar100(parser.parse_args().data)
    train, test = subsample(train.resized(96), 60), test.resized(96)
    print("| classes | | accuracy | AUROC of confidence | log-likelihood |\n|---|---|---|---|---|")
    for n in (2, 3, 5, 8):
        rows: dict[str, list[tuple[float, float, float]]] = {}
        for draw in range(6):
            order = random_class_order(len(names), 1000 + draw)[:n]
            stream = class_incremental(train, test, names, first=max(2, n // 2), then=1, order=order)
            learner = Anchored(build("efficientnet_lite0", n, image_size=96), memory := Memory(200))
            for experience in stream.experiences:
                learner.learn(experience, recipe_for(len(experience.images), len(memory)))
            z = unpack(latents(learner.model, stream.test))
            for name, said in scores(learner, z).items():
                rows.setdefault(name, []).append(evaluate(said, stream.test.labels))
        for name, values in rows.items():
            accuracy, confidence_auroc, likelihood = torch.tensor(values).nanmean(0).tolist()
            print(f"| {n} | {name} | {accuracy:.1f} % | {confidence_auroc:.3f} | -{likelihood:.3f} |", flush=True)


if __name__ == "__main__":
    main()
