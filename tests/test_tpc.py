"""TPC against Algorithm 1: what moves in which phase, and a whole run against a plain re-derivation."""

import copy
import warnings
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from derivation import Linear, minibatches, softmax
from triphase import TPC, Experience, Memory, Recipe, Stream
from triphase.data.batches import Batches
from triphase.data.feature_cache import latents, unpack
from triphase.errors import InvalidValue, TriphaseWarning
from triphase.learners.protocol import Step
from triphase.testing import FIRST, REST, tiny_images, tiny_model, tiny_stream

RECIPE = replace(REST, epochs=4)


def learned(learner: TPC, stream: Stream, n: int = 1) -> TPC:
    for experience in stream.experiences[:n]:
        learner.learn(experience, FIRST if experience.index == 1 else RECIPE)
    return learner


def snapshot(module: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in module.state_dict().items()}


def same(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    return all(torch.equal(a[name], b[name]) for name in a)


def test_phase_1_of_a_later_experience_moves_nothing_but_the_novel_rows() -> None:
    learner = learned(TPC(tiny_model(), Memory(12)), tiny_stream())
    head, csf = learner.model.head.weight.detach().clone(), snapshot(learner.model.csf)
    checked = 0

    def tick(step: Step) -> None:
        nonlocal checked
        if step.phase == "I":
            checked += 1
            assert same(csf, snapshot(learner.model.csf)), "csf moved (parameters or running statistics)"
            assert torch.equal(learner.model.head.weight[:2], head[:2]), "a known row moved"
            assert torch.equal(learner.model.head.weight[3], torch.zeros(16)), "a future row moved"
            assert learner.model.head.weight[2].abs().max() > 0, "the novel row did not move"

    learner.learn(tiny_stream().experiences[1], RECIPE, tick)
    assert checked == 2
    assert not torch.equal(learner.model.head.weight[:2], head[:2])
    assert not same(csf, snapshot(learner.model.csf))


def test_after_each_experience_every_seen_row_has_mean_0_and_std_s() -> None:
    learner = learned(TPC(tiny_model(), Memory(12), s=0.05), tiny_stream(), 2)
    seen = learner.model.head.weight[:3].double()
    torch.testing.assert_close(seen.mean(1), torch.zeros(3, dtype=torch.double), atol=1e-8, rtol=0)
    torch.testing.assert_close(seen.std(1, correction=0), torch.full((3,), 0.05, dtype=torch.double))
    assert learner.known == {0, 1, 2}


def test_rows_of_classes_not_known_are_zeroed_at_the_start_of_each_experience() -> None:
    learner = learned(TPC(tiny_model(), Memory(12)), tiny_stream())
    with torch.no_grad():
        learner.model.head.weight[3] = 7.0  # as if a future class had received gradient
    checked = 0

    def tick(step: Step) -> None:
        nonlocal checked
        if step.phase == "I":
            checked += 1
            assert torch.equal(learner.model.head.weight[3], torch.zeros(16))

    learner.learn(tiny_stream().experiences[1], RECIPE, tick)
    assert checked == 2


def test_a_known_class_whose_images_are_all_held_out_keeps_its_protection_in_phase_2() -> None:
    """E_i^y are the classes with training images: Phase II ends as if the held-out images had not come."""
    images = tiny_images()
    train = torch.isin(images.labels, torch.tensor([1, 2])).nonzero().view(-1)
    rows = torch.cat([train, (images.labels == 0).nonzero().view(-1)[-2:]])
    held_out = torch.arange(len(rows)) >= len(train)
    lessons = (Experience(2, images.select(train)), Experience(2, images.select(rows), held_out))

    def head_after_phase_2(lesson: Experience) -> Tensor:
        learner, heads = learned(TPC(tiny_model(), Memory(40), t=1.0), tiny_stream()), {}
        learner.learn(lesson, RECIPE, lambda step: heads.update({step.phase: learner.model.head.weight.clone()}))
        assert learner.known == {0, 1, 2}
        return heads["II"]

    assert torch.equal(*map(head_after_phase_2, lessons))


def phases(learner: TPC, experience: Experience, recipe: Recipe = RECIPE) -> list[tuple[str, int, int]]:
    steps: list[Step] = []
    learner.learn(experience, recipe, steps.append)
    return [(s.phase, s.epochs, s.steps) for s in steps if s.step == s.steps and s.epoch == s.epochs]


def test_phases_have_the_paper_s_epochs_and_iterations() -> None:
    learner = TPC(tiny_model(), Memory(12))
    one, two = tiny_stream().experiences
    assert phases(learner, one) == [("I", 1, 2), ("II", 2, 2), ("III", 1, 2)]  # ceil(13/8), then ceil(12/8)
    assert phases(learner, two) == [("I", 1, 2), ("II", 2, 2), ("III", 1, 2)]


def test_without_novel_classes_phase_1_is_skipped_or_given_to_phase_2() -> None:
    one = tiny_stream().experiences[0]
    for choice, epochs_2 in (("skip", 2), ("to_phase2", 3)):
        learner = TPC(tiny_model(), Memory(12), empty_phase1=choice)  # type: ignore[arg-type]
        learner.learn(one, FIRST)
        assert phases(learner, Experience(2, one.images)) == [("II", epochs_2, 2), ("III", 1, 2)]


def test_without_memory_only_the_head_learns_after_the_first_experience() -> None:
    learner = learned(TPC(tiny_model(), None), tiny_stream())
    csf = snapshot(learner.model.csf)
    assert phases(learner, tiny_stream().experiences[1]) == [("I", 1, 2), ("II", 3, 2)]
    assert same(csf, snapshot(learner.model.csf))


def test_from_scratch_llf_learns_in_the_first_experience_only() -> None:
    learner = TPC(tiny_model(), Memory(12), pretrained=False)
    states = [snapshot(learner.model.llf)]
    for experience in tiny_stream().experiences:
        learner.learn(experience, RECIPE)
        states.append(snapshot(learner.model.llf))
    assert not same(states[0], states[1])
    assert same(states[1], states[2])


def test_from_scratch_without_replay_is_allowed_with_a_warning() -> None:
    with pytest.warns(TriphaseWarning, match="does not recommend"):
        TPC(tiny_model(), None, pretrained=False).learn(tiny_stream().experiences[0], FIRST)


def test_a_learning_rate_at_which_l_bc_diverges_is_announced() -> None:
    with pytest.warns(TriphaseWarning, match="L_BC over 2 classes makes training diverge"):
        TPC(tiny_model(), Memory(12)).learn(tiny_stream().experiences[0], replace(FIRST, lr=0.5))


@pytest.mark.parametrize(
    ("total", "split"),
    [(3, (1, 1, 1)), (4, (1, 2, 1)), (35, (4, 27, 4)), (150, (15, 120, 15)), (200, (20, 160, 20))],
)
def test_epochs_are_split_as_in_the_paper(total: int, split: tuple[int, int, int]) -> None:
    assert TPC(tiny_model(), Memory(12)).epochs(total, novel=True) == split


def test_ablations_give_their_epochs_to_phase_2() -> None:
    assert TPC(tiny_model(), Memory(12), share_3=0).epochs(4, novel=True) == (1, 3, 0)
    assert TPC(tiny_model(), Memory(12), share_1=0).epochs(4, novel=True) == (0, 3, 1)
    assert TPC(tiny_model(), None).epochs(4, novel=True) == (1, 3, 0)


def test_fewer_than_three_epochs_are_refused() -> None:
    with pytest.raises(InvalidValue, match="2 epochs cannot be split into 3 phases: give at least 3"):
        TPC(tiny_model(), Memory(12)).learn(tiny_stream().experiences[0], replace(FIRST, epochs=2))


def test_phases_that_leave_no_epoch_to_phase_2_are_refused() -> None:
    with pytest.raises(InvalidValue, match="^Phases I and III would take all 3 epochs: lower share_1 or share_3.$"):
        TPC(tiny_model(), Memory(12), share_1=0.9).epochs(3, novel=True)


@pytest.mark.parametrize(
    "options",
    [{"t": 1.5}, {"t": -0.1}, {"s": 0.0}, {"w_bc": -1.0}, {"eps": 0.0}, {"bc": "sometimes"}, {"masking": "some"}],
)
def test_options_outside_their_range_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidValue, match=f"^{next(iter(options))} must"):
        TPC(tiny_model(), Memory(12), **options)


@pytest.mark.parametrize("replay", ["raw", "latent", "none"])
@pytest.mark.parametrize("augment", ["none", "flip"])
def test_cached_and_uncached_runs_agree_to_numerical_noise(replay: str, augment: str) -> None:
    ends = []
    for kept in ("float32", "off"):
        store: Literal["raw", "latent"] = "latent" if replay == "latent" else "raw"
        memory = None if replay == "none" else Memory(12, store=store)
        learner = TPC(tiny_model(), memory)
        for experience in tiny_stream().experiences:
            learner.learn(experience, replace(RECIPE, augment=augment, latents=kept))
        ends.append(learner.model.state_dict())
    for name, tensor in ends[0].items():
        torch.testing.assert_close(tensor, ends[1][name], rtol=1e-4, atol=1e-5)


def test_prediction_is_over_seen_classes_unless_told_otherwise() -> None:
    for over, finite in (("seen", 2), ("all", 4)):
        learner = learned(TPC(tiny_model(), Memory(12), predict_over=over), tiny_stream())  # type: ignore[arg-type]
        scores = learner.logits(unpack(latents(learner.model, tiny_images())))
        assert torch.isfinite(scores).sum(1).unique().tolist() == [finite]


def test_a_growing_head_learns_like_a_fixed_one_without_the_future_classes() -> None:
    growing, fixed = (TPC(tiny_model(n_classes=n), Memory(12)) for n in (0, 2))
    for experience, recipe, n_seen in zip(tiny_stream().experiences, (FIRST, RECIPE), (2, 3), strict=True):
        fixed.model.grow(n_seen)
        for learner in (growing, fixed):
            learner.learn(experience, recipe)
        assert growing.model.n_classes == n_seen
        assert same(snapshot(growing.model), snapshot(fixed.model))
    right = growing.logits(unpack(latents(growing.model, tiny_images()))).argmax(1) == tiny_images().labels
    assert right[tiny_images().labels < 3].float().mean() > 0.8


@pytest.mark.parametrize("bc", ["loss", "explicit", "loss_only", "final_only", "none"])
def test_bias_correction_variants_do_what_their_name_says(bc: Any) -> None:
    learner = TPC(tiny_model(), Memory(12), bc=bc)

    def deviation() -> float:
        return float((learner.model.head.weight[:2].detach().std(1, correction=0) / 0.05 - 1).abs().max())

    during: list[float] = []
    learner.learn(tiny_stream().experiences[0], FIRST, lambda step: during.append(deviation()))
    end = deviation()
    assert (max(during) < 1e-4) == (bc == "explicit")
    assert (end < 1e-4) == (bc in ("loss", "explicit", "final_only"))


def test_w_bc_scale_n_makes_the_stability_bound_independent_of_the_number_of_classes() -> None:
    few, many = (TPC(tiny_model(n), Memory(12), w_bc=0.4, w_bc_scale="n") for n in (2, 200))
    assert few._w_bc(2) / 2 == pytest.approx(many._w_bc(200) / 200)


# --- A whole run, derived again -----------------------------------------------------------------------------


def test_a_run_with_a_linear_model_equals_algorithm_1_in_numpy() -> None:
    """Head only, two experiences with replay: softmax, masks, L_BC, momentum and Eq. 9 in closed form."""
    t, s, w_bc, eps, lr, momentum = 0.5, 0.05, 5.0, 1e-4, 1e-3, 0.9
    stream = tiny_stream()
    recipe = Recipe(epochs=5, lr=lr, n_mbe=8, n_mbr=8, momentum=momentum)
    model, memory = Linear(108, 4), Memory(12)  # this memory serves the derivation, not the learner
    learner = TPC(model, Memory(12), t=t, s=s, w_bc=w_bc, eps=eps)

    W = np.zeros((4, 108))
    known: set[int] = set()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TriphaseWarning)
        for experience in stream.experiences:
            learner.learn(experience, recipe)
            current = set(experience.classes)
            novel, seen = current - known, sorted(known | current)
            W[[j for j in range(4) if j not in known]] = 0
            batches = Batches(model, experience, memory, recipe, seed=0)
            for phase, epochs, before in (("I", 1, 0), ("II", 3, 1), ("III", 1, 4)):
                if phase == "III":
                    batches.update_memory()
                V = np.zeros_like(W)
                for mb in minibatches(batches, epochs, before, balanced=phase == "III"):
                    f, y = mb.z.double().flatten(1).numpy(), mb.y.numpy()
                    p = softmax(f @ W.T)
                    true = p[np.arange(len(y)), y][:, None]
                    G = (p - np.eye(4)[y]) / len(y)
                    if phase == "I":
                        G[:, [k for k in range(4) if k not in novel]] = 0
                    if phase == "II":
                        away = np.array([k not in current for k in range(4)])
                        G[away[None, :] & (p < t * true)] = 0
                    dW = G.T @ f
                    for j in seen if phase != "I" else sorted(novel):
                        mu, var = W[j].mean(), W[j].var()
                        pull = mu + (1 - 1 / (var / s**2 + eps)) * (W[j] - mu)
                        dW[j] += w_bc * pull / (len(seen) * 108 * s**2)
                    V = momentum * V + dW
                    W -= lr * V
            for j in seen:
                W[j] = s * (W[j] - W[j].mean()) / W[j].std()
            known |= current
            np.testing.assert_allclose(model.head.weight.detach().numpy(), W, rtol=1e-3, atol=1e-5)
    assert known == {0, 1, 2}


def test_distillation_keeps_old_answers_closer() -> None:
    drifts = []
    for distill in (0.0, 20.0):
        learner = learned(TPC(tiny_model(), Memory(12), distill=distill), tiny_stream())
        z = unpack(latents(learner.model, tiny_images()))
        before = learner.logits(z)[:, :2].log_softmax(1)
        learner.learn(tiny_stream().experiences[1], RECIPE)
        after = learner.logits(z)[:, :2].log_softmax(1)
        drifts.append(float(F.kl_div(after, before, log_target=True, reduction="batchmean")))
    assert drifts[1] < drifts[0]


@pytest.mark.parametrize("reset", ["experience", "never"])
def test_live_momentum_does_not_move_known_rows_in_phase_1(reset: Any) -> None:
    learner = learned(TPC(tiny_model(), Memory(12), reset_momentum=reset), tiny_stream())
    known = learner.model.head.weight[:2].detach().clone()
    checked = 0

    def tick(step: Step) -> None:
        nonlocal checked
        if step.phase == "I":
            checked += 1
            assert torch.equal(learner.model.head.weight[:2], known)

    learner.learn(tiny_stream().experiences[1], RECIPE, tick)
    assert checked == 2


def test_a_loaded_state_without_a_teacher_leaves_none_behind() -> None:
    learner = TPC(tiny_model(), Memory(12), distill=1.0)
    one, two = tiny_stream().experiences
    learner.learn(one, FIRST)
    state = copy.deepcopy(learner.state_dict())

    def stop(step: Step) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        learner.learn(two, REST, stop)
    assert "teacher" in learner.state_dict()
    learner.load_state_dict(state)
    assert "teacher" not in learner.state_dict()
