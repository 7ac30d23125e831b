"""The rivals against independent derivations: a few lines of NumPy for each."""

import copy
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from derivation import Linear, minibatches, softmax
from triphase import (
    AR1,
    NCM,
    SLDA,
    TPC,
    Anchored,
    BiC,
    DepthSLDA,
    DERpp,
    Experience,
    FineTune,
    Memory,
    RanPAC,
    Recipe,
    SplitClassifier,
)
from triphase.data.batches import Batches
from triphase.data.feature_cache import latents, unpack
from triphase.data.images import Images
from triphase.data.memory import HELD_OUT, TRAIN
from triphase.errors import CorruptState, InvalidValue
from triphase.learners import anchored
from triphase.learners.protocol import Step
from triphase.learners.slda_depths import SHRINKAGE
from triphase.models import linear_head
from triphase.models.batchrenorm import BatchRenorm2d
from triphase.randomness import generator, keys
from triphase.testing import FIRST, REST, tiny_images, tiny_model, tiny_stream

LR, MOMENTUM = 1e-3, 0.9
RECIPE = Recipe(epochs=3, lr=LR, n_mbe=8, n_mbr=8, momentum=MOMENTUM)


def features(mb: Any) -> tuple[np.ndarray, np.ndarray]:
    return mb.z.double().flatten(1).numpy(), mb.y.numpy()


def sgd(W: np.ndarray, V: np.ndarray, dW: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    V = MOMENTUM * V + dW
    return W - LR * V, V


def cross_entropy_gradient(W: np.ndarray, f: np.ndarray, y: np.ndarray) -> np.ndarray:
    gradient: np.ndarray = (softmax(f @ W.T) - np.eye(len(W))[y]).T @ f / len(y)
    return gradient


# --- AR1 ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mean", ["global", "class"])
def test_ar1_consolidates_as_cwr_star_says(mean: Any) -> None:
    model, memory = Linear(108, 4), Memory(12)  # this memory serves the derivation, not the learner
    learner = AR1(model, Memory(12), mean=mean)
    cw, past = np.zeros((4, 108)), np.zeros(4)
    for experience in tiny_stream().experiences:
        learner.learn(experience, RECIPE)
        n_cur = np.bincount(torch.cat([experience.images.labels, memory["y"]]).numpy(), minlength=4)
        current = np.flatnonzero(n_cur)
        W, V = np.where((n_cur > 0)[:, None], cw, 0.0), np.zeros((4, 108))
        batches = Batches(model, experience, memory, RECIPE, seed=0)
        for mb in minibatches(batches, 3, 0):
            W, V = sgd(W, V, cross_entropy_gradient(W, *features(mb)))
        trained = W[current] - (W[current].mean() if mean == "global" else W[current].mean(1, keepdims=True))
        w_past = np.sqrt(past[current] / n_cur[current])[:, None]
        cw[current] = (cw[current] * w_past + trained) / (w_past + 1)
        past += n_cur
        batches.update_memory()
        np.testing.assert_allclose(model.head.weight.detach().numpy(), cw, rtol=1e-3, atol=1e-6)
    assert past.tolist() == learner.n_past.tolist() and past[1] > 13 / 2  # replayed samples were counted again


def test_ar1_without_replay_leaves_csf_alone_after_the_first_experience() -> None:
    learner = AR1(tiny_model(), None)
    one, two = tiny_stream().experiences
    learner.learn(one, FIRST)
    csf = {name: tensor.clone() for name, tensor in learner.model.csf.state_dict().items()}
    first = learner.model.head.weight[0].detach().clone()
    learner.learn(two, REST)
    assert all(torch.equal(csf[name], tensor) for name, tensor in learner.model.csf.state_dict().items())
    assert torch.equal(learner.model.head.weight[0], first)  # class 0 was absent: its consolidated row stays
    assert learner.model.head.weight[2].abs().sum() > 0


def test_ar1_lets_batch_renormalisation_hardly_move_after_the_first_experience() -> None:
    model, layer = tiny_model(), BatchRenorm2d(16)
    model.csf = nn.Sequential(
        *(layer if isinstance(part, nn.BatchNorm2d) else part for part in model.csf.children())
    )
    learner, rates = AR1(model, Memory(12)), []
    for experience in tiny_stream().experiences:
        learner.learn(experience, REST)
        rates.append(round(float(layer.momentum), 7))
    assert rates == [0.01, 5e-5]


# --- DER++ ----------------------------------------------------------------------------------------------------


def test_derpp_minimises_its_three_terms() -> None:
    alpha, beta = 0.3, 0.7
    model, memory = Linear(108, 4), Memory(12)
    learner = DERpp(model, Memory(12), alpha=alpha, beta=beta)
    W, V = np.zeros((4, 108)), np.zeros((4, 108))
    stored: dict[int, np.ndarray] = {}
    for experience in tiny_stream().experiences:
        learner.learn(experience, RECIPE)
        batches = Batches(model, experience, memory, RECIPE, seed=0)
        V = np.zeros_like(W)
        for mb in minibatches(batches, 3, 0):
            f, y = features(mb)
            n, m = mb.n_current, len(mb.slots)
            dW = cross_entropy_gradient(W, f[:n], y[:n])
            if m:
                target = np.stack([stored[int(i)] for i in memory["id"][mb.slots]])
                dW += alpha * 2 * (f[n:] @ W.T - target).T @ f[n:] / (m * 4)
                dW += beta * cross_entropy_gradient(W, f[n:], y[n:])
            W, V = sgd(W, V, dW)
        np.testing.assert_allclose(model.head.weight.detach().numpy(), W, rtol=1e-3, atol=1e-6)
        before = set(memory["id"].tolist())
        batches.update_memory()
        for i, x in zip(memory["id"].tolist(), memory["x"], strict=True):
            if i not in before:
                stored[i] = x.double().flatten().numpy() / 255 @ W.T
    held = np.stack([stored[int(i)] for i in learner.memory["id"]])
    np.testing.assert_allclose(learner.memory["logits"].numpy(), held, rtol=1e-3, atol=1e-4)


def test_derpp_keeps_the_logits_of_the_experience_in_which_a_sample_entered() -> None:
    learner = DERpp(tiny_model(), Memory(12))
    one, two = tiny_stream().experiences
    learner.learn(one, FIRST)
    before = dict(zip(learner.memory["id"].tolist(), learner.memory["logits"], strict=True))
    learner.learn(two, REST)
    after = dict(zip(learner.memory["id"].tolist(), learner.memory["logits"], strict=True))
    stayed = before.keys() & after.keys()
    assert stayed and after.keys() - before.keys()
    assert all(torch.equal(before[i], after[i]) for i in stayed)


def test_derpp_compares_only_columns_that_were_stored() -> None:
    learner = DERpp(tiny_model(n_classes=0), Memory(12))
    one, two = tiny_stream().experiences
    learner.learn(one, FIRST)
    assert learner.memory["logits"].shape[1] == 2
    learner.learn(two, REST)
    logits, entered_first = learner.memory["logits"], learner.memory["y"] == 0
    assert logits.shape[1] == 3
    assert logits[entered_first, 2].isnan().all() and not logits[entered_first, :2].isnan().any()
    assert all(torch.isfinite(p).all() for p in learner.model.parameters())


def test_derpp_online_stores_what_was_said_while_training(monkeypatch: pytest.MonkeyPatch) -> None:
    learner = DERpp(tiny_model(), Memory(100), logits="online")
    said: dict[int, Tensor] = {}
    original = DERpp._loss

    def spy(self: DERpp, logits: Tensor, mb: Any) -> Tensor:
        said.update(zip(mb.rows.tolist(), logits[: mb.n_current].detach(), strict=True))
        return original(self, logits, mb)

    monkeypatch.setattr(DERpp, "_loss", spy)
    one = tiny_stream().experiences[0]
    learner.learn(one, FIRST)
    for i, logits in zip(learner.memory["id"], learner.memory["logits"], strict=True):
        assert torch.equal(said[int((one.images.ids == i).nonzero())], logits)


# --- BiC ------------------------------------------------------------------------------------------------------


def test_bic_stage_1_distils_over_classes_and_weighs_by_the_number_of_old_ones() -> None:
    T = 2.0
    model, memory = Linear(108, 4), Memory(30)
    learner = BiC(model, Memory(30), T=T)
    W, V = np.zeros((4, 108)), np.zeros((4, 108))
    known: set[int] = set()
    pair, corrected = np.array([1.0, 0.0]), set[int]()
    images = tiny_images()
    lessons = [Experience(i + 1, images.select(torch.isin(images.labels, torch.tensor(c)).nonzero().view(-1)))
               for i, c in enumerate([[0, 1], [2], [3]])]  # fmt: skip
    for experience in lessons:
        learner.learn(experience, RECIPE)
        new = set(experience.classes)
        old, seen = sorted(known - new), sorted(known | new)
        n_val = max(1, 30 // len(known or new) // 10)
        held_out = learner_holds_out(experience, memory, n_val)
        batches = Batches(model, experience, memory, RECIPE, seed=0, held_out=held_out)
        teacher, share, V = W.copy(), len(old) / len(seen), np.zeros_like(W)
        for mb in minibatches(batches, 3, 0):
            f, y = features(mb)
            G = np.zeros((len(y), 4))
            position = np.searchsorted(seen, y)
            G[:, seen] = (1 - share) * (softmax((f @ W.T)[:, seen]) - np.eye(len(seen))[position])
            if old:
                said = f @ teacher.T
                fix = sorted(corrected & set(old))
                said[:, fix] = pair[0] * said[:, fix] + pair[1]
                G[:, old] += share / T * (softmax((f @ W.T)[:, old] / T) - softmax(said[:, old] / T))
            W, V = sgd(W, V, G.T @ f / len(y))
        np.testing.assert_allclose(model.head.weight.detach().numpy(), W, rtol=1e-3, atol=1e-6)
        batches.update_memory(lambda rows, held=held_out: {"split": held[rows].to(torch.int8)})  # type: ignore[misc]
        memory.release_held_out(max(1, 30 // len(seen) // 10))
        known, corrected = set(seen), (new if known else set())
        pair = learner.pair.double().numpy()


def learner_holds_out(experience: Experience, memory: Memory, n_val: int) -> Tensor:
    """Of each class of these lessons, all new, the images with the highest keys."""
    key, out = keys(0, experience.images.ids), torch.zeros(len(experience.images), dtype=torch.bool)
    for label in experience.classes:
        rows = (experience.images.labels == label).nonzero().view(-1)
        out[rows[key[rows].argsort(descending=True)[:n_val]]] = True
    return out


@pytest.mark.parametrize("epochs", [1, 2, 3])
def test_bic_stage_2_begins_at_its_full_rate_however_short_it_is(epochs: int) -> None:
    learner = BiC(tiny_model(), Memory(40), stage2_epochs=epochs)
    one, two = tiny_stream().experiences
    learner.learn(one, FIRST)
    learner.learn(two, replace(REST, n_mbe=64, n_mbr=192))  # stage 2's rate grows with the minibatch
    assert (learner.pair - torch.tensor([1.0, 0.0])).abs().max() > 1e-3


def test_bic_tells_when_stage_2_is_done_so_that_its_time_is_not_stage_1s() -> None:
    learner = BiC(tiny_model(), Memory(40), stage2_epochs=5)
    one, two = tiny_stream().experiences
    for experience, recipe, last in ((one, FIRST, "stage 1"), (two, REST, "stage 2")):
        steps: list[Step] = []
        learner.learn(experience, recipe, steps.append)
        assert steps[-1].phase == last and {s.phase for s in steps[:-1]} == {"stage 1"}


def test_bic_refuses_to_train_what_its_two_models_share() -> None:
    learner = BiC(tiny_model(), Memory(40))
    with pytest.raises(InvalidValue, match="train csf only"):
        learner.learn(tiny_stream().experiences[0], replace(FIRST, trainable="all"))


def test_bic_stage_2_finds_the_minimum_of_cross_entropy_and_beta() -> None:
    learner = BiC(tiny_model(), Memory(40), stage2_epochs=800)
    one, two = tiny_stream().experiences
    learner.learn(one, FIRST)
    assert learner.pair.tolist() == [1.0, 0.0] and not learner.corrected  # none for the first experience
    seen: dict[str, Any] = {}
    original = BiC._stage_2

    def spy(self: BiC, batches: Batches, recipe: Recipe, classes: set[int], new: set[int]) -> tuple[Tensor, Tensor]:
        slots = self.memory.slots(HELD_OUT)
        seen["y"] = self.memory["y"][slots].numpy()
        self.model.eval()
        seen["logits"] = self.model.tail(batches.memory_latents(slots)).detach().double().numpy()[:, :3]
        self.model.train()
        return original(self, batches, recipe, classes, new)

    learner._stage_2 = spy.__get__(learner)  # type: ignore[method-assign]
    learner.learn(two, replace(REST, n_mbe=64, n_mbr=192))  # stage 2's rate grows with the minibatch
    logits, y = seen["logits"], seen["y"]
    assert set(y) == {0, 1, 2} and learner.corrected == {1, 2}

    def loss(alpha: float, beta: float) -> float:
        z = logits.copy()
        z[:, 1:] = alpha * z[:, 1:] + beta
        return float(-np.log(softmax(z)[np.arange(len(y)), y]).mean() + 0.1 * beta**2 / 2)

    alpha, beta = learner.pair.tolist()
    assert loss(alpha, beta) < loss(1.0, 0.0)
    grid = min(loss(a, b) for a in np.linspace(0, 4, 81) for b in np.linspace(-3, 3, 61))
    assert loss(alpha, beta) < grid + 0.01
    z = unpack(latents(learner.model, tiny_images()))
    learner.model.eval()
    plain = learner.model.tail(z).detach()
    torch.testing.assert_close(learner.logits(z)[:, 1], alpha * plain[:, 1] + beta)
    torch.testing.assert_close(learner.logits(z)[:, 0], plain[:, 0])


def test_bic_validates_inside_the_budget_on_samples_it_never_trained_on(monkeypatch: pytest.MonkeyPatch) -> None:
    learner = BiC(tiny_model(), Memory(20))
    trained: set[int] = set()
    original = Batches._draw

    def spy(self: Batches, rows: Tensor, slots: Tensor, *rest: Any) -> Any:
        trained.update(self.experience.images.ids[rows].tolist())
        if self.memory is not None and len(slots):
            trained.update(self.memory["id"][slots].tolist())
        return original(self, rows, slots, *rest)

    monkeypatch.setattr(Batches, "_draw", spy)
    images = tiny_images()
    lessons = [([0, 1], 0), ([2], 0), ([0, 1], 1), ([3], 0), ([2, 3], 1)]  # classes, which half of their images
    for index, (classes, half) in enumerate(lessons, start=1):
        rows = torch.cat([(images.labels == c).nonzero().view(-1)[half::2] for c in classes])
        learner.learn(Experience(index, images.select(rows)), FIRST if index == 1 else REST)
        held = learner.memory.slots(HELD_OUT)
        assert len(learner.memory) <= 20
        assert set(learner.memory["y"][held].tolist()) == learner.known
        assert not trained & set(learner.memory["id"][held].tolist())
        assert len(learner.memory.slots(TRAIN)) + len(held) == len(learner.memory)


def test_bic_stores_all_that_it_holds_out_however_many_classes_arrive_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    images, held_out = tiny_images(n_classes=13, per_class=8), []
    learner = BiC(tiny_model(13), Memory(60))
    original = BiC._hold_out

    def spy(self: BiC, experience: Experience, *rest: int) -> Tensor:
        held_out.append(experience.images.ids[original(self, experience, *rest)])
        return original(self, experience, *rest)

    monkeypatch.setattr(BiC, "_hold_out", spy)
    for index, rows in enumerate([images.labels == 0, images.labels > 0], start=1):
        learner.learn(Experience(index, images.select(rows.nonzero().view(-1))), FIRST if index == 1 else REST)
    assert len(held_out[1]) and torch.isin(held_out[1], learner.memory["id"]).all()


@pytest.mark.parametrize("make", [BiC, DERpp])
def test_rivals_that_live_by_replay_refuse_to_go_without(make: Any) -> None:
    with pytest.raises(InvalidValue, match="give it a memory"):
        make(tiny_model(), None)


@pytest.mark.parametrize(
    ("make", "options"),
    [
        (AR1, {"mean": "median"}),
        (DERpp, {"alpha": -1}),
        (DERpp, {"logits": "never"}),
        (BiC, {"stage2_epochs": 0}),
        (BiC, {"distill_axis": "pixels"}),
        (SLDA, {"shrinkage": 0}),
        (RanPAC, {"ridge": 0}),
        (RanPAC, {"n_projected": 0}),
    ],
)
def test_options_of_rivals_are_checked(make: Any, options: dict[str, Any]) -> None:
    with pytest.raises(InvalidValue, match=next(iter(options))):
        make(tiny_model(), Memory(12), **options)


# --- Closed forms ---------------------------------------------------------------------------------------------


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


def test_ncm_is_the_nearest_mean_of_unit_features() -> None:
    learner, f, y, everything = taught(NCM(tiny_model()))
    unit, all_unit = (a / np.linalg.norm(a, axis=1, keepdims=True) for a in (f, everything))
    means = np.stack([unit[y == c].mean(0) for c in range(3)])
    means /= np.linalg.norm(means, axis=1, keepdims=True)
    distances = ((all_unit[:, None] - means) ** 2).sum(2)
    np.testing.assert_allclose(scores(learner), 1 - distances / 2, rtol=1e-4, atol=1e-5)


def test_slda_is_linear_discriminant_analysis_of_everything_seen() -> None:
    learner, f, y, everything = taught(SLDA(tiny_model(), shrinkage=0.2))
    means = np.stack([f[y == c].mean(0) for c in range(3)])
    centred = f - means[y]
    within = centred.T @ centred / len(f)
    sigma = 0.8 * within + 0.2 * np.trace(within) / 16 * np.eye(16)
    precision = np.linalg.inv(sigma)
    likelihood = -0.5 * np.einsum(
        "ncd,de,nce->nc", everything[:, None] - means, precision, everything[:, None] - means
    )
    found = scores(learner)
    np.testing.assert_allclose(
        found - found.mean(1, keepdims=True), likelihood - likelihood.mean(1, keepdims=True), rtol=1e-3, atol=1e-3
    )


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


def test_ranpac_is_ridge_regression_on_random_features() -> None:
    learner, f, y, everything = taught(RanPAC(tiny_model(), n_projected=50, ridge=3.0))
    P = learner.P.double().numpy()
    h, all_h = np.maximum(f @ P, 0), np.maximum(everything @ P, 0)
    W = np.linalg.solve(h.T @ h + 3.0 * np.eye(50), h.T @ np.eye(3)[y])
    np.testing.assert_allclose(scores(learner), all_h @ W, rtol=1e-2, atol=1e-3)


def test_ranpac_chooses_the_ridge_with_the_least_error_on_a_fifth() -> None:
    draw = torch.Generator().manual_seed(0)
    h, y = torch.rand(40, 30, generator=draw), torch.arange(40) % 3
    learner = RanPAC(tiny_model(), n_projected=30)
    chosen = learner._choose(h, y)
    order = torch.randperm(40, generator=generator(0, "ridge")).numpy()
    val, train = order[:8], order[8:]
    H, Y = h.double().numpy(), np.eye(3)[y.numpy()]
    errors = {}
    for k in range(-8, 9):
        W = np.linalg.lstsq(
            np.vstack([H[train], np.sqrt(10.0**k) * np.eye(30)]),
            np.vstack([Y[train], np.zeros((30, 3))]),
            rcond=None,
        )[0]
        errors[10.0**k] = ((H[val] @ W - Y[val]) ** 2).mean()
    assert errors[chosen] <= min(errors.values()) + 1e-9


def test_ranpac_goes_on_choosing_until_there_are_enough_images() -> None:
    draw = torch.Generator().manual_seed(0)
    f, y = torch.randn(600, 16, generator=draw), torch.arange(600) % 5
    learner = RanPAC(tiny_model(), n_projected=20)
    for part in range(6):
        learner.add(f[part * 100 :][:100], y[part * 100 :][:100])
        whole = RanPAC(tiny_model(), n_projected=20)
        whole.add(f[: min(5, part + 1) * 100], y[: min(5, part + 1) * 100])
        assert learner.ridge == whole.ridge
        assert (learner.choosing is None) == (part >= 4)


@pytest.mark.parametrize("make", [NCM, SLDA, lambda model: RanPAC(model, n_projected=60, ridge=1.0)])
def test_closed_forms_do_not_depend_on_the_order_or_the_cut_of_experiences(make: Any) -> None:
    images = tiny_images(3)
    forward, backward, at_once = make(tiny_model()), make(tiny_model()), make(tiny_model())
    rows = torch.arange(len(images))
    for index, part in enumerate(rows.split(9), start=1):
        forward.learn(Experience(index, images.select(part)), REST)
    for index, part in enumerate(reversed(rows.split(9)), start=1):
        backward.learn(Experience(index, images.select(part)), REST)
    at_once.learn(Experience(1, images), REST)
    for other in (backward, at_once):
        np.testing.assert_allclose(scores(forward), scores(other), rtol=1e-2, atol=2e-3)


def test_ranpac_refuses_features_of_a_network_that_diverged() -> None:
    learner = RanPAC(tiny_model(), n_projected=16, ridge=1.0)
    with pytest.raises(CorruptState, match="no numbers"):
        learner.add(torch.full((6, 16), float("nan")), torch.arange(6) % 3)


@pytest.mark.parametrize("make", [NCM, SLDA, lambda model, **o: RanPAC(model, n_projected=60, **o)])
def test_closed_forms_from_scratch_train_on_the_first_experience_only(make: Any) -> None:
    learner, plain = make(tiny_model(), pretrained=False), FineTune(tiny_model(), pretrained=False)
    one, two = tiny_stream().experiences
    steps: list[Step] = []
    learner.learn(one, FIRST, steps.append)
    plain.learn(one, FIRST)
    assert len(steps) == 3 * 2
    for name, tensor in plain.model.state_dict().items():
        assert torch.equal(learner.model.state_dict()[name], tensor), name
    before = {name: tensor.clone() for name, tensor in learner.model.state_dict().items()}
    learner.learn(two, REST, steps.append)
    assert len(steps) == 6
    assert all(torch.equal(before[name], tensor) for name, tensor in learner.model.state_dict().items())


# --- Equal conditions -----------------------------------------------------------------------------------------


def test_all_gradient_learners_see_the_same_minibatches_where_their_algorithms_allow(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Replay, AR1 and DER++ the very same; TPC the same until Phase III; BiC all but what it holds out."""
    seen: list[tuple[Tensor, Tensor]] = []
    original = Batches._draw

    def spy(self: Batches, rows: Tensor, slots: Tensor, *rest: Any) -> Any:
        if len(rows):
            ids = self.memory["id"][slots] if self.memory is not None else slots
            seen.append((self.experience.images.ids[rows], ids))
        return original(self, rows, slots, *rest)

    monkeypatch.setattr(Batches, "_draw", spy)
    batches: dict[str, list[tuple[Tensor, Tensor]]] = {}
    for make in (FineTune, AR1, DERpp, TPC, BiC):
        seen.clear()
        learner: Any = make(tiny_model(), Memory(12, seed=0))
        for experience in tiny_stream().experiences:
            learner.learn(experience, REST)
        batches[make.__name__] = list(seen)
    for name in ("AR1", "DERpp"):
        assert len(batches[name]) == len(batches["FineTune"]) == 12
        for (a, b), (c, d) in zip(batches[name], batches["FineTune"], strict=True):
            assert torch.equal(a, c) and torch.equal(b, d)
    common = [batch for i, batch in enumerate(batches["FineTune"]) if i % 6 < 4]
    for (a, b), (c, d) in zip(batches["TPC"], common, strict=True):
        assert torch.equal(a, c) and torch.equal(b, d)
    assert {int(i) for a, _ in batches["BiC"] for i in a} < {int(i) for a, _ in batches["FineTune"] for i in a}


@pytest.mark.parametrize("make", [FineTune, AR1, DERpp])
def test_no_epochs_means_already_trained(make: Any) -> None:
    """What trains E_1 with plain cross-entropy may start from another learner's E_1."""
    one, two = tiny_stream().experiences
    whole, shared, plain = make(tiny_model(), Memory(12)), make(tiny_model(), Memory(12)), FineTune(tiny_model())
    plain.learn(one, FIRST)
    shared.model.load_state_dict(plain.model.state_dict())
    whole.learn(one, FIRST)
    shared.learn(one, replace(FIRST, epochs=0))
    for learner in (whole, shared):
        learner.learn(two, REST)
    for name, tensor in whole.model.state_dict().items():
        assert torch.equal(shared.model.state_dict()[name], tensor), name


def test_images_in_memory_do_not_depend_on_the_learner() -> None:
    held = []
    for make in (FineTune, AR1, DERpp, TPC, BiC):
        learner: Any = make(tiny_model(), Memory(12, seed=0))
        for experience in tiny_stream().experiences:
            learner.learn(experience, REST)
        held.append(sorted(learner.memory["id"].tolist()))
    assert all(ids == held[0] for ids in held)


@pytest.mark.parametrize("size", [1.0, 1e3, 1e5])
def test_slda_answers_with_one_image_a_class_whatever_the_scale_of_the_features(size: float) -> None:
    model = SplitClassifier(nn.Identity(), nn.Identity(), linear_head(128, 0))
    learner, draw = SLDA(model), torch.Generator().manual_seed(0)
    f, y = size * torch.rand(20, 128, generator=draw), torch.arange(20)
    learner.add(f, y)
    model.grow(20)
    learner.known = set(range(20))
    assert learner.logits(f).argmax(1).tolist() == y.tolist()


def test_slda_says_nothing_before_it_has_learned_and_refuses_statistics_that_do_not_fit() -> None:
    learner = SLDA(tiny_model())
    assert torch.isneginf(learner.logits(unpack(latents(learner.model, tiny_images())))).all()
    learner.learn(tiny_stream().experiences[0], REST)
    state = learner.state_dict()
    assert learner.state_dict()["statistics"]["products"] is state["statistics"]["products"], "saved once"
    state["statistics"]["products"] = state["statistics"]["products"][:-1]
    with pytest.raises(CorruptState, match="16 features"):
        SLDA(tiny_model()).load_state_dict(state)


def test_ranpac_solves_with_a_larger_ridge_where_the_chosen_one_is_too_small_for_the_precision() -> None:
    learner = RanPAC(tiny_model(), n_projected=60, ridge=1e-8)
    f, y = torch.ones(5, 16) * torch.arange(1, 6).view(-1, 1) * 100, torch.tensor([0, 0, 1, 1, 1])
    learner.add(f, y)
    assert torch.isfinite(learner.W).all()


@pytest.mark.parametrize(
    "make", [NCM, SLDA, lambda model: RanPAC(model, n_projected=40), lambda model: Anchored(model, Memory(12))]
)
def test_a_loaded_closed_form_is_frozen_like_one_that_learned(make: Any) -> None:
    one, two = tiny_stream().experiences
    learner, again = make(tiny_model()), make(tiny_model())
    learner.learn(one, REST)
    again.load_state_dict(learner.state_dict())
    still = again.frozen_model if isinstance(again, Anchored) else again.model
    assert still.is_frozen("csf") and not still.csf.training
    learner.learn(two, REST)
    again.learn(two, REST)
    np.testing.assert_array_equal(scores(learner), scores(again))
