"""Times go to the part that took them, and to one stopwatch alone."""

import time
from collections.abc import Iterator

import pytest
import torch

from triphase.context import Context
from triphase.learners.sgd import SGD
from triphase.learners.training import sgd_step
from triphase.stopwatch import Stopwatch
from triphase.testing import tiny_images, tiny_model


class Clock:
    """A clock that goes on by one second whenever it is read, and by more where a test says so."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 1.0
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    one = Clock()
    monkeypatch.setattr(time, "perf_counter", one)
    return one


def test_time_is_added_to_its_part_also_when_something_fails(clock: Clock) -> None:
    stopwatch = Stopwatch()
    with stopwatch.time("data"):
        clock.now += 4
    with pytest.raises(ValueError), stopwatch.time("llf"):
        raise ValueError
    assert stopwatch.seconds == {"data": 5.0, "llf": 1.0, "csf": 0.0, "head": 0.0}


def test_waiting_is_timed_and_what_happens_in_between_is_not(clock: Clock) -> None:
    stopwatch = Stopwatch()

    def items() -> Iterator[int]:
        clock.now += 10
        yield 1
        clock.now += 10
        yield 2

    for _ in stopwatch.time_waiting("data", items()):
        clock.now += 1000
    assert stopwatch.seconds["data"] == 2 * 11 + 1  # the last time, it learns that there are no more


def test_what_another_process_spent_is_added_and_known_as_borrowed() -> None:
    stopwatch = Stopwatch()
    stopwatch.add_borrowed({"data": 2.0, "llf": 3.0})
    assert stopwatch.seconds == {"data": 2.0, "llf": 3.0, "csf": 0.0, "head": 0.0}
    assert stopwatch.borrowed == 5.0


def test_images_are_counted() -> None:
    stopwatch = Stopwatch()
    stopwatch.count(3)
    stopwatch.count(4)
    assert stopwatch.images == 7


@pytest.mark.parametrize(("csf_learns", "part"), [(True, "csf"), (False, "head")])
def test_a_backward_pass_is_of_csf_where_it_learns_but_for_the_time_of_the_head(
    csf_learns: bool, part: str, clock: Clock
) -> None:
    stopwatch = Stopwatch()
    with stopwatch.time_backward(csf_learns):
        stopwatch.seconds["head"] += 3  # as the hooks of `time_forward` do
        clock.now += 9
    assert stopwatch.seconds[part] + (3 if csf_learns else 0) == 10 and sum(stopwatch.seconds.values()) == 10


def test_passes_through_csf_and_head_are_timed_while_they_are_watched_and_no_longer(clock: Clock) -> None:
    stopwatch, model = Stopwatch(), tiny_model()
    z = model.encode(tiny_images().read(torch.arange(4))).detach()
    with stopwatch.time_forward(model.csf, model.head):
        loss = model.tail(z).square().sum()
        assert stopwatch.seconds["csf"] == stopwatch.seconds["head"] == 1.0
        loss.backward()
        assert stopwatch.seconds["head"] == 2.0, "its backward pass is timed, too"
    before = dict(stopwatch.seconds)
    model.tail(z).square().sum().backward()
    assert stopwatch.seconds == before
    hooks = [m._forward_hooks | m._forward_pre_hooks for m in (model.csf, model.head)]
    assert hooks == [{}, {}]


def test_hooks_are_removed_when_a_run_fails() -> None:
    stopwatch, model = Stopwatch(), tiny_model()
    with pytest.raises(ValueError), stopwatch.time_forward(model.csf, model.head):
        raise ValueError
    assert not model.csf._forward_hooks and not model.head._forward_pre_hooks


def test_two_stopwatches_that_watch_one_model_do_not_mix(clock: Clock) -> None:
    one, two, model = Stopwatch(), Stopwatch(), tiny_model()
    z = model.encode(tiny_images().read(torch.arange(4))).detach()
    with one.time_forward(model.csf, model.head):
        with two.time_forward(model.csf, model.head):
            model.tail(z)
        shared, before = dict(two.seconds), one.seconds["head"]
        model.tail(z)
    assert shared["head"] > 0 and two.seconds == shared, "the first to end is left alone"
    assert one.seconds["head"] == before + 1.0, "the other one goes on"


def test_a_step_is_timed_by_the_stopwatch_of_its_optimiser() -> None:
    context, other = Context(), Stopwatch()
    w = torch.ones(2, requires_grad=True)
    sgd_step(SGD([{"params": [w], "lr": 0.1, "weight_decay": 0.0}], 0.9, context), w.square().sum())
    assert context.stopwatch.seconds["head"] > 0 and sum(other.seconds.values()) == 0
