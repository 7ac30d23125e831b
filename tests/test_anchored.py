"""TPC and the closed form together, derived again in NumPy."""

import copy
import json
from pathlib import Path

import numpy as np
import pytest
import torch

from derivation import (
    scores,
)
from triphase import (
    Anchored,
    DepthSLDA,
    Memory,
)
from triphase.data.feature_cache import latents, unpack
from triphase.data.images import Images
from triphase.learners import anchored
from triphase.learners.slda_depths import SHRINKAGE
from triphase.testing import FIRST, REST, tiny_images, tiny_model, tiny_stream


@pytest.mark.parametrize("few", [0, 10])
def test_anchored_is_tpc_and_discriminant_analysis_of_the_untouched_network_at_every_depth(
    few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(anchored, "FEW_CLASSES", few)
    learner, alone = Anchored(tiny_model(), Memory(12)), DepthSLDA(tiny_model())
    untouched = copy.deepcopy(learner.model.csf).eval()

    def depths(images: Images) -> np.ndarray:
        z = unpack(latents(learner.model, images))
        parts = [z.mean((2, 3)).double().numpy(), untouched(z).detach().double().numpy()]
        units = [part / np.linalg.norm(part, axis=1, keepdims=True) for part in parts]
        together: np.ndarray = np.concatenate(units, 1)
        return together

    f, y = [], []
    for experience in tiny_stream().experiences:
        learner.learn(experience, REST)
        alone.learn(experience, REST)
        f.append(depths(experience.images))
        y.append(experience.images.labels.numpy())
    features, labels = np.concatenate(f), np.concatenate(y)
    lesson = tiny_stream().experiences[-1].images
    means = np.stack([features[labels == c].mean(0) for c in range(3)])
    within = (features - means[labels]).T @ (features - means[labels]) / len(features)
    D = len(within)
    precision = np.linalg.inv(0.7 * within + 0.3 * np.trace(within) / D * np.eye(D))

    def members(images: Images) -> tuple[np.ndarray, np.ndarray]:
        away = depths(images)[:, None] - means
        adapted = learner.tpc.logits(unpack(latents(learner.model, images)))[:, :3].numpy()
        return adapted, -0.5 * np.einsum("ncd,de,nce->nc", away, precision, away)

    both, taught_last = members(tiny_images()), members(lesson)
    spreads = [
        last.std(1).mean() if few else a.std(1, keepdims=True) for a, last in zip(both, taught_last, strict=True)
    ]
    standard = [(a - a.mean(1, keepdims=True)) / spread for a, spread in zip(both, spreads, strict=True)]
    discriminant = both[1]
    np.testing.assert_allclose(scores(learner), standard[0] + 7 * standard[1], rtol=1e-3, atol=1e-3)
    said = scores(alone)
    np.testing.assert_allclose(
        said - said.mean(1, keepdims=True), discriminant - discriminant.mean(1, keepdims=True), rtol=1e-3, atol=1e-3
    )


def test_of_two_classes_both_members_have_a_say_and_images_differ_in_confidence() -> None:
    learner, two = Anchored(tiny_model(), Memory(12)), tiny_stream().experiences[0]
    learner.learn(two, FIRST)
    assert len(learner.known) == 2
    z = unpack(latents(learner.model, tiny_images()))
    said = learner.logits(z)[:, :2].softmax(1).amax(1)
    assert len(said.unique()) > len(said) // 2, "more than agreement and disagreement"
    learner.model.head.weight.data *= 100  # TPC shouts
    assert torch.equal(learner.logits(z).argmax(1), learner.tpc.logits(z).argmax(1))


def test_the_recipe_is_the_candidate_that_the_rule_chooses() -> None:
    record = Path(__file__).parents[1] / "benchmarks" / "results" / "recipe.jsonl"
    candidates = [json.loads(line) for line in record.read_text(encoding="utf-8").splitlines()]
    best = max(candidates, key=lambda c: sum(c[f"{m}_{s}"] for m in ("amca", "final") for s in ("new", "again")))
    assert best["weight"] == anchored.CLOSED_FORM_WEIGHT and "/" in best["member"]
    assert best["closed"] == f"SLDA of every depth, shrinkage {SHRINKAGE:g}"


def test_anchored_lives_where_its_network_does() -> None:
    learner = Anchored(tiny_model().to("meta"), Memory(12))
    assert learner.frozen_model.device.type == "meta"
