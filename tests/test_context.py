"""A context belongs to one lesson or run: two of them in one process never meet."""

from __future__ import annotations

import copy
import gc
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Barrier

import pytest
import torch
from torch import Tensor, nn

from triphase import TPC, Experience, Memory, Recipe, run
from triphase.bench.run import Report
from triphase.budget import Budget
from triphase.context import MAX_PREPARED, Context
from triphase.learners import Anchored, BiC, Learner, Step, Tick
from triphase.models.folding import folded
from triphase.testing import FIRST, REST, tiny_model, tiny_stream

IDS = torch.tensor([7, 8, 9])
Z = torch.arange(6.0).view(3, 2, 1)


def test_latents_are_found_by_id_also_a_part_of_them() -> None:
    context, llf = Context(), tiny_model().llf
    with context.reuse_latents():
        context.keep_latents(llf, IDS, Z)
        found = context.find_latents(llf, torch.tensor([9, 7]), 1, torch.float32)
        assert found is not None and torch.equal(found, Z[[2, 0], :1])
        assert context.find_latents(llf, torch.tensor([9, 6]), 1, torch.float32) is None, "an unknown image"
        assert context.find_latents(llf, IDS, 3, torch.float32) is None, "more views"
        assert context.find_latents(llf, IDS, 1, torch.float16) is None, "another precision"
        assert context.find_latents(tiny_model().llf, IDS, 1, torch.float32) is None, "another network"
        with torch.no_grad():
            next(llf.parameters()).add_(1)
        assert context.find_latents(llf, IDS, 1, torch.float32) is None, "the network has changed"


def test_latents_are_reused_inside_the_outermost_block_and_nowhere_else() -> None:
    context, llf = Context(), tiny_model().llf
    context.keep_latents(llf, IDS, Z)
    assert context.find_latents(llf, IDS, 2, torch.float32) is None
    with context.reuse_latents():
        with context.reuse_latents():
            context.keep_latents(llf, IDS, Z)
        assert context.find_latents(llf, IDS, 2, torch.float32) is not None
        assert Context().find_latents(llf, IDS, 2, torch.float32) is None
    assert context.find_latents(llf, IDS, 2, torch.float32) is None
    with pytest.raises(ValueError), context.reuse_latents():
        context.keep_latents(llf, IDS, Z)
        raise ValueError
    assert context.find_latents(llf, IDS, 2, torch.float32) is None


def replace_weight(llf: nn.Module) -> None:
    convolution = llf.get_submodule("1")
    convolution.weight = nn.Parameter(convolution.get_parameter("weight").detach().clone())


def test_a_block_is_prepared_once_until_it_changes() -> None:
    context, llf = Context(), tiny_model().llf
    calls: list[nn.Module] = []

    def prepare() -> nn.Module:
        calls.append(folded(llf))
        return calls[-1]

    one = context.prepared(llf, prepare)
    assert context.prepared(llf, prepare) is one and len(calls) == 1
    for change in (
        lambda: next(llf.parameters()).add_(0),  # whatever writes to a tensor, as optimisers do
        lambda: llf.load_state_dict(tiny_model().llf.state_dict()),
        lambda: next(b for name, b in llf.named_buffers() if name.endswith("running_mean")).add_(1),
        lambda: replace_weight(llf),
    ):
        with torch.no_grad():
            change()
        n = len(calls)
        context.prepared(llf, prepare)
        assert len(calls) == n + 1


def test_a_block_in_use_stays_prepared_while_others_come_and_go() -> None:
    context, llf = Context(), tiny_model().llf
    form = context.prepared(llf, lambda: folded(llf))
    for _ in range(3 * MAX_PREPARED):
        other = tiny_model().llf
        context.prepared(other, lambda other=other: folded(other))  # type: ignore[misc]
        assert context.prepared(llf, lambda: folded(llf)) is form


def test_a_copy_of_a_learner_works_in_the_same_context() -> None:
    learner = TPC(tiny_model(), Memory(12))
    assert copy.deepcopy(learner).context is learner.context
    assert TPC(tiny_model(), None).context is not learner.context


@dataclass(frozen=True)
class Job:
    """A run that differs from another one in learner, rate and budget, and takes as many steps."""

    make: Callable[..., Learner]
    lr: float
    budget: int

    def run(self, out: Path, latents: Path | None = None, barrier: Barrier | None = None) -> Result:
        """Learn a stream; with a barrier, step by step beside another run."""
        context = Context(Budget(self.budget), latents)
        learner = self.make(tiny_model(), Memory(12), seed=1, context=context)
        learn = learner.learn

        def in_step(experience: Experience, recipe: Recipe, tick: Tick) -> None:
            def both(step: Step) -> None:
                if barrier is not None:
                    barrier.wait(60)
                tick(step)

            learn(experience, recipe, both)

        vars(learner)["learn"] = in_step
        rest = replace(REST, lr=self.lr)
        report = run(learner, tiny_stream(), first=FIRST, rest=rest, out=out, save_every=0)
        return Result(
            {name: tensor.clone() for name, tensor in learner.model.state_dict().items()}, report, context
        )


@dataclass(frozen=True)
class Result:
    weights: dict[str, Tensor]
    report: Report
    context: Context


def test_two_runs_in_two_threads_give_what_they_give_one_after_the_other(tmp_path: Path) -> None:
    jobs = [Job(TPC, 0.02, 1 << 20), Job(Anchored, 0.03, 0)]
    alone = [job.run(tmp_path / f"alone-{i}") for i, job in enumerate(jobs)]
    assert not torch.equal(alone[0].weights["head.weight"], alone[1].weights["head.weight"])
    barrier, latents = (
        Barrier(2),
        tmp_path / "latents",
    )  # both also find each other's latents, or write them at once
    with ThreadPoolExecutor(2) as pool:
        begun = [pool.submit(job.run, tmp_path / f"beside-{i}", latents, barrier) for i, job in enumerate(jobs)]
        beside = [one.result() for one in begun]
    for found, expected in zip(beside, alone, strict=True):
        assert found.weights.keys() == expected.weights.keys()
        assert all(torch.equal(found.weights[name], tensor) for name, tensor in expected.weights.items())
        assert found.report.accuracy == expected.report.accuracy
        assert found.report.images == expected.report.images == found.context.stopwatch.images
        assert 0 < sum(found.report.part_seconds.values()) == pytest.approx(found.report.train_seconds)
    gc.collect()
    assert beside[1].context.budget.used == 0, "this one is allowed nothing"
    assert beside[0].context.budget.used <= 1 << 20


def test_runs_that_share_nothing_leave_no_trace_in_each_others_stopwatch(tmp_path: Path) -> None:
    idle = Context()
    learner = TPC(tiny_model(), Memory(12), context=idle)
    Job(BiC, 0.02, 1 << 20).run(tmp_path / "run")
    assert idle.stopwatch.images == 0 and sum(idle.stopwatch.seconds.values()) == 0
    assert learner.context is idle and idle.budget.used == 0
