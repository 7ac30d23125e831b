"""Grid search over learners, hyper-parameters and class orders, as the paper did it (App. C)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any, Literal

from triphase.bench.benchmarks import Benchmark, find
from triphase.bench.learners import learner_options, learner_spec
from triphase.bench.run.options import RunOptions
from triphase.bench.sweep.jobs import (
    Job,
    PlannedRun,
    Result,
    best,
    mean_and_std,
    record,
    record_failed,
    with_shared_first,
)
from triphase.errors import InvalidValue

Setting = dict[str, Any]  # lr and options of the learner, by name
Search = Literal["paper", "lr", "all"]


def grid(benchmark: Benchmark, learner: str, search: Search, lrs: Sequence[float] = ()) -> list[Setting]:
    """The settings of a learner that are tried; one, and empty, where there is nothing to search.

    paper: learning rates times the learner's own hyper-parameters; lr: learning rates alone; all: the paper's and
    the options on which the learners' papers and code disagree. `lrs` replaces the benchmark's rates.

    >>> [len(grid(find("core50-41"), name, "paper")) for name in ("tpc", "ar1", "bic", "derpp")]
    [5, 5, 15, 30]
    """
    spec = learner_spec(learner)
    if spec.lr == "unused" or (spec.lr == "if asked" and search != "lr"):
        return [{}]
    axes: dict[str, Sequence[Any]] = {"lr": tuple(lrs) or benchmark.lr_grid}
    if search != "lr":
        axes |= benchmark.grids.get(learner, {})
    if search == "all":
        axes |= spec.open_choices
    return [dict(zip(axes, values, strict=True)) for values in product(*axes.values())]


def parse_rates(text: str | None) -> tuple[float, ...]:
    """Learning rates as --lr-grid takes them.

    >>> parse_rates("0.1,0.03"), parse_rates(None)
    ((0.1, 0.03), ())
    """
    try:
        rates = tuple(float(word) for word in text.split(",")) if text is not None else ()
    except ValueError:
        rates = (0.0,)
    if any(not 0 < rate < float("inf") for rate in rates):
        raise InvalidValue(f"--lr-grid takes learning rates above 0 such as 0.1,0.03,0.01, got {text!r}.")
    return tuple(dict.fromkeys(rates))


@dataclass(frozen=True)
class Sweep:
    """A Schedule: per learner, the grid on the first order, chosen by AMCA; then the choice on the other orders."""

    out: Path
    benchmarks: tuple[str, ...]
    learners: tuple[str, ...]
    orders: tuple[int, ...] = (0, 1, 2, 3)
    base: RunOptions = RunOptions()
    own: tuple[tuple[str, Any], ...] = ()  # options for those learners that have them
    search: Search = "paper"
    lrs: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        for name in self.benchmarks:
            find(name)
        for learner in self.learners:
            learner_spec(learner)
        for option, _ in self.own:
            if not any(option in learner_options(learner) for learner in self.learners):
                raise InvalidValue(f"None of {', '.join(self.learners)} has an option {option}.")

    def planned(self) -> list[PlannedRun]:
        """The grid and the test runs of every learner on every benchmark."""
        planned = []
        for benchmark, learner in product(self.benchmarks, self.learners):
            for setting in self.settings(benchmark, learner):
                words = " ".join(f"{name} {value}" for name, value in setting.items())
                planned.append(PlannedRun(benchmark, learner, f"order {self.orders[0]} {words}".rstrip()))
            for order in self.orders[1:]:
                planned.append(PlannedRun(benchmark, learner, f"order {order} with the setting chosen"))
        return planned

    def jobs(self, results: Mapping[Job, Result]) -> list[Job]:
        """Grids first; test runs of a learner once its whole grid is done."""
        jobs: dict[Job, None] = {}
        for benchmark, learner in product(self.benchmarks, self.learners):
            for setting in self.settings(benchmark, learner):
                jobs |= dict.fromkeys(self._with_first(benchmark, learner, self.orders[0], setting))
        for benchmark, learner in product(self.benchmarks, self.learners):
            chosen = self.chosen(benchmark, learner, results)
            if chosen is not None:
                for order in self.orders[1:]:
                    jobs |= dict.fromkeys(self._with_first(benchmark, learner, order, chosen))
        return list(jobs)

    def settings(self, benchmark: str, learner: str) -> list[Setting]:
        """The settings of a learner that are tried on a benchmark."""
        lrs = self.lrs or (() if self.base.lr is None else (self.base.lr,))
        given = {name for name, _ in self.own}
        tried = grid(find(benchmark), learner, self.search, lrs)
        unique = [{name: value for name, value in setting.items() if name not in given} for setting in tried]
        return [setting for i, setting in enumerate(unique) if setting not in unique[:i]]

    def chosen(self, benchmark: str, learner: str, results: Mapping[Job, Result]) -> Setting | None:
        """The setting with the highest AMCA on the first order, as `best` chooses it."""
        settings = self.settings(benchmark, learner)
        return best(
            settings, [results.get(self.job(benchmark, learner, self.orders[0], each)) for each in settings]
        )

    def job(self, benchmark: str, learner: str, order: int, setting: Setting) -> Job:
        """One run of a learner."""
        return self._with_first(benchmark, learner, order, setting)[-1]

    def summary(self, results: Mapping[Job, Result], failed: Mapping[Job, str]) -> dict[str, Any]:
        """What was tried, what was chosen, and mean and standard deviation over the other orders, if there are."""
        benchmarks: dict[str, Any] = {}
        for benchmark, learner in product(self.benchmarks, self.learners):
            benchmarks.setdefault(benchmark, {})[learner] = self._learner_summary(benchmark, learner, results)
        return {
            "orders": list(self.orders),
            "grid": self.search,
            "runs": len(self.planned()),
            "benchmarks": benchmarks,
            "failed": record_failed(self.out, failed),
        }

    def _learner_summary(self, benchmark: str, learner: str, results: Mapping[Job, Result]) -> dict[str, Any]:
        chosen = self.chosen(benchmark, learner, results)
        tried = []
        for setting in self.settings(benchmark, learner):
            job = self.job(benchmark, learner, self.orders[0], setting)
            tried.append({"setting": setting, **record(self.out, job, results)})
        tests = []
        for order in self.orders[1:] if chosen is not None else ():
            job = self.job(benchmark, learner, order, chosen or {})
            tests.append({"order": order, **record(self.out, job, results)})
        averaged = tests or [t for t in tried if len(self.orders) == 1 and t["setting"] == chosen]
        return {"chosen": chosen, "grid": tried, "tests": tests, **mean_and_std(averaged)}

    def _with_first(self, benchmark: str, learner: str, order: int, setting: Setting) -> list[Job]:
        own = {name: value for name, value in self.own if name in learner_options(learner)}
        own |= {name: value for name, value in setting.items() if name != "lr"}
        options = replace(
            self.base,
            learner=learner,
            order=order,
            lr=setting.get("lr", self.base.lr),
            learner_options=tuple(own.items()),
        )
        return with_shared_first(self.out, find(benchmark), options)
