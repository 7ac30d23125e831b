"""Grids over learners, hyper-parameters and class orders, as the paper searched them (App. C)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, Literal

from triphase.bench.benchmarks import Benchmark, find
from triphase.bench.learners import learner_spec, own_options
from triphase.bench.run.options import RunOptions
from triphase.bench.run.setup import scaled
from triphase.bench.sweep.scheduler import Cell, Result, Row, measured, reasons, with_first
from triphase.errors import InvalidValue

Setting = dict[str, Any]  # lr and options of the learner, by name
Search = Literal["paper", "lr", "all"]


def grid(
    benchmark: Benchmark, learner: str, search: Search, lrs: Sequence[float] = (), *, scale: float = 1.0
) -> list[Setting]:
    """The settings of a learner that are tried; one, and empty, where there is nothing to search.

    paper: learning rates by the learner's own hyper-parameters; lr: learning rates alone; all: the paper's and what
    the rivals' papers and code disagree on (SPEC 9.5). `lrs` replaces the benchmark's learning rates.

    >>> [len(grid(find("core50-41"), name, "paper")) for name in ("tpc", "ar1", "bic", "derpp")]
    [5, 5, 15, 30]
    """
    kind = learner_spec(learner)
    if kind.lr == "unused" or (kind.lr == "if asked" and search != "lr"):
        return [{}]
    axes: dict[str, Sequence[Any]] = {"lr": tuple(lrs) or benchmark.lr_grid}
    if search != "lr":
        axes |= benchmark.grids.get(learner, {})
    if search == "all":
        axes |= kind.open_choices
    if "stage2_epochs" in axes:  # part of BiC's schedule; short ones may fall together
        axes["stage2_epochs"] = list(dict.fromkeys(scaled(n, scale, least=3) for n in axes["stage2_epochs"]))
    return [dict(zip(axes, values, strict=True)) for values in product(*axes.values())]


@dataclass(frozen=True)
class Sweep:
    """Per learner, the grid on the first order, chosen by AMCA; then the choice on the other orders."""

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
        for option, _ in self.own:
            if not any(option in own_options(learner) for learner in self.learners):
                raise InvalidValue(f"None of {', '.join(self.learners)} has an option {option}.")

    def rows(self) -> list[Row]:
        """The grid and the test runs of every learner on every benchmark."""
        rows = []
        for benchmark, learner in product(self.benchmarks, self.learners):
            for setting in self.settings(benchmark, learner):
                words = " ".join(f"{name} {value}" for name, value in setting.items())
                rows.append(Row(benchmark, learner, f"order {self.orders[0]} {words}".rstrip()))
            for order in self.orders[1:]:
                rows.append(Row(benchmark, learner, f"order {order} with the setting chosen"))
        return rows

    def cells(self, results: Mapping[Cell, Result]) -> list[Cell]:
        """Grids first; test runs of a learner once its whole grid is done."""
        cells: dict[Cell, None] = {}
        for benchmark, learner in product(self.benchmarks, self.learners):
            for setting in self.settings(benchmark, learner):
                cells |= dict.fromkeys(self._with_first(benchmark, learner, self.orders[0], setting))
        for benchmark, learner in product(self.benchmarks, self.learners):
            chosen = self.chosen(benchmark, learner, results)
            if chosen is not None:
                for order in self.orders[1:]:
                    cells |= dict.fromkeys(self._with_first(benchmark, learner, order, chosen))
        return list(cells)

    def settings(self, benchmark: str, learner: str) -> list[Setting]:
        """What is tried of a learner on a benchmark."""
        lrs = self.lrs or (() if self.base.lr is None else (self.base.lr,))
        given = {name for name, _ in self.own}
        tried = grid(find(benchmark), learner, self.search, lrs, scale=self.base.epochs_scale)
        unique = [{name: value for name, value in setting.items() if name not in given} for setting in tried]
        return [setting for i, setting in enumerate(unique) if setting not in unique[:i]]

    def chosen(self, benchmark: str, learner: str, results: Mapping[Cell, Result]) -> Setting | None:
        """The setting with the highest AMCA on the first order; None until all of them were tried."""
        settings = self.settings(benchmark, learner)
        found = [results.get(self.cell(benchmark, learner, self.orders[0], setting)) for setting in settings]
        amca = [result.amca for result in found if result is not None]
        return settings[amca.index(max(amca))] if len(amca) == len(settings) else None

    def cell(self, benchmark: str, learner: str, order: int, setting: Setting) -> Cell:
        """One run of a learner."""
        return self._with_first(benchmark, learner, order, setting)[-1]

    def document(self, results: Mapping[Cell, Result], failed: Mapping[Cell, str]) -> dict[str, Any]:
        """What was tried, what was chosen, and mean and standard deviation over the other orders, if there are."""
        benchmarks: dict[str, Any] = {}
        for benchmark, learner in product(self.benchmarks, self.learners):
            chosen = self.chosen(benchmark, learner, results)
            tried = []
            for setting in self.settings(benchmark, learner):
                where = self.cell(benchmark, learner, self.orders[0], setting)
                tried.append({"setting": setting, **measured(self.out, where, results)})
            tests = []
            for order in self.orders[1:] if chosen is not None else ():
                where = self.cell(benchmark, learner, order, chosen or {})
                tests.append({"order": order, **measured(self.out, where, results)})
            only = [t for t in tried if t["setting"] == chosen] if len(self.orders) == 1 else []
            entry = {"chosen": chosen, "grid": tried, "tests": tests, **summary(tests or only)}
            benchmarks.setdefault(benchmark, {})[learner] = entry
        return {
            "orders": list(self.orders),
            "grid": self.search,
            "runs": len(self.rows()),
            "benchmarks": benchmarks,
            "failed": reasons(self.out, failed),
        }

    def _with_first(self, benchmark: str, learner: str, order: int, setting: Setting) -> list[Cell]:
        own = {name: value for name, value in self.own if name in own_options(learner)}
        own |= {name: value for name, value in setting.items() if name != "lr"}
        options = replace(
            self.base,
            learner=learner,
            order=order,
            lr=setting.get("lr", self.base.lr),
            learner_options=tuple(own.items()),
        )
        return with_first(self.out, find(benchmark), options)


def summary(tests: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, float | None]]:
    """Mean and standard deviation (of a sample) of what was measured; None where there is nothing to average."""
    means: dict[str, dict[str, float | None]] = {}
    for name in Result._fields:
        values = [test[name] for test in tests if test[name] is not None]
        means[name] = {
            "mean": fmean(values) if values else None,
            "std": stdev(values) if len(values) > 1 else None,
        }
    return means
