"""Groups finished runs that may be averaged: one benchmark, one learner, one setting."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from triphase.bench import metrics
from triphase.bench.learners import LEARNER_SPECS, is_joint
from triphase.bench.report import paper
from triphase.bench.report.ablated import TRAINS_ALL, ablation_title, usual_settings
from triphase.bench.report.load import FinishedRun, diverged_among, load_runs
from triphase.bench.report.titles import group_title, learner_title, rank
from triphase.bench.run.options import recorded
from triphase.bench.run.results import Report, flatten
from triphase.errors import Mismatch

AVERAGED = {*recorded("averaged"), "stream", "threads"}  # settings in which runs of one group may differ


@dataclass(frozen=True)
class Group:
    """Runs that are averaged: they differ in class order and seed alone."""

    benchmark: str
    learner: str
    replay: bool  # False: a learner that can replay, run without a memory
    change: str  # an ablation, in words; empty for the learner as it is
    runs: tuple[FinishedRun, ...]  # by class order and seed

    @property
    def title(self) -> str:
        """The learner, and what is special about it."""
        return group_title(self.learner, self.change, self.replay)

    @property
    def settings(self) -> dict[str, Any]:
        """Those of the first run; the others differ in order and seed only."""
        return self.runs[0].settings

    @property
    def orders(self) -> list[int]:
        """The class orders that were run."""
        return sorted({run.order_and_seed[0] for run in self.runs})

    @property
    def in_main_tables(self) -> bool:
        """No ablation, and with its memory."""
        return self.replay and self.change in ("", TRAINS_ALL)

    @property
    def is_joint(self) -> bool:
        """Whether this is joint training, which has one evaluation and is only an upper bound."""
        return is_joint(self.learner)

    def values(self, measure: str) -> list[float]:
        """One number per run; none where it means nothing (joint training has one evaluation)."""
        if measure in ("amca", "forgetting") and self.is_joint:
            return []
        values = [MEASURES[measure](run.report) for run in self.runs]
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
class GroupedRuns:
    """Everything a report is made of."""

    groups: list[Group]
    unfinished: list[Path]
    diverged: list[Path] = field(default_factory=list)

    def of(self, benchmark: str) -> list[Group]:
        """The groups of one benchmark."""
        return [group for group in self.groups if group.benchmark == benchmark]

    def get(self, benchmark: str, learner: str, replay: bool = True, change: str = "") -> Group | None:
        """One group, if it was run."""
        wanted = (benchmark, learner, replay, change)
        found = (g for g in self.groups if (g.benchmark, g.learner, g.replay, g.change) == wanted)
        return next(found, None)

    @property
    def benchmarks(self) -> list[str]:
        """Those that were run: the paper's first, then by name."""
        found = {group.benchmark for group in self.groups}
        return [name for name in paper.COLUMNS if name in found] + sorted(found - set(paper.COLUMNS))


def group_runs(paths: Sequence[Path]) -> GroupedRuns:
    """Load runs, or folders of runs, and group them; runs that must not be averaged are refused by name."""
    runs, unfinished = load_runs(paths)
    replaying = {name for name, spec in LEARNER_SPECS.items() if spec.memory == "optional"}
    replaying |= {run.learner for run in runs if run.settings.get("memory")}
    usual = {
        benchmark: usual_settings(benchmark, [run.settings for run in runs if run.benchmark == benchmark])
        for benchmark in {run.benchmark for run in runs}
    }
    found: dict[tuple[str, str, bool, str], list[FinishedRun]] = {}
    for run in runs:
        replay = bool(run.settings.get("memory")) or run.learner not in replaying
        change = ablation_title(run.settings, usual[run.benchmark])
        found.setdefault((run.benchmark, run.learner, replay, change), []).append(run)
    groups = [Group(*key, tuple(_one_per_order_and_seed(members))) for key, members in found.items()]
    diverged = diverged_among(unfinished)
    unfinished = [directory for directory in unfinished if directory not in diverged]
    return GroupedRuns(
        sorted(groups, key=lambda g: (rank(g.learner), not g.replay, g.change)), unfinished, diverged
    )


def on_common_orders(groups: list[Group]) -> GroupedRuns:
    """The groups, limited to the class orders and seeds that all of them have; unchanged if they share none."""
    found = [{run.order_and_seed for run in group.runs} for group in groups]
    common = set.intersection(*found) if found else set()
    if not common:
        return GroupedRuns(groups, [])
    return GroupedRuns(
        [replace(g, runs=tuple(r for r in g.runs if r.order_and_seed in common)) for g in groups], []
    )


def reference_of(grouped: GroupedRuns, group: Group) -> Group | None:
    """What a group is compared with: TPC as it is, without replay for those without; None for TPC itself."""
    is_tpc = group.learner == "tpc" and not group.change
    if is_tpc and group.replay:
        return None
    return grouped.get(group.benchmark, "tpc", replay=group.replay or is_tpc)


def _one_per_order_and_seed(runs: list[FinishedRun]) -> list[FinishedRun]:
    """The runs by class order and seed, one each; refuses to average different settings or results."""
    runs = sorted(runs, key=lambda run: run.order_and_seed)
    for run in runs[1:]:
        _check_equal_settings(runs[0], run)
    unique: dict[tuple[int, int], FinishedRun] = {}
    for run in runs:
        before = unique.setdefault(run.order_and_seed, run)
        if before.report.accuracy != run.report.accuracy:
            order, seed = run.order_and_seed
            raise Mismatch(
                f"{before.path} and {run.path} are both {_name(run)}, order {order}, seed {seed}, "
                f"but their results differ; leave one of them out."
            )
    return list(unique.values())


def _check_equal_settings(first: FinishedRun, run: FinishedRun) -> None:
    wanted, found = (flatten(r.settings) | {"evaluated after": r.report.evaluated_after} for r in (first, run))
    differing = [key for key in wanted | found if key not in AVERAGED and wanted.get(key) != found.get(key)]
    if differing:
        what = "; ".join(f"{key} {wanted.get(key)!r} and {found.get(key)!r}" for key in differing[:3])
        what += f"; and {len(differing) - 3} more" if len(differing) > 3 else ""
        raise Mismatch(
            f"{first.path} and {run.path} are runs of {_name(run)} with different settings: {what}. "
            f"They are not averaged; make a report of each."
        )
    if odd := set(first.report.names) ^ set(run.report.names):
        raise Mismatch(
            f"{first.path} and {run.path} are runs of {_name(run)} over different classes: only one of them knows "
            f"{min(odd)!r}. They are not averaged; make a report of each."
        )


def _name(run: FinishedRun) -> str:
    return f"{learner_title(run.learner)} on {run.benchmark}"
