"""Runs sorted into what may be averaged: one benchmark, one learner, one setting."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from triphase.bench import metrics
from triphase.bench.learners import LEARNERS
from triphase.bench.report import paper
from triphase.bench.report.load import Run, finished_runs
from triphase.bench.report.titles import learner_title, own_settings, rank, title_of
from triphase.bench.run.results import Report
from triphase.bench.sweep.ablation import FULL, MORE, PAPER
from triphase.errors import Mismatch
from triphase.learners import TPC

PER_RUN = {"order", "seed", "memory.seed", "stream", "threads"}  # what may differ between runs of one average
DEFAULTS = {name: parameter.default for name, parameter in inspect.signature(TPC).parameters.items()}
ABLATIONS = {frozenset(change.items()): name for name, change in (PAPER | MORE).items() if name != FULL}
ABLATED = sorted({name for change in ABLATIONS for name, _ in change} & DEFAULTS.keys() | {"empty_phase1"})
TRAINS_ALL = "llf learns too"


@dataclass(frozen=True)
class Entry:
    """What one cell of a table averages: runs that differ in class order and seed only."""

    benchmark: str
    learner: str
    replay: bool  # False: a learner that can replay, run without a memory
    change: str  # an ablation, in words; empty for the learner as it is
    runs: tuple[Run, ...]  # by class order and seed

    @property
    def title(self) -> str:
        """The learner, and what is special about it."""
        return title_of(self.learner, self.change, self.replay)

    @property
    def settings(self) -> dict[str, Any]:
        """Of the first run; the others share all that matters."""
        return self.runs[0].settings

    @property
    def orders(self) -> list[int]:
        """The class orders that were run."""
        return sorted({run.occasion[0] for run in self.runs})

    @property
    def compared(self) -> bool:
        """It belongs in the main tables: no ablation, with its memory."""
        return self.replay and self.change in ("", TRAINS_ALL)

    def values(self, metric: str) -> list[float]:
        """One number per run; none where the metric means nothing (joint training has no curve to average)."""
        if metric in ("amca", "forgetting") and self.learner == "joint":
            return []
        values = [MEASURES[metric](run.report) for run in self.runs]
        return [value for value in values if not math.isnan(value)]


def _forgetting(report: Report) -> float:
    return float(metrics.forgetting(report.matrix).nanmean())


MEASURES: dict[str, Callable[[Report], float]] = {
    "amca": lambda report: report.amca,
    "final": lambda report: report.final_accuracy,
    "time": lambda report: report.train_seconds,
    "memory": lambda report: float(report.memory_bytes),
    "forgetting": _forgetting,
}


@dataclass(frozen=True)
class Gathered:
    """Everything a report is made of."""

    entries: list[Entry]
    unfinished: list[Path]

    def of(self, benchmark: str) -> list[Entry]:
        """The entries of one benchmark."""
        return [entry for entry in self.entries if entry.benchmark == benchmark]

    def get(self, benchmark: str, learner: str, replay: bool = True, change: str = "") -> Entry | None:
        """One entry, if it was run."""
        wanted = (benchmark, learner, replay, change)
        found = (e for e in self.entries if (e.benchmark, e.learner, e.replay, e.change) == wanted)
        return next(found, None)

    @property
    def benchmarks(self) -> list[str]:
        """Those that were run: the paper's first, then by name."""
        found = {entry.benchmark for entry in self.entries}
        return [name for name in paper.BENCHMARKS if name in found] + sorted(found - set(paper.BENCHMARKS))


def gather(paths: Sequence[Path]) -> Gathered:
    """Read runs, or folders of runs, and sort them; runs that must not be averaged are refused by name."""
    runs, unfinished = finished_runs(paths)
    entries = sorted(_grouped(runs), key=lambda entry: (rank(entry.learner), not entry.replay, entry.change))
    return Gathered(entries, unfinished)


def _grouped(runs: Iterable[Run]) -> list[Entry]:
    runs = list(runs)
    replaying = {name for name, kind in LEARNERS.items() if kind.memory == "optional"}
    replaying |= {run.learner for run in runs if run.settings.get("memory")}
    usual = {benchmark: _usual(benchmark, runs) for benchmark in {run.benchmark for run in runs}}
    groups: dict[tuple[str, str, bool, str], list[Run]] = {}
    for run in runs:
        replay = bool(run.settings.get("memory")) or run.learner not in replaying
        change = change_of(run.settings, usual[run.benchmark])
        groups.setdefault((run.benchmark, run.learner, replay, change), []).append(run)
    return [Entry(*key, tuple(_alike(members))) for key, members in groups.items()]


def _usual(benchmark: str, runs: Iterable[Run]) -> tuple[float, str]:
    """Weight decay and normalisation of a benchmark: its own, or what its runs have if none has that."""
    here = [run.settings for run in runs if run.benchmark == benchmark]
    found = [(settings["rest"]["weight_decay"], settings.get("norm", "bn")) for settings in here]
    known = own_settings(benchmark)
    own = (known.rest.weight_decay, "bn") if known is not None else found[0]
    return own if own in found else found[0]


def change_of(settings: Mapping[str, Any], usual: tuple[float, str]) -> str:
    """What makes a run an ablation of its learner, in words; empty if it is none."""
    learner = settings.get("learner")
    if learner != "tpc":
        descends = learner not in LEARNERS or LEARNERS[learner].lr != "unused"
        return TRAINS_ALL if descends and settings["rest"]["trainable"] == "all" else ""
    changed = {name: settings[name] for name in ABLATED if settings.get(name, DEFAULTS[name]) != DEFAULTS[name]}
    found = (settings["rest"]["weight_decay"], settings.get("norm", "bn"))
    names = ("weight decay", "norm")
    changed |= {name: value for name, value, own in zip(names, found, usual, strict=True) if value != own}
    described = ", ".join(f"{name} = {value}" for name, value in changed.items())
    return ABLATIONS.get(frozenset(changed.items()), described)


def _alike(runs: list[Run]) -> list[Run]:
    """The runs by class order and seed, one each; refuses to average different settings or results."""
    runs = sorted(runs, key=lambda run: run.occasion)
    name = f"{learner_title(runs[0].learner)} on {runs[0].benchmark}"
    for first, run in ((runs[0], run) for run in runs[1:]):
        wanted, found = (flat(r.settings) | {"evaluated after": r.report.evaluated_after} for r in (first, run))
        differing = [key for key in wanted | found if key not in PER_RUN and wanted.get(key) != found.get(key)]
        if differing:
            what = "; ".join(f"{key} {wanted.get(key)!r} and {found.get(key)!r}" for key in differing[:3])
            what += f"; and {len(differing) - 3} more" if len(differing) > 3 else ""
            raise Mismatch(
                f"{first.path} and {run.path} are runs of {name} with different settings: {what}. "
                f"They are not averaged; make a report of each."
            )
        if odd := set(first.report.names) ^ set(run.report.names):
            raise Mismatch(
                f"{first.path} and {run.path} are runs of {name} over different classes: only one of them knows "
                f"{min(odd)!r}. They are not averaged; make a report of each."
            )
    unique: dict[tuple[int, int], Run] = {}
    for run in runs:
        before = unique.setdefault(run.occasion, run)
        if before.report.accuracy != run.report.accuracy:
            raise Mismatch(
                f"{before.path} and {run.path} are both {name}, order {run.occasion[0]}, seed {run.occasion[1]}, "
                f"but their results differ; leave one of them out."
            )
    return list(unique.values())


def flat(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Settings with dotted names.

    >>> flat({"rest": {"lr": 0.1}, "order": 0})
    {'rest.lr': 0.1, 'order': 0}
    """
    result: dict[str, Any] = {}
    for name, value in settings.items():
        result |= flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {prefix + name: value}
    return result
