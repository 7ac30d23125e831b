"""For tests that derive a run again in NumPy: a model that is all head, its minibatches, and the arithmetic."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from torch import nn

from triphase import Recipe, SplitClassifier
from triphase.data.batches import Batches
from triphase.data.feature_cache import latents, unpack
from triphase.models import Normalize, linear_head
from triphase.testing import REST, tiny_images, tiny_stream

LR, MOMENTUM = 1e-3, 0.9
RECIPE = Recipe(epochs=3, lr=LR, n_mbe=8, n_mbr=8, momentum=MOMENTUM)


class Linear(SplitClassifier):
    """llf and csf without parameters, so that the head is all there is to derive."""

    def __init__(self, n_features: int, n_classes: int) -> None:
        super().__init__(Normalize((0.0,) * 3, (255.0,) * 3), nn.Flatten(), linear_head(n_features, n_classes))


def minibatches(batches: Batches, epochs: int, first_epoch: int, balanced: bool = False) -> Iterator[Any]:
    n = batches.n_balanced if balanced else batches.n_mixed
    steps = [(first_epoch + e, k) for e in range(epochs) for k in range(n)]
    yield from batches.balanced(steps) if balanced else batches.mixed(steps)


def softmax(z: np.ndarray) -> np.ndarray:
    """Over the last axis."""
    p = np.exp(z - z.max(-1, keepdims=True))
    shares: np.ndarray = p / p.sum(-1, keepdims=True)
    return shares


def features(mb: Any) -> tuple[np.ndarray, np.ndarray]:
    return mb.z.double().flatten(1).numpy(), mb.y.numpy()


def sgd(W: np.ndarray, V: np.ndarray, dW: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    V = MOMENTUM * V + dW
    return W - LR * V, V


def cross_entropy_gradient(W: np.ndarray, f: np.ndarray, y: np.ndarray) -> np.ndarray:
    gradient: np.ndarray = (softmax(f @ W.T) - np.eye(len(W))[y]).T @ f / len(y)
    return gradient


def taught(learner: Any) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray]:
    """The learner after two experiences; all their features and labels; the features of all tiny images."""
    source = tiny_stream()
    f, y = [], []
    for experience in source.experiences:
        learner.learn(experience, REST)
        z = unpack(latents(learner.model, experience.images))
        f.append(learner.model.features(z).detach().double().numpy())
        y.append(experience.images.labels.numpy())
    everything = learner.model.features(unpack(latents(learner.model, tiny_images()))).detach().double().numpy()
    return learner, np.concatenate(f), np.concatenate(y), everything


def scores(learner: Any) -> np.ndarray:
    found: np.ndarray = learner.logits(unpack(latents(learner.model, tiny_images()))).numpy()
    assert np.isneginf(found[:, 3]).all()
    return found[:, :3]
