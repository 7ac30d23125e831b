"""TPC and the closed form together, derived again in NumPy."""

import copy
import json
from pathlib import Path
from typing import Literal

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
from triphase.data.recipe import Recipe
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
    assert best["weight"] == anchored.CLOSED_FORM_WEIGHT["head"] and "/" in best["member"]
    assert best["closed"] == f"SLDA of every depth, shrinkage {SHRINKAGE:g}"


def test_anchored_lives_where_its_network_does() -> None:
    learner = Anchored(tiny_model().to("meta"), Memory(12))
    assert learner.frozen_model.device.type == "meta"


def taught_discriminant(memory: Memory | None) -> Anchored:
    learner = Anchored(tiny_model(), memory, adapted="discriminant")
    for experience in tiny_stream().experiences:
        learner.learn(experience, REST)
    return learner


def test_the_discriminant_of_the_adapted_csf_is_that_of_the_samples_in_memory() -> None:
    learner = taught_discriminant(Memory(12, store="latent"))
    memory, model = learner.memory, learner.model.eval()
    assert memory is not None and learner.solved is not None
    expected, z = DepthSLDA(model), memory["z"][memory.slots()]
    expected.crops = True
    with torch.no_grad():
        f = expected.feature_model.features(unpack(z))
        expected.add(f, memory["y"][memory.slots()])
        expected.count_crops(z, f)
    for found, solved in zip(learner.solved, expected.solution[1:], strict=True):
        torch.testing.assert_close(found, solved[: len(found)])


@pytest.mark.parametrize("store", ["latent", "raw"])
def test_the_discriminant_answers_in_place_of_the_head(store: Literal["latent", "raw"]) -> None:
    learner = taught_discriminant(Memory(12, store=store))
    z = unpack(latents(learner.model, tiny_images()))
    before = learner.logits(z)
    centred = [s - s.mean(1, keepdim=True) for s in (before[:, :3], learner.inference()(z)[0])]
    torch.testing.assert_close(*centred, rtol=1e-3, atol=1e-3)
    with torch.no_grad():
        learner.model.head.weight.zero_()
    assert torch.equal(learner.logits(z), before), "TPC's head has no say"


def test_without_memory_the_head_of_tpc_answers() -> None:
    learner = taught_discriminant(None)
    assert learner.solved is None
    assert bool(learner.logits(unpack(latents(learner.model, tiny_images())))[:, :3].isfinite().all())


def test_the_discriminant_is_saved_and_loses_the_row_of_a_forgotten_class() -> None:
    learner = taught_discriminant(Memory(12, store="latent"))
    other = Anchored(tiny_model(), Memory(12, store="latent"), adapted="discriminant")
    other.load_state_dict(learner.state_dict())
    z = unpack(latents(learner.model, tiny_images()))
    assert torch.equal(other.logits(z), learner.logits(z))
    assert learner.solved is not None and other.solved is not None
    other.drop_class(0)
    assert torch.equal(other.solved[0], learner.solved[0][1:])


def test_consolidation_starts_from_the_initial_network_and_ends_the_same_after_a_crash() -> None:
    recipe = Recipe(epochs=3, lr=0.1, csf_lr=0.03, n_mbe=4)
    learner, states = taught_discriminant(Memory(12, store="latent")), []
    resumed = Anchored(tiny_model(), Memory(12, store="latent"), adapted="discriminant")
    csf = copy.deepcopy(learner.model.csf.state_dict())
    learner.consolidate(recipe, lambda step: states.append(copy.deepcopy(learner.state_dict())))
    assert len(states) == 9 and any(not torch.equal(v, csf[k]) for k, v in learner.model.csf.state_dict().items())
    resumed.load_state_dict(states[4])
    steps = []
    resumed.consolidate(recipe, lambda step: steps.append(step.step))
    assert len(steps) == 4
    z = unpack(latents(learner.model, tiny_images()))
    assert torch.equal(resumed.logits(z), learner.logits(z))
    sigma = learner.model.head.weight.detach()[:3].std(1, correction=0)
    torch.testing.assert_close(sigma, torch.full((3,), learner.tpc.s))
