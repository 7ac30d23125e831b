"""What each part of TPC is worth: the paper's ablation, and the choices that the paper leaves open (SPEC 8)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any, Literal

from triphase import state as files
from triphase.bench.benchmarks import Benchmark, find
from triphase.bench.run.options import RunOptions
from triphase.bench.sweep.grid import summary
from triphase.bench.sweep.scheduler import Cell, Result, Row, cell, measured, reasons
from triphase.errors import BadData

Which = Literal["both", "replay", "no-replay"]
Change = Mapping[str, Any]  # of TPC's options, or of `norm` and `weight_decay`

FULL = "full"
PAPER: dict[str, Change] = {
    FULL: {},
    "no bias correction": {"bc": "none"},
    "no gradient masking": {"masking": "none"},
    "no Phase III": {"share_3": 0},
}
MORE: dict[str, Change] = {
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
    """The columns of the table, for a weight decay other than the benchmark's own if one is given.

    >>> list(columns(find("core50-41"), replay=False))
    ['full', 'no bias correction', 'no gradient masking']
    """
    chosen = {name: change for name, change in PAPER.items() if replay or name != "no Phase III"}
    if more:
        chosen |= MORE
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


@dataclass(frozen=True)
class Ablation:
    """The paper's protocol: with replay at the rate of the main search, without it after a search of its own."""

    out: Path
    benchmarks: tuple[str, ...]
    lr: Mapping[str, float]  # with replay, by benchmark
    orders: tuple[int, ...] = (0, 1, 2, 3)
    base: RunOptions = RunOptions()
    which: Which = "both"
    more: bool = False
    lrs: tuple[float, ...] = ()  # searched without replay; empty: the benchmark's own
    tested: tuple[int, ...] = field(init=False)  # the orders of the table: all but the one of the search

    def __post_init__(self) -> None:
        for name in self.benchmarks:
            find(name)
        object.__setattr__(self, "tested", self.orders[1:] or self.orders)

    def rows(self) -> list[Row]:
        """The search without replay, and every column on every order of the table."""
        rows = []
        for benchmark, replay in self._parts():
            of = "with replay" if replay else "without replay"
            rate = f"lr {self.lr[benchmark]:g}" if replay else "with the rate chosen"
            if not replay:
                search = (f"order {self.orders[0]} lr {lr:g} {of}: {FULL}" for lr in self._lrs(benchmark))
                rows += [Row(benchmark, "tpc", text) for text in search]
            for name, order in product(self._columns(benchmark, replay), self.tested):
                if replay or name != FULL or order != self.orders[0]:
                    rows.append(Row(benchmark, "tpc", f"order {order} {rate} {of}: {name}"))
        return rows

    def cells(self, results: Mapping[Cell, Result]) -> list[Cell]:
        """With replay everything at once; without it first the search, then the columns."""
        cells: dict[Cell, None] = {}
        for benchmark, replay in self._parts():
            if not replay:
                for lr in self._lrs(benchmark):
                    cells[self.cell(benchmark, replay, self.orders[0], lr, {})] = None
            rate = self.rate(benchmark, replay, results)
            if rate is not None:
                for change, order in product(self._columns(benchmark, replay).values(), self.tested):
                    cells[self.cell(benchmark, replay, order, rate, change)] = None
        return list(cells)

    def rate(self, benchmark: str, replay: bool, results: Mapping[Cell, Result]) -> float | None:
        """The learning rate of the columns; None while the search without replay is not done."""
        if replay:
            return self.lr[benchmark]
        lrs = self._lrs(benchmark)
        found = [results.get(self.cell(benchmark, replay, self.orders[0], lr, {})) for lr in lrs]
        amca = [result.amca for result in found if result is not None]
        return lrs[amca.index(max(amca))] if len(amca) == len(lrs) else None

    def cell(self, benchmark: str, replay: bool, order: int, lr: float, change: Change) -> Cell:
        """One run of TPC with a change."""
        outer = {name: value for name, value in change.items() if name in ("norm", "weight_decay")}
        own = dict(self.base.learner_options) | {name: value for name, value in change.items() if name not in outer}
        options = replace(self.base, order=order, lr=lr, learner_options=tuple(own.items()), **outer)
        if not replay:
            options = replace(options, replay="none")
        return cell(self.out, find(benchmark), options)

    def document(self, results: Mapping[Cell, Result], failed: Mapping[Cell, str]) -> dict[str, Any]:
        """Every column's mean and standard deviation over the orders of the table."""
        benchmarks: dict[str, Any] = {}
        for benchmark, replay in self._parts():
            rate = self.rate(benchmark, replay, results)
            entry: dict[str, Any] = {"lr": rate, "columns": {}}
            if not replay:
                tried = [(lr, self.cell(benchmark, replay, self.orders[0], lr, {})) for lr in self._lrs(benchmark)]
                entry["grid"] = [{"setting": {"lr": lr}, **measured(self.out, c, results)} for lr, c in tried]
            for name, change in self._columns(benchmark, replay).items():
                cells = [(o, self.cell(benchmark, replay, o, rate, change)) for o in self.tested] if rate else []
                tests = [{"order": order, **measured(self.out, c, results)} for order, c in cells]
                entry["columns"][name] = {"tests": tests, **summary(tests)}
            benchmarks.setdefault(benchmark, {})["replay" if replay else "no replay"] = entry
        return {
            "orders": list(self.orders),
            "runs": len(self.rows()),
            "benchmarks": benchmarks,
            "failed": reasons(self.out, failed),
        }

    def _parts(self) -> list[tuple[str, bool]]:
        kinds = {"both": (True, False), "replay": (True,), "no-replay": (False,)}[self.which]
        return list(product(self.benchmarks, kinds))

    def _lrs(self, benchmark: str) -> tuple[float, ...]:
        return self.lrs or find(benchmark).lr_grid

    def _columns(self, benchmark: str, replay: bool) -> dict[str, Change]:
        """Those that differ from the full algorithm as it is run here."""
        decay = self.base.weight_decay
        found = columns(find(benchmark), replay=replay, more=self.more, weight_decay=decay)
        full = self.cell(benchmark, replay, 0, 1.0, {})
        return {n: c for n, c in found.items() if n == FULL or self.cell(benchmark, replay, 0, 1.0, c) != full}
