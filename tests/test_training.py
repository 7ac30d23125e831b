"""The loop of an experience: where it stands, its momentum and its learning rate, also after a restart."""

import copy
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.amp.grad_scaler import GradScaler
from torch.nn import functional as F

from triphase import state as files
from triphase.data.memory import Memory
from triphase.data.recipe import Recipe
from triphase.errors import CorruptState, InvalidValue
from triphase.learners.protocol import Step
from triphase.learners.sgd import SGD
from triphase.learners.tpc import TPC
from triphase.learners.training import TrainingLoop, learner_state, load_learner_state, sgd_step
from triphase.models import SplitClassifier
from triphase.testing import FIRST, tiny_model, tiny_stream

Reset = Literal["phase", "experience", "never"]
RESETS: tuple[Reset, ...] = ("phase", "experience", "never")
Plan = list[tuple[str, tuple[int, int] | None]]  # sections; those with steps have (epochs, steps)
# What TPC does in an experience, in miniature; csf is frozen in Phase I.
PLAN: Plan = [("start", None), ("I", (2, 3)), ("II", (3, 3)), ("memory", None), ("III", (2, 2))]
Z = torch.rand(6, 6, 6, 6, generator=torch.Generator().manual_seed(0))
Y = torch.arange(6) % 4


def model_for_training() -> SplitClassifier:
    model = tiny_model().train()
    model.freeze("llf")
    return model


class Lesson:
    """A learner in miniature that writes down everything it does."""

    def __init__(self, recipe: Recipe, reset: Reset = "phase", plan: Plan = PLAN, ce: float | None = None) -> None:
        self.model, self.loop, self.recipe, self.plan = model_for_training(), TrainingLoop(reset), recipe, plan
        self.ce = ce  # what the schedule is told; None: the truth
        self.log: list[tuple[Any, ...]] = []
        self.states: list[dict[str, Any]] = []  # after each step

    def learn(self) -> None:
        for name, size in self.plan:
            if not self.loop.begin(name):
                continue
            if size is None:
                self.log.append((name,))
                continue
            if name == "I":
                self.model.freeze("csf")
            else:
                self.model.unfreeze("csf")
            optimizer = self.loop.optimizer(self.model, self.recipe)
            for epoch, step in self.loop.steps(*size):
                loss = F.cross_entropy(self.model.tail(Z * (1 + epoch + step)), Y)
                sgd_step(optimizer, loss)
                told = self.loop.step_done(loss, loss if self.ce is None else torch.tensor(self.ce))
                self.log.append((name, epoch, step, told.epoch, told.step, told.lr, float(told.loss)))
                self.states.append(copy.deepcopy(self.state()))
        self.loop.finish()

    def state(self) -> dict[str, Any]:
        return learner_state({}, self.model, None, {0}, self.loop)

    def continued(self, state: dict[str, Any]) -> "Lesson":
        again = Lesson(self.recipe, plan=self.plan, ce=self.ce)
        again.loop = TrainingLoop(self.loop._reset_momentum)
        load_learner_state(state, again.model, None, again.loop)
        return again

    def weights(self) -> dict[str, torch.Tensor]:
        return {name: value.clone() for name, value in self.model.state_dict().items()}


def assert_equal(found: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> None:
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], value) for name, value in expected.items())


# Position


@pytest.mark.parametrize("reset", RESETS)
@pytest.mark.parametrize("schedule", ["constant", "patience"])
def test_continued_after_any_step_everything_left_is_done_once_and_the_same(
    tmp_path: Path, reset: Reset, schedule: Literal["constant", "patience"]
) -> None:
    recipe = Recipe(lr=0.1, csf_lr=0.01, weight_decay=1e-3, lr_schedule=schedule)
    lesson = Lesson(recipe, reset)
    lesson.learn()  # a first experience, so that there is momentum to carry
    start = copy.deepcopy(lesson.state())
    lesson.log.clear()
    lesson.states.clear()
    lesson.learn()
    assert [entry[:3] for entry in lesson.log if entry[0] == "II"] == [
        ("II", 2 + e, s) for e in range(3) for s in range(3)
    ]
    positions = [i for i, entry in enumerate(lesson.log) if len(entry) > 1]
    for done, state in zip([0, *(p + 1 for p in positions)], [start, *lesson.states], strict=True):
        path = tmp_path / "state.safetensors"
        files.save(path, state)
        again = lesson.continued(files.load(path))
        again.learn()
        assert again.log == lesson.log[done:]
        assert_equal(again.weights(), lesson.weights())
        assert again.loop.state_dict() == lesson.loop.state_dict()
        assert_equal(again.loop.momentum_state(), lesson.loop.momentum_state())


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=4), st.data())
def test_position_is_found_again_in_any_plan(sizes: list[tuple[int, int]], data: st.DataObject) -> None:
    """Steps of a loop resumed twice, against plain nested loops; sections may be empty."""
    expected, before = [], 0
    for section, (epochs, steps) in enumerate(sizes):
        expected += [(str(section), before + e, s) for e in range(epochs) for s in range(steps)]
        before += epochs
    done: list[tuple[str, int, int]] = []
    loop, model = TrainingLoop(), model_for_training()
    stops = sorted(data.draw(st.lists(st.integers(0, len(expected)), min_size=2, max_size=2)))
    for stop in [*stops, len(expected) + 1]:
        for section, size in enumerate(sizes):
            if len(done) == stop:
                break
            if not loop.begin(str(section)):
                continue
            loop.optimizer(model, Recipe())
            for epoch, step in loop.steps(*size):
                loop.step_done(torch.tensor(1.0))
                done.append((str(section), epoch, step))
                if len(done) == stop:
                    break
        if done:
            saved, loop = loop.state_dict(), TrainingLoop()
            loop.load_state_dict(saved, {})
    assert done == expected


def test_step_tells_where_training_stands() -> None:
    lesson = Lesson(Recipe(lr=0.1, csf_lr=0.5))
    assert lesson.loop.begin("I")
    lesson.loop.optimizer(lesson.model, lesson.recipe)
    told = []
    loss = torch.tensor(2.5, requires_grad=True)
    for _ in lesson.loop.steps(2, 2):
        told.append(lesson.loop.step_done(loss))
    assert [(s.phase, s.epoch, s.epochs, s.step, s.steps) for s in told] == [
        ("I", 1, 2, 1, 2),
        ("I", 1, 2, 2, 2),
        ("I", 2, 2, 1, 2),
        ("I", 2, 2, 2, 2),
    ]
    last: Step = told[-1]
    assert last.lr == 0.1 and float(last.loss) == 2.5 and not last.loss.requires_grad


def test_step_that_was_not_counted_is_noticed() -> None:
    loop = TrainingLoop()
    loop.begin("I")
    loop.optimizer(model_for_training(), Recipe())
    loop.steps(1, 2)
    loop.step_done(torch.tensor(1.0))
    with pytest.raises(AssertionError, match=r"1 steps of section I left: call step_done after each step"):
        loop.begin("II")


def test_a_finished_experience_leaves_the_loop_as_new() -> None:
    lesson = Lesson(Recipe(lr_schedule="patience"), ce=1.0)
    lesson.learn()
    assert lesson.loop.state_dict() == TrainingLoop().state_dict() and lesson.loop.momentum_state() == {}


# Optimiser


def test_head_does_not_decay_and_csf_has_its_own_rate() -> None:
    model = tiny_model()
    optimizer = TrainingLoop().optimizer(model, Recipe(lr=0.2, csf_lr=0.03, weight_decay=1e-2, momentum=0.7))
    rates = {}
    for group in optimizer.param_groups:
        for p in group["params"]:
            rates[id(p)] = (group["lr"], group["weight_decay"], optimizer.momentum)
    for block in (model.llf, model.csf):
        assert all(rates[id(p)] == (0.03, 1e-2, 0.7) for p in block.parameters())
    assert rates[id(model.head.weight)] == (0.2, 0.0, 0.7)
    assert len(rates) == len(list(model.parameters()))


def test_frozen_blocks_are_left_out_and_come_back() -> None:
    model, loop = model_for_training(), TrainingLoop()
    model.freeze("csf")
    loop.begin("I")
    assert [p for g in loop.optimizer(model, Recipe()).param_groups for p in g["params"]] == [model.head.weight]
    model.unfreeze("csf")
    loop.begin("II")
    parameters = [p for g in loop.optimizer(model, Recipe(csf_lr=0.01)).param_groups for p in g["params"]]
    assert {id(p) for p in parameters} == {id(p) for p in [*model.csf.parameters(), model.head.weight]}


def step(loop: TrainingLoop, model: SplitClassifier, optimizer: SGD) -> None:
    sgd_step(optimizer, F.cross_entropy(model.tail(Z), Y))


@pytest.mark.parametrize(("reset", "in_ii", "in_next"), [("phase", 0, 0), ("experience", 1, 0), ("never", 1, 1)])
def test_momentum_lives_as_long_as_it_is_told(reset: Reset, in_ii: bool, in_next: bool) -> None:
    """From phase to phase and from experience to experience; rows that the head has gained since start at rest."""
    model, loop = model_for_training(), TrainingLoop(reset)
    loop.begin("I")
    optimizer = loop.optimizer(model, Recipe())
    step(loop, model, optimizer)
    for _ in loop.steps(1, 1):
        loop.step_done(torch.tensor(1.0))
    moving = {name: buffer.clone() for name, buffer in loop.momentum_state().items()}
    assert set(moving) == {f"csf.{n}" for n, _ in model.csf.named_parameters()} | {"head.weight"}

    loop.begin("II")
    loop.optimizer(model, Recipe())
    assert_equal(loop.momentum_state(), moving if in_ii else {})
    for _ in loop.steps(1, 1):
        loop.step_done(torch.tensor(1.0))
    loop.finish()
    assert_equal(loop.momentum_state(), moving if in_next else {})

    model.grow(6)
    loop.begin("I")
    optimizer = loop.optimizer(model, Recipe())
    found = loop.momentum_state()
    assert bool(found) == in_next
    if in_next:
        assert torch.equal(found["head.weight"][:4], moving["head.weight"]) and not found["head.weight"][4:].any()
        assert_equal({**found, "head.weight": moving["head.weight"]}, moving)
    step(loop, model, optimizer)
    assert loop.momentum_state()["head.weight"].shape == (6, 16)


def test_carried_momentum_moves_weights_as_one_optimiser_would() -> None:
    one, other = model_for_training(), model_for_training()
    recipe = Recipe(lr=0.05, weight_decay=1e-3)
    loop, plain = TrainingLoop("never"), TrainingLoop()
    plain.begin("all")
    single = plain.optimizer(other, recipe)
    for _ in range(3):
        loop.begin("start")
        for section in ("I", "II"):
            loop.begin(section)
            optimizer = loop.optimizer(one, recipe)
            step(loop, one, optimizer)
            step(plain, other, single)
            for _ in loop.steps(1, 1):
                loop.step_done(torch.tensor(1.0))
        loop.finish()
        assert_equal(dict(one.state_dict()), dict(other.state_dict()))


def test_a_dropped_class_takes_its_momentum_along() -> None:
    model, loop = model_for_training(), TrainingLoop("never")
    loop.begin("I")
    step(loop, model, loop.optimizer(model, Recipe()))
    for _ in loop.steps(1, 1):
        loop.step_done(torch.tensor(1.0))
    loop.finish()
    moving = loop.momentum_state()["head.weight"].clone()
    model.drop_class(1)
    loop.drop_class(1)
    loop.begin("I")
    loop.optimizer(model, Recipe())
    assert torch.equal(loop.momentum_state()["head.weight"], moving[[0, 2, 3]])


def test_unknown_reset_is_refused() -> None:
    with pytest.raises(InvalidValue, match="'phase', 'experience' or 'never', got 'always'"):
        TrainingLoop("always")  # type: ignore[arg-type]


# Schedule


def rates(ces: list[float], lr: float) -> list[float]:
    """FACIL's scheme in plain words: the rate in each epoch."""
    used, best, waited, divided = [], float("inf"), 0, 0
    for ce in ces:
        used.append(lr / 3**divided)
        waited = 0 if ce < best else waited + 1
        best = min(best, ce)
        if waited >= 5 and lr / 3 ** (divided + 1) >= 1e-4:
            divided, waited = divided + 1, 0
    return used


def scheduled(ces: list[float], recipe: Recipe, sizes: list[int], stop_after: int | None = None) -> list[float]:
    """The rate of the head in each epoch of a loop with two steps an epoch, in sections of the given sizes.

    The loop is saved and loaded again after `stop_after` steps.
    """
    loop, model, used, n = TrainingLoop(), model_for_training(), [], 0
    values = iter(ces)
    ce = 0.0
    while True:
        interrupted = False
        for section, epochs in enumerate(sizes):
            if not loop.begin(str(section)):
                continue
            loop.optimizer(model, recipe)
            for _, position in loop.steps(epochs, 2):
                if position == 0:
                    ce = next(values)
                # the mean over the epoch counts; L_BC, which is part of the loss, does not
                told = loop.step_done(torch.tensor(100.0 - n), torch.tensor(ce + (0.5 if position else -0.5)))
                used += [told.lr] if position == 0 else []
                n += 1
                if n == stop_after:
                    interrupted = True
                    break
            if interrupted:
                break
        if not interrupted:
            return used
        saved, loop = loop.state_dict(), TrainingLoop()
        loop.load_state_dict(saved, {})


@given(st.lists(st.sampled_from([1.0, 1.5, 2.0, 0.75]), min_size=24, max_size=24), st.data())
def test_rate_is_divided_by_three_after_five_epochs_without_a_better_cross_entropy(
    ces: list[float], data: st.DataObject
) -> None:
    """Also across sections, and through a restart after any step."""
    recipe = Recipe(lr=0.1, lr_schedule="patience")
    cuts = sorted(data.draw(st.lists(st.integers(0, 24), min_size=2, max_size=2)))
    sizes = [cuts[0], cuts[1] - cuts[0], 24 - cuts[1]]
    expected = pytest.approx(rates(ces, 0.1), rel=1e-12)
    assert scheduled(ces, recipe, sizes) == expected
    assert scheduled(ces, recipe, sizes, stop_after=data.draw(st.integers(1, 47))) == expected


def test_rate_stops_at_the_smallest_one() -> None:
    used = scheduled([1.0] * 60, Recipe(lr=0.1, lr_schedule="patience"), [20, 40])
    assert used == pytest.approx(rates([1.0] * 60, 0.1)) and len(set(used)) == 7
    assert 1e-4 <= used[-1] < 3e-4  # 0.1 / 3 ** 6


def test_rate_of_csf_falls_with_that_of_the_head() -> None:
    loop, model = TrainingLoop(), model_for_training()
    recipe = Recipe(lr=0.1, csf_lr=0.01, lr_schedule="patience")
    for section, ratio in (("I", 1), ("II", 3)):
        loop.begin(section)
        optimizer = loop.optimizer(model, recipe)
        assert [g["lr"] for g in optimizer.param_groups] == pytest.approx([0.01 / ratio, 0.1 / ratio])
        for _ in loop.steps(6, 1):
            loop.step_done(torch.tensor(1.0))
    assert [g["lr"] for g in optimizer.param_groups] == pytest.approx([0.01 / 9, 0.1 / 9])


def test_constant_rate_stays_constant() -> None:
    assert set(scheduled([1.0] * 40, Recipe(lr=0.07), [15, 25])) == {0.07}


# Learner state


def test_learner_state_holds_memory_head_and_known_classes(tmp_path: Path) -> None:
    model, memory, loop = model_for_training(), Memory(5, seed=0), TrainingLoop()
    model.grow(7)
    nn.init.normal_(model.head.weight)
    memory.add(torch.zeros(3, dtype=torch.long), torch.arange(3), lambda rows: {"x": torch.ones(len(rows), 1)})
    files.save(tmp_path / "a.safetensors", learner_state({"s": 1}, model, memory, {2, 0}, loop))
    state = files.load(tmp_path / "a.safetensors")
    assert state["settings"] == {"s": 1} and state["known"] == [0, 2]
    again, other = tiny_model(), Memory(5, seed=0)
    assert load_learner_state(state, again, other, TrainingLoop()) == {0, 2}
    assert_equal(dict(again.state_dict()), dict(model.state_dict()))
    assert again.n_classes == 7 and torch.equal(other["id"], memory["id"])


# Momentum over a frozen phase and of a single number, rates after a restart, an epoch without steps


def test_momentum_that_is_never_reset_outlives_a_phase_in_which_csf_is_frozen() -> None:
    lesson = Lesson(Recipe(), "never")
    lesson.learn()
    moving = lesson.loop.momentum_state()["csf.0.weight"].clone()
    lesson.loop.begin("I")
    lesson.model.freeze("csf")
    lesson.loop.optimizer(lesson.model, lesson.recipe)
    lesson.loop.begin("II")
    lesson.model.unfreeze("csf")
    lesson.loop.optimizer(lesson.model, lesson.recipe)
    assert torch.equal(lesson.loop.momentum_state()["csf.0.weight"], moving)


def test_rate_after_a_restart_is_the_same_to_the_last_bit() -> None:
    recipe = Recipe(lr=0.03, lr_schedule="patience")
    for stop in range(1, 60):
        assert scheduled([1.0] * 30, recipe, [30], stop) == scheduled([1.0] * 30, recipe, [30])


def test_momentum_of_a_single_number_is_restored() -> None:
    model, loop = model_for_training(), TrainingLoop("never")
    model.csf.register_parameter("scale", nn.Parameter(torch.tensor(1.0)))
    for section in ("I", "II"):
        loop.begin(section)
        optimizer = loop.optimizer(model, Recipe())
        sgd_step(optimizer, F.cross_entropy(model.tail(Z) * model.csf.scale, Y))  # type: ignore[operator]
    assert "csf.scale" in loop.momentum_state()


def test_epoch_without_steps_does_not_touch_the_schedule() -> None:
    loop, model = TrainingLoop(), model_for_training()
    loop.begin("III")
    loop.optimizer(model, Recipe(lr_schedule="patience"))
    assert list(loop.steps(1, 0)) == []
    assert loop.best_ce == float("inf")


@pytest.mark.parametrize("wrong", [{"section": "nonsense"}, {"epoch": 99}])
def test_a_saved_position_that_cannot_be_gets_a_sentence(wrong: dict[str, Any]) -> None:
    loop = TrainingLoop()
    assert loop.begin("train")
    state = loop.state_dict() | wrong
    again = TrainingLoop()
    again.load_state_dict(state, {})
    with pytest.raises(CorruptState, match="The saved position is"):
        if again.begin("train"):
            again.steps(2, 3)
        again.finish()


def half_precision_tpc() -> TPC:
    model = tiny_model()
    model.accelerate(precision="float16")
    return TPC(model, Memory(12, seed=0))


def test_in_float16_the_loss_is_scaled_and_what_is_learned_stays_close() -> None:
    half, plain = half_precision_tpc(), TPC(tiny_model(), Memory(12, seed=0))
    half.loop.loss_scale = GradScaler("cpu", init_scale=256.0).state_dict()  # torch's default overflows here
    for learner in (half, plain):
        learner.learn(tiny_stream().experiences[0], FIRST)
    assert half.state_dict()["loop"]["loss_scale"]["scale"] == 256
    assert not torch.equal(half.model.head.weight, plain.model.head.weight)
    torch.testing.assert_close(half.model.head.weight, plain.model.head.weight, rtol=0.05, atol=0.01)


def test_a_gradient_that_overflows_moves_nothing_and_the_scale_falls_for_good() -> None:
    learner = half_precision_tpc()
    learner.model.grow(2)
    optimizer = learner.loop.optimizer(learner.model, FIRST)
    before = learner.model.head.weight.clone()
    loss = learner.model.tail(learner.model.encode(torch.full((4, 3, 6, 6), 255.0))).sum()
    sgd_step(optimizer, loss * float("inf"))
    assert torch.equal(learner.model.head.weight, before)
    fallen = learner.state_dict()["loop"]["loss_scale"]
    again = half_precision_tpc()
    again.loop.load_state_dict(learner.loop.state_dict(), {})
    again.loop.optimizer(again.model, FIRST)
    assert again.state_dict()["loop"]["loss_scale"] == fallen and fallen["scale"] == 2.0**15
