"""The main tables, in the paper's form: our mean, as a multiple of TPC's, beside the paper's numbers."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from triphase.bench.learners import is_joint
from triphase.bench.report import paper
from triphase.bench.report.caveats import conditions
from triphase.bench.report.group import Group, GroupedRuns
from triphase.bench.report.tables import Table, TableCell, signed
from triphase.bench.report.titles import benchmark_title, group_title, rank

NOT_RUN = "not run"
RECORD = (  # the numbers of one cell
    "learner",
    "benchmark",
    "runs",
    "mean",
    "std",
    "ratio_to_tpc",
    "paper",
    "paper_ratio",
    "difference",
)


@dataclass(frozen=True)
class Metric:
    """How a measure is formatted, compared and found in the paper."""

    name: str
    title: str
    caption: str
    format: Callable[[float, float | None], str]
    best: Callable[[Iterable[float]], float] | None = max
    paper: dict[str, dict[str, float]] = field(default_factory=dict)
    scale: float = 100.0  # from our unit to the one that is shown
    ratios: bool = True


def _per_cent(mean: float, std: float | None) -> str:
    return f"{mean:.2f}" + (f" ± {std:.2f}" if std is not None else "") + " %"


def _seconds(mean: float, std: float | None) -> str:
    digits = 0 if mean >= 100 else 1
    return f"{mean:.{digits}f}" + (f" ± {std:.{digits}f}" if std is not None else "") + " s"


def _bytes(mean: float, _: float | None) -> str:
    if mean == 0:
        return "none"
    return f"{mean / 1e6:.1f} MB" if mean >= 1e6 else f"{mean / 1e3:.1f} KB"


METRICS = (
    Metric(
        "amca",
        "AMCA ↑",
        "Average mean class accuracy over the experiences; in brackets, and in the last column, as a multiple of "
        "TPC's. Differences from the paper are in points. Joint training has one evaluation, hence no average.",
        _per_cent,
        paper=paper.AMCA,
    ),
    Metric(
        "final",
        "Final accuracy ↑",
        "Mean class accuracy after the last experience; in brackets, and in the last column, as a multiple of "
        "TPC's. Differences from the paper are in points. Joint training saw all data at once: it is a bound.",
        _per_cent,
        paper=paper.FINAL,
    ),
    Metric(
        "time",
        "Training time ↓",
        "Seconds of training on this machine, without evaluation; in brackets, and in the last column, as a "
        "multiple of TPC's. The paper's seconds are another machine's, so the difference is between the multiples.",
        _seconds,
        best=min,
        paper=paper.SECONDS,
        scale=1.0,
    ),
    Metric(
        "forgetting",
        "Forgetting ↓",
        "The best accuracy a class ever had minus its last one, mean over the classes, in points.",
        _per_cent,
        best=min,
        ratios=False,
    ),
    Metric(
        "memory",
        "Memory",
        "Bytes of the replay memory at the end. What a closed form keeps of its statistics is not counted.",
        _bytes,
        best=None,
        scale=1.0,
        ratios=False,
    ),
)


Key = tuple[str, str]  # learner and change: a row
Records = dict[Key, list[dict[str, Any]]]  # by row, one record per benchmark


def metric_table(grouped: GroupedRuns, metric: Metric) -> Table:
    """Learners by benchmarks. The paper's learners always have a row, its benchmarks a column once one was run."""
    benchmarks = _benchmarks(grouped, metric)
    keys = {(g.learner, g.change) for g in grouped.groups if g.in_main_tables} | {(name, "") for name in paper.ROWS}
    table: Records = {
        key: [record_of(grouped, metric, *key, benchmark) for benchmark in benchmarks]
        for key in sorted(keys, key=lambda key: (rank(key[0]), key[1]))
    }
    compared = [key for key in table if not is_joint(key[0])]  # joint training is only an upper bound
    best = [best_of(metric, [table[key][i]["mean"] for key in compared]) for i in range(len(benchmarks))]
    overall = _overall_cells(metric, table, compared, benchmarks) if metric.ratios else {}
    rows = []
    for key, row in table.items():
        cells = [cell_of(metric, r, key in compared and r["mean"] == b) for r, b in zip(row, best, strict=True)]
        cells += [overall[key]] if metric.ratios else []
        rows.append([TableCell(group_title(*key)), *cells])
    header = [metric.title, *map(benchmark_title, benchmarks), *(["Overall"] if metric.ratios else [])]
    records = [record for row in table.values() for record in row]
    return Table(metric.name, metric.title, metric.caption, header, rows, records, conditions(grouped))


def _benchmarks(grouped: GroupedRuns, metric: Metric) -> list[str]:
    run = grouped.benchmarks
    with_paper = bool(metric.paper) and not set(run).isdisjoint(paper.COLUMNS)
    return list(dict.fromkeys([*paper.COLUMNS, *run])) if with_paper else run


def record_of(
    grouped: GroupedRuns, metric: Metric, learner: str, change: str, benchmark: str, replay: bool = True
) -> dict[str, Any]:
    """One cell as numbers, in the unit shown; None where something was not run or not printed."""
    group = grouped.get(benchmark, learner, replay, change)
    values = _values(metric, group)
    mean, std = _mean(values), statistics.stdev(values) if len(values) > 1 else None
    reference = _mean(_values(metric, grouped.get(benchmark, "tpc")))
    ratio = mean / reference if metric.ratios and mean is not None and reference else None
    printed = printed_ratio = None
    if replay and not change and benchmark in metric.paper.get(learner, {}):
        printed = metric.paper[learner][benchmark]
        printed_ratio = paper.ratio(metric.paper, learner, benchmark)
    elif learner == "tpc" and metric.name == "amca":
        printed = paper.ABLATION.get((benchmark, replay), {}).get(change)
    ours, theirs = (ratio, printed_ratio) if metric.name == "time" else (mean, printed)
    gap = ours - theirs if ours is not None and theirs is not None else None
    found = (group_title(learner, change, replay), benchmark, len(group.runs) if group else 0)
    return dict(zip(RECORD, (*found, mean, std, ratio, printed, printed_ratio, gap), strict=True))


def _values(metric: Metric, group: Group | None) -> list[float]:
    return [metric.scale * value for value in group.values(metric.name)] if group else []


def _mean(values: Sequence[float]) -> float | None:
    return statistics.mean(values) if values else None


def best_of(metric: Metric, values: Sequence[float | None]) -> float | None:
    """What is set in bold, if there is a choice."""
    found = [value for value in values if value is not None]
    return metric.best(found) if metric.best and len(found) > 1 else None


def cell_of(metric: Metric, record: dict[str, Any], best: bool) -> TableCell:
    """A record for people; a dash where it was run but the metric means nothing."""
    under = ""
    if record["paper"] is not None:
        under = f"paper {_printed(metric, record['paper'])}{_bracket(record['paper_ratio'])}"
        if record["difference"] is not None:
            under += f", {'ratio ' if metric.name == 'time' else ''}{signed(record['difference'])}"
    if record["mean"] is None:
        return TableCell("–" if record["runs"] else NOT_RUN, under)
    return TableCell(metric.format(record["mean"], record["std"]) + _bracket(record["ratio_to_tpc"]), under, best)


def _bracket(ratio: float | None) -> str:
    return "" if ratio is None else f" ({ratio:.2f})"


def _printed(metric: Metric, value: float) -> str:
    return f"{value:.0f} s" if metric.name == "time" else f"{value:.2f} %"


def _overall_cells(
    metric: Metric, table: Records, compared: Sequence[Key], benchmarks: Sequence[str]
) -> dict[Key, TableCell]:
    """The mean of the ratios, over the benchmarks that were run; the paper's is over its own four."""
    ratios = {key: [r["ratio_to_tpc"] for r in row if r["ratio_to_tpc"] is not None] for key, row in table.items()}
    complete = [key for key in compared if len(ratios[key]) == len(ratios["tpc", ""])]
    best = best_of(metric, [_mean(ratios[key]) for key in complete])
    cells = {}
    for key, row in table.items():
        printed = paper.OVERALL[metric.name].get(key[0]) if set(benchmarks) & set(paper.COLUMNS) else None
        under, mean = "" if printed is None else f"paper {printed:.2f}", _mean(ratios[key])
        if mean is None:
            cells[key] = TableCell("–" if any(record["runs"] for record in row) else NOT_RUN, under)
            continue
        under += "" if printed is None else f", {signed(mean - printed)}"
        part = f" (of {len(ratios[key])})" if len(ratios[key]) < len(benchmarks) else ""
        cells[key] = TableCell(f"{mean:.2f}{part}", under, key in complete and mean == best)
    return cells
