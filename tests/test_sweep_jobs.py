"""The jobs of a sweep."""

from __future__ import annotations

from dataclasses import replace

from sweep_results import OUT
from triphase.bench.benchmarks import find
from triphase.bench.learners import LEARNER_SPECS
from triphase.bench.run.options import RunOptions
from triphase.bench.sweep.jobs import Job, make_job, with_shared_first


def test_learners_of_plain_cross_entropy_share_the_first_experience() -> None:
    benchmark = find("core50-41")
    firsts: dict[str, Job | None] = {}
    for learner in LEARNER_SPECS:
        options = RunOptions(learner=learner, order=1, lr=0.02, memory=100)
        *first, own = with_shared_first(OUT, benchmark, options)
        firsts[learner] = first[0] if first else None
        assert own.options == replace(options, first_from=first[0].directory if first else None)
    shared = {learner for learner, first in firsts.items() if first is not None}
    assert shared == {"ar1", "derpp", "finetune", "replay"}
    (one,) = {firsts[learner] for learner in shared}
    assert one is not None and one.options == RunOptions(learner="finetune", order=1, lr=0.02, experiences=1)
    online = RunOptions(learner="derpp", learner_options=(("logits", "online"),))
    assert len(with_shared_first(OUT, benchmark, online)) == 1, "what is stored meanwhile cannot be shared"


def test_jobs_are_called_after_what_they_are() -> None:
    options = RunOptions(
        learner="derpp", order=2, lr=0.05, learner_options=(("alpha", 0.1),), replay="none", norm="brn"
    )
    where = make_job(OUT, find("cifar100:46/10-2"), options).directory
    assert where == OUT / "cifar100-46-10-2" / "derpp-order2-lr0.05-alpha=0.1-no-replay-brn"
