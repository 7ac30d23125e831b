"""What every closed form and every learner of the app offers beyond `Learner`."""

import copy
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from triphase import NCM, SLDA, TPC, Anchored, BiC, Memory, RanPAC
from triphase.data.feature_cache import latents, unpack
from triphase.errors import InvalidValue
from triphase.learners import ClosedForm, DepthSLDA, HasDiagnostics, QuickLearner, Teachable
from triphase.learners.frozen import without
from triphase.models import SplitClassifier
from triphase.testing import FIRST, REST, tiny_images, tiny_model, tiny_stream

CLOSED: dict[str, Any] = {
    "ncm": NCM,
    "slda": SLDA,
    "slda_depths": DepthSLDA,
    "anchored": lambda model: Anchored(model, Memory(12)).closed_form,
}
TEACHABLE: dict[str, Any] = {
    "tpc": lambda model: TPC(model, Memory(12)),
    "anchored": lambda model: Anchored(model, Memory(12)),
    "slda": SLDA,
    "slda_depths": DepthSLDA,
    "ncm": NCM,
}
closed_forms = pytest.mark.parametrize("make", CLOSED.values(), ids=CLOSED.keys())
teachables = pytest.mark.parametrize("make", TEACHABLE.values(), ids=TEACHABLE.keys())


def z_of(model: SplitClassifier) -> Tensor:
    return unpack(latents(model, tiny_images()))


def taught(make: Any) -> Any:
    learner = make(tiny_model(0))
    for experience in tiny_stream().experiences:
        learner.learn(experience, REST)
    return learner


@closed_forms
def test_logits_are_the_scores_of_the_features(make: Any) -> None:
    closed = taught(make)
    z = z_of(closed.model)
    f = closed.features(z)
    assert f.shape == (len(z), closed.n_features)
    assert torch.equal(closed.logits(z), closed.scores(f))
    assert closed.counts.tolist() == [7.0, 9.0, 9.0] and closed.known == {0, 1, 2}


@closed_forms
def test_what_was_counted_can_be_removed_exactly(make: Any) -> None:
    draw = torch.Generator().manual_seed(0)
    f, y = torch.rand(30, 16, generator=draw), torch.arange(30) % 3
    whole, rest = make(tiny_model()), make(tiny_model())
    whole.add(f, y)
    before = whole.sums
    rest.add(f[10:], y[10:])
    smaller: Any = without(whole, f[:10], y[:10])
    assert torch.equal(whole.sums, before), "the original is left alone"
    whole.remove(f[:10], y[:10])
    for closed in (whole, smaller):
        closed.known = rest.known = {0, 1, 2}
        assert torch.equal(closed.counts, rest.counts)
        torch.testing.assert_close(closed.scores(f), rest.scores(f), rtol=1e-3, atol=1e-4)
        torch.testing.assert_close(closed.distances(f), rest.distances(f))


@closed_forms
def test_distances_are_higher_for_what_was_taught(make: Any) -> None:
    closed, y = make(tiny_model()), torch.arange(30) % 3
    f = torch.rand(30, 16, generator=torch.Generator().manual_seed(0)) + 9 * torch.eye(16)[y]
    closed.add(f, y)
    between, far = f.mean(0, keepdim=True), f[:1] + 100
    distances = closed.distances(torch.cat([f, between, far]))
    assert distances.dtype == torch.float64 and distances.shape == (32, 0 if isinstance(closed, NCM) else 2)
    if not isinstance(closed, NCM):
        assert float(distances[30, 0]) < float(distances[:30, 0].min()), "relative: between the classes"
        assert float(distances[31, 1]) < float(distances[:31, 1].min()), "absolute: far from everything"


def test_a_closed_form_that_has_learned_nothing_is_infinitely_far_from_everything() -> None:
    assert torch.isneginf(SLDA(tiny_model()).distances(torch.rand(4, 16))).all()


def test_reestimate_takes_the_covariance_from_samples_and_leaves_means_alone() -> None:
    draw = torch.Generator().manual_seed(0)
    f, y = torch.rand(30, 16, generator=draw), torch.arange(30) % 3
    closed, same = SLDA(tiny_model()), SLDA(tiny_model())
    closed.add(f, y)
    same.add(f, y)
    closed.reestimate(f, y)
    torch.testing.assert_close(closed.covariance(), same.covariance())
    closed.reestimate(3 * f, y)
    assert torch.equal(closed.means, same.means) and torch.equal(closed.counts, same.counts)
    assert float(closed.covariance().trace()) == pytest.approx(9 * float(same.covariance().trace()))


@teachables
@pytest.mark.parametrize("label", [0, 1, 2])
def test_a_dropped_class_is_gone_and_later_labels_move_down(make: Any, label: int) -> None:
    learner: Teachable = taught(make)
    before = learner.logits(z_of(learner.model))
    stays = [c for c in range(3) if c != label]
    closed = learner.closed_form
    scores = None if closed is None else closed.scores(closed.features(z_of(learner.model)))
    learner.drop_class(label)
    after = learner.logits(z_of(learner.model))
    assert learner.known == {0, 1} and learner.model.n_classes == 2 and after.shape[1] == 2
    if closed is not None and scores is not None:
        assert closed.known == {0, 1} and len(closed.counts) == 2
    if closed is None or isinstance(closed, NCM):  # scores of one class do not depend on the others
        assert torch.equal(after, before[:, stays])
    learner.learn(tiny_stream().experiences[1], REST)
    assert learner.known == {0, 1, 2}


@teachables
def test_a_dropped_class_is_dropped_from_the_saved_state(make: Any) -> None:
    learner, again = taught(make), make(tiny_model(0))
    learner.drop_class(1)
    again.load_state_dict(learner.state_dict())
    z = z_of(learner.model)
    assert torch.equal(again.logits(z), learner.logits(z)) and again.known == {0, 1}


@teachables
def test_rescale_changes_nothing_but_the_scale_of_combined_scores(make: Any) -> None:
    learner = taught(make)
    z = z_of(learner.model)
    before = learner.logits(z)
    learner.rescale(z)
    if isinstance(learner, Anchored):
        assert learner.score_stds is not None
        stds = [m.logits(z)[:, :3].std(1, correction=0).mean() for m in (learner.tpc, learner.closed_form)]
        assert learner.score_stds == pytest.approx([float(std) for std in stds])
    else:
        assert torch.equal(learner.logits(z), before)


def test_what_each_learner_offers() -> None:
    model = tiny_model()
    anchored = Anchored(model, Memory(12))
    offered: list[ClosedForm | None] = [anchored.closed_form, SLDA(model).closed_form, TPC(model, None).closed_form]
    assert [type(closed) for closed in offered] == [SLDA, SLDA, type(None)]
    assert isinstance(anchored, QuickLearner) and not isinstance(SLDA(model), QuickLearner)
    assert not hasattr(RanPAC(model, n_projected=8), "drop_class")


def test_a_quick_lesson_is_answered_by_the_closed_form_until_it_is_learned_in_full() -> None:
    one, two = tiny_stream().experiences
    learner, whole = Anchored(tiny_model(0), Memory(12)), Anchored(tiny_model(0), Memory(12))
    learner.learn(one, FIRST)
    learner.learn_quick(two, REST)
    z = z_of(learner.model)
    assert learner.known == {0, 1, 2} and learner.quick_experience == 2
    assert torch.equal(learner.logits(z), learner.closed_form.logits(z))
    learner.learn(two, REST)
    whole.learn(one, FIRST)
    whole.learn(two, REST)
    assert torch.equal(learner.logits(z), whole.logits(z)) and learner.quick_experience == 0


@pytest.mark.parametrize("make", [TPC, Anchored, BiC])
def test_learners_whose_llf_is_frozen_refuse_to_train_it(make: Any) -> None:
    learner, everything = make(tiny_model(), Memory(12)), replace(FIRST, trainable="all")
    with pytest.raises(InvalidValue, match="llf.*csf"):
        learner.check_recipe(everything)
    before = copy.deepcopy(learner.model.state_dict())
    with pytest.raises(InvalidValue, match="llf.*csf"):
        learner.learn(tiny_stream().experiences[0], everything)
    assert all(torch.equal(before[name], tensor) for name, tensor in learner.model.state_dict().items())
    learner.learn(tiny_stream().experiences[0], FIRST)
    assert learner.known == {0, 1}


@pytest.mark.parametrize("make", [TPC, Anchored])
def test_diagnostics_say_how_far_head_rows_overshoot(make: Any) -> None:
    learner: Any = make(tiny_model(0), Memory(12), s=0.1)
    reports: HasDiagnostics = learner
    assert reports.diagnostics() == {}
    learner.learn(tiny_stream().experiences[0], FIRST)
    assert learner.diagnostics() == {"peak_sigma_over_s": pytest.approx(1.0)}, "normalised at the end (Eq. 9)"
