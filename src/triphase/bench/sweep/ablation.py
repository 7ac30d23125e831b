"""Ablations of TPC: the paper's, and the choices that the paper leaves open."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any, Literal

from triphase import state as files
from triphase.bench.benchmarks import Benchmark, find
from triphase.bench.run.options import RunOptions, option_infos
from triphase.bench.sweep.jobs import Job, PlannedRun, Result, best, make_job, mean_and_std, record, record_failed
from triphase.errors import BadData

Rows = Literal["both", "replay", "no-replay"]
Change = Mapping[str, Any]  # of options of TPC or of the run

FULL = "full"
PAPER_ABLATIONS: dict[str, Change] = {
    FULL: {},
    "no bias correction": {"bc": "none"},
    "no gradient masking": {"masking": "none"},
    "no Phase III": {"share_3": 0},
}
OPEN_CHOICES: dict[str, Change] = {
    "L_BC over all classes": {"bc_scope": "all"},
    "eps 1e-8": {"eps": 1e-8},
    "eps 1e-2": {"eps": 1e-2},
    "momentum never reset": {"reset_momentum": "never"},
    "batch renormalisation": {"norm": "brn"},
    "prediction over all classes": {"predict_over": "all"},
    "L_BC without Eq. 9": {"bc": "loss_only"},
    "Eq. 9 without L_BC": {"bc": "final_only"},
    "Eq. 9 after each step": {"bc": "explicit"},
    "single masking": {"masking": "single"},
    "group masking": {"masking": "group"},
}
WEIGHT_DECAY = 5e-4  # where the benchmark has none


def columns(
    benchmark: Benchmark, *, replay: bool, more: bool = False, weight_decay: float | None = None
) -> dict[str, Change]:
    """The columns of the table; `weight_decay` is that of the runs if it is not the benchmark's own.

    >>> list(columns(find("core50-41"), replay=False))
    ['full', 'no bias correction', 'no gradient masking']
    """
    chosen = {name: change for name, change in PAPER_ABLATIONS.items() if replay or name != "no Phase III"}
    if more:
        chosen |= OPEN_CHOICES
        decays = (benchmark.rest.weight_decay if weight_decay is None else weight_decay) > 0
        chosen["no weight decay" if decays else f"weight decay {WEIGHT_DECAY:g}"] = {
            "weight_decay": 0.0 if decays else WEIGHT_DECAY
        }
        if benchmark.repetition:
            chosen["Phase I without novel classes goes to Phase II"] = {"empty_phase1": "to_phase2"}
    return chosen


def chosen_lr(sweep: Path, benchmark: str) -> float:
    """The learning rate that a sweep chose for TPC."""
    path = sweep / "sweep.json"
    document = files.read_json(path) if path.exists() else {"benchmarks": {}}
    try:
        return float(document["benchmarks"][benchmark]["tpc"]["chosen"]["lr"])
    except (KeyError, TypeError) as error:
        raise BadData(
            f"{sweep} holds no finished search of TPC's learning rate on {benchmark}; "
            f"run `triphase bench sweep {benchmark} --learners tpc --out {sweep}`, or give --lr."
        ) from error


def replay_rates(benchmarks: Sequence[str], lr: float | None, sweep: Path | None, rows: Rows) -> dict[str, float]:
    """The learning rate with replay, by benchmark: the one given, that of a sweep, or the benchmark's own."""
    if sweep is not None and lr is None and rows != "no-replay":
        return {name: chosen_lr(sweep, name) for name in benchmarks}
    return {name: find(name).rest.lr if lr is None else lr for name in benchmarks}


@dataclass(frozen=True)
class Ablation:
    """A Schedule: with replay at the rate of the main search, without it after a search of its own."""

    out: Path
    benchmarks: tuple[str, ...]
    lr: Mapping[str, float]  # with replay, by benchmark
    orders: tuple[int, ...] = (0, 1, 2, 3)
    base: RunOptions = RunOptions()
    rows: Rows = "both"
    more: bool = False
    lrs: tuple[float, ...] = ()  # searched without replay; empty: the benchmark's own
    tested: tuple[int, ...] = field(init=False)  # the orders of the table: all but the one of the search

    def __post_init__(self) -> None:
        for name in self.benchmarks:
            find(name)
        object.__setattr__(self, "tested", self.orders[1:] or self.orders)

    def planned(self) -> list[PlannedRun]:
        """The search without replay, and every column on every order of the table."""
        planned = []
        for benchmark, replay in self._rows():
            of = "with replay" if replay else "without replay"
            rate = f"lr {self.lr[benchmark]:g}" if replay else "with the rate chosen"
            if not replay:
                search = (f"order {self.orders[0]} lr {lr:g} {of}: {FULL}" for lr in self._lrs(benchmark))
                planned += [PlannedRun(benchmark, "tpc", text) for text in search]
            for name, order in product(self._columns(benchmark, replay), self.tested):
                if replay or name != FULL or order != self.orders[0]:
                    planned.append(PlannedRun(benchmark, "tpc", f"order {order} {rate} {of}: {name}"))
        return planned

    def jobs(self, results: Mapping[Job, Result]) -> list[Job]:
        """With replay everything at once; without it first the search, then the columns."""
        jobs: dict[Job, None] = {}
        for benchmark, replay in self._rows():
            if not replay:
                for lr in self._lrs(benchmark):
                    jobs[self.job(benchmark, replay, self.orders[0], lr, {})] = None
            rate = self.rate(benchmark, replay, results)
            if rate is not None:
                for change, order in product(self._columns(benchmark, replay).values(), self.tested):
                    jobs[self.job(benchmark, replay, order, rate, change)] = None
        return list(jobs)

    def rate(self, benchmark: str, replay: bool, results: Mapping[Job, Result]) -> float | None:
        """The learning rate of the columns; None while the search without replay is not done."""
        if replay:
            return self.lr[benchmark]
        lrs = self._lrs(benchmark)
        return best(lrs, [results.get(self.job(benchmark, replay, self.orders[0], lr, {})) for lr in lrs])

    def job(self, benchmark: str, replay: bool, order: int, lr: float, change: Change) -> Job:
        """One run of TPC with a change."""
        of_run = {name: value for name, value in change.items() if name in option_infos()}
        own = self.base.own | {name: value for name, value in change.items() if name not in of_run}
        options = replace(self.base, order=order, lr=lr, learner_options=tuple(own.items()), **of_run)
        if not replay:
            options = replace(options, replay="none")
        return make_job(self.out, find(benchmark), options)

    def summary(self, results: Mapping[Job, Result], failed: Mapping[Job, str]) -> dict[str, Any]:
        """Every column's mean and standard deviation over the orders of the table."""
        benchmarks: dict[str, Any] = {}
        for benchmark, replay in self._rows():
            row = self._row_summary(benchmark, replay, results)
            benchmarks.setdefault(benchmark, {})["replay" if replay else "no replay"] = row
        return {
            "orders": list(self.orders),
            "runs": len(self.planned()),
            "benchmarks": benchmarks,
            "failed": record_failed(self.out, failed),
        }

    def _row_summary(self, benchmark: str, replay: bool, results: Mapping[Job, Result]) -> dict[str, Any]:
        rate = self.rate(benchmark, replay, results)
        row: dict[str, Any] = {"lr": rate, "columns": {}}
        if not replay:
            tried = [(lr, self.job(benchmark, replay, self.orders[0], lr, {})) for lr in self._lrs(benchmark)]
            row["grid"] = [{"setting": {"lr": lr}, **record(self.out, job, results)} for lr, job in tried]
        for name, change in self._columns(benchmark, replay).items():
            jobs = [(o, self.job(benchmark, replay, o, rate, change)) for o in self.tested] if rate else []
            tests = [{"order": order, **record(self.out, job, results)} for order, job in jobs]
            row["columns"][name] = {"tests": tests, **mean_and_std(tests)}
        return row

    def _rows(self) -> list[tuple[str, bool]]:
        """Benchmark, and with replay or without it."""
        replay = {"both": (True, False), "replay": (True,), "no-replay": (False,)}[self.rows]
        return list(product(self.benchmarks, replay))

    def _lrs(self, benchmark: str) -> tuple[float, ...]:
        return self.lrs or find(benchmark).lr_grid

    def _columns(self, benchmark: str, replay: bool) -> dict[str, Change]:
        """Those that differ from the full algorithm as it is run here."""
        decay = self.base.weight_decay
        found = columns(find(benchmark), replay=replay, more=self.more, weight_decay=decay)
        full = self.job(benchmark, replay, 0, 1.0, {})
        return {n: c for n, c in found.items() if n == FULL or self.job(benchmark, replay, 0, 1.0, c) != full}
