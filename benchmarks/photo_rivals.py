"""Rivals that see all photos at once: closed forms, nearest neighbours and fine-tuning of the same network.

Features and latents of a photo are computed once, by the engine that lessons use.
"""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import torch
from photo_lessons import Clock, Result, accuracy
from photo_sets import Photos, PhotoSet, hold_out
from torch import Tensor
from torch.nn import functional as F

from triphase.context import Context
from triphase.data.feature_cache import features, latent_views, unpack
from triphase.data.images import Images
from triphase.learners.slda_depths import DepthSLDA
from triphase.learners.training import eval_mode, sgd_step
from triphase.models import SplitClassifier, backbone, build
from triphase.models.engine import engine_of
from triphase.randomness import generator

NEIGHBOURS = 5
INVERSE_PENALTIES = (0.001, 0.01, 0.1, 1.0)  # of logistic regression, on standardised features
RATES = (0.01, 0.03, 0.1)
EPOCHS, N_MB, SMOOTHING, MOMENTUM = 16, 32, 0.1, 0.9
JOINT_CUT = {"efficientnet_lite0": 9, "efficientnet_lite1": 12, "efficientnet_lite2": 12}  # in the stage of block 9
Choice = float | None  # of a rate or penalty


class Rivals:
    """Rivals on one network at one size; what was computed of a photo is kept."""

    def __init__(self, network: str, size: int | None) -> None:
        self.network, self.size = network, size or backbone(network).photo_size
        self.context = Context(engine="auto")
        self._frozen = build(network, image_size=self.size).eval()
        self._frozen.freeze("llf")
        self._cut = self._new(0, 0).eval()
        self._cut.freeze("llf")
        self._reader = DepthSLDA(self._frozen, context=self.context).feature_model
        self._kept: dict[tuple[str, Path], Tensor] = {}
        self._computed: Counter[str] = Counter()  # photos
        self._spent: dict[str, Result] = {}  # seconds in all

    def result(self, learner: str, data: PhotoSet, train: Photos, seed: int, chosen: Choice) -> Result:
        """Train on these photos and answer the test photos; `chosen` is what a run before has chosen, if any."""
        name, _, depth = learner.partition("_")
        answer, kind, choices = {
            "lda": (self._lda, "features", ()),
            "logistic": (self._logistic, "features", INVERSE_PENALTIES),
            "knn": (self._neighbours, "features", ()),
            "joint": (self._joint, "latents", RATES),
        }[name]
        labels = {name: label for label, name in enumerate(data.names)}
        test_kind = "test latents" if kind == "latents" else kind

        def tested(some: Photos, test: Photos, choice: Choice) -> tuple[Tensor, Tensor]:
            f, y = self._of(kind, some, depth), _labels(some, labels)
            g = self._of(test_kind, test, depth)
            return answer(f, y, g, len(labels), seed, choice), _labels(test, labels)

        if choices and chosen is None:
            part, judged = hold_out(train)
            found = {choice: _judge(*tested(part, judged, choice), data.names) for choice in choices}
            chosen = max(found, key=lambda choice: found[choice])
        for some, what in ((train, kind), (data.test, test_kind)):
            self._of(what, some)  # so that seconds count training alone
        clock = Clock()
        probabilities, y = tested(train, data.test, chosen)
        seconds = _sum(clock.read(), self._spent[kind], sum(map(len, train.values())) / self._computed[kind])
        return {
            **accuracy(probabilities, y, data.names),
            **seconds,
            "chosen": chosen,
            "image_size": self.size,
            "engine": engine_of(self.context, self._frozen.llf),
        }

    def _new(self, n_classes: int, seed: int) -> SplitClassifier:
        """The pre-trained network, cut where fine-tuning begins."""
        cut: dict[str, Any] = {"cut": JOINT_CUT[self.network]} if self.network in JOINT_CUT else {}
        return build(self.network, n_classes, image_size=self.size, seed=seed, **cut)

    def _of(self, kind: str, photos: Photos, depth: str = "") -> Tensor:
        """Features (n, D), only the last ones for depth "f", or packed latents (n, views, ...) of photos."""
        files = [file for some in photos.values() for file in some]
        missing = [file for file in files if (kind, file) not in self._kept]
        if missing:
            clock = Clock()
            images = Images.from_files(
                missing, torch.zeros(len(missing), dtype=torch.long), torch.arange(len(missing)), self.size
            )
            if kind == "features":
                z = latent_views(self._frozen, images, 1, torch.float32, self.context)
                with eval_mode(self._reader):
                    computed = features(self._reader, z, self.context)[:, 0]
            else:
                views = 2 if kind == "latents" else 1
                computed = latent_views(self._cut, images, views, torch.float16, self.context)
            self._kept |= {(kind, file): row for file, row in zip(missing, computed, strict=True)}
            self._spent[kind] = _sum(clock.read(), self._spent.get(kind, {}))
            self._computed[kind] += len(missing)
        f = torch.stack([self._kept[kind, file] for file in files])
        return f[:, -self._frozen.n_features :] if depth == "f" else f

    def _lda(self, f: Tensor, y: Tensor, test: Tensor, n_classes: int, seed: int, choice: Choice) -> Tensor:
        slda = DepthSLDA(self._frozen, context=self.context)
        slda.add(f, y)
        slda.known = set(range(n_classes))
        return slda.scores(test).softmax(1)

    def _logistic(self, f: Tensor, y: Tensor, test: Tensor, n_classes: int, seed: int, choice: Choice) -> Tensor:
        from sklearn.linear_model import LogisticRegression  # slow to import

        mean, std = f.mean(0), f.std(0).clamp(min=1e-6)
        fitted = LogisticRegression(C=choice, max_iter=300).fit(((f - mean) / std).numpy(), y.numpy())
        return torch.from_numpy(np.asarray(fitted.predict_proba(((test - mean) / std).numpy())))

    def _neighbours(self, f: Tensor, y: Tensor, test: Tensor, n_classes: int, seed: int, choice: Choice) -> Tensor:
        """Shares of the neighbours' votes; of equal ones the nearer neighbours win."""
        nearest = (F.normalize(test) @ F.normalize(f).T).topk(min(NEIGHBOURS, len(f)))
        votes = F.one_hot(y[nearest.indices], n_classes) * (1 + 1e-3 * nearest.values.unsqueeze(2))
        return F.normalize(votes.sum(1), p=1, dim=1)

    def _joint(self, z: Tensor, y: Tensor, test: Tensor, n_classes: int, seed: int, choice: Choice) -> Tensor:
        assert choice is not None
        model = fine_tuned(self._new(n_classes, seed), z, y, choice, seed)
        with eval_mode(model), torch.no_grad():
            logits = [model.tail(unpack(part[:, 0].float())) for part in test.split(N_MB)]
        return torch.cat(logits).softmax(1)


def fine_tuned(model: SplitClassifier, z: Tensor, y: Tensor, rate: float, seed: int) -> SplitClassifier:
    """Train csf and head on packed latents (n, 2, ...) of photos and their mirror images, by a cosine schedule."""
    model.freeze("llf")
    model.train()
    learning = [*model.csf.parameters(), *model.head.parameters()]
    optimizer = torch.optim.SGD(learning, lr=rate, momentum=MOMENTUM)
    steps = max(1, round(len(y) / N_MB))
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: (1 + math.cos(math.pi * min(1.0, step / (EPOCHS * steps)))) / 2
    )
    for epoch in range(EPOCHS):
        order = torch.randperm(len(y), generator=generator(seed, "joint order", epoch))
        mirrored = torch.randint(2, (len(y),), generator=generator(seed, "joint views", epoch))
        for rows in order.tensor_split(steps):
            logits = model.tail(unpack(z[rows, mirrored[rows]].float()))
            sgd_step(optimizer, F.cross_entropy(logits, y[rows], label_smoothing=SMOOTHING))
            schedule.step()
    return model.eval()


def _judge(probabilities: Tensor, y: Tensor, names: list[str]) -> tuple[float, float]:
    """Accuracy, and the likelihood of the right class among those that are as accurate."""
    likelihood = probabilities.gather(1, y.view(-1, 1)).clamp(min=1e-12).log().mean()
    return accuracy(probabilities, y, names)["accuracy"], float(likelihood)


def _sum(seconds: Result, others: Result, share: float = 1.0) -> Result:
    """Seconds of both kinds, of the others a share."""
    return {key: value + share * others.get(key, 0.0) for key, value in seconds.items()}


def _labels(photos: Photos, labels: dict[str, int]) -> Tensor:
    return torch.tensor([labels[name] for name, files in photos.items() for _ in files])
