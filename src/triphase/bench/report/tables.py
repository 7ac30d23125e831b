"""The main tables of a report, in the paper's form: measured, as a multiple of TPC, beside the paper's numbers."""

from __future__ import annotations

import csv
import io
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from triphase.bench.report import paper
from triphase.bench.report.caveats import conditions
from triphase.bench.report.group import Entry, Gathered
from triphase.bench.report.titles import benchmark_title, rank, title_of

NOT_RUN = "not run"
COLUMNS = ("learner", "benchmark", "runs", "mean", "std", "ratio_to_tpc", "paper", "paper_ratio", "difference")


@dataclass(frozen=True)
class Cell:
    """What one cell says: its number, and a second line for the paper's."""

    text: str
    under: str = ""
    best: bool = False


@dataclass(frozen=True)
class Table:
    """A table for people (rows of cells) and for programs (records)."""

    name: str  # of its files
    title: str
    caption: str
    header: list[str]
    rows: list[list[Cell]]
    records: list[dict[str, Any]]
    notes: list[str] = field(default_factory=list)

    def markdown(self) -> str:
        """As GitHub draws it."""
        lines = ["| " + " | ".join(map(_escaped, self.header)) + " |", "|---" * len(self.header) + "|"]
        for row in self.rows:
            texts = [f"**{_escaped(c.text)}**" if c.best else _escaped(c.text) for c in row]
            cells = [
                text + (f"<br>{_escaped(c.under)}" if c.under else "") for text, c in zip(texts, row, strict=True)
            ]
            lines.append("| " + " | ".join(cells) + " |")
        notes = "".join(f"\n- {note}" for note in self.notes)
        body = "\n".join(lines)
        return f"## {self.title}\n\n{body}\n\n{self.caption}\n{notes}\n".rstrip() + "\n"

    def csv(self) -> str:
        """One line per cell, numbers in full."""
        return as_csv(self.records)


@dataclass(frozen=True)
class Metric:
    """How a measure is written, compared and found in the paper."""

    name: str
    title: str
    caption: str
    write: Callable[[float, float | None], str]
    best: Callable[[Iterable[float]], float] | None = max
    paper: dict[str, dict[str, float]] = field(default_factory=dict)
    scale: float = 100.0  # from our unit to the one that is shown
    ratios: bool = True


def percent(mean: float, std: float | None) -> str:
    """Mean and standard deviation in per cent."""
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
        percent,
        paper=paper.AMCA,
    ),
    Metric(
        "final",
        "Final accuracy ↑",
        "Mean class accuracy after the last experience; in brackets, and in the last column, as a multiple of "
        "TPC's. Differences from the paper are in points. Joint training saw all data at once: it is a bound.",
        percent,
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
        percent,
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


def compared(gathered: Gathered, metric: Metric) -> Table:
    """Learners by benchmarks. The paper's learners always have a row, its benchmarks a column once one was run."""
    run = gathered.benchmarks
    beside = bool(metric.paper) and not set(run).isdisjoint(paper.BENCHMARKS)
    benchmarks = list(dict.fromkeys([*paper.BENCHMARKS, *run])) if beside else run
    keys = {(e.learner, e.change) for e in gathered.entries if e.compared} | {(name, "") for name in paper.LEARNERS}
    table = {
        key: [record_of(gathered, metric, *key, benchmark) for benchmark in benchmarks]
        for key in sorted(keys, key=lambda key: (rank(key[0]), key[1]))
    }
    ratios = {key: [r["ratio_to_tpc"] for r in row if r["ratio_to_tpc"] is not None] for key, row in table.items()}
    rivals = [key for key in table if key[0] != "joint"]  # it saw everything at once and does not compete
    best = [best_of(metric, [table[key][i]["mean"] for key in rivals]) for i in range(len(benchmarks))]
    complete = [key for key in rivals if len(ratios[key]) == len(ratios["tpc", ""])]
    best_overall = best_of(metric, [_mean(ratios[key]) for key in complete])
    rows = []
    for key, row in table.items():
        cells = [cell_of(metric, r, key in rivals and r["mean"] == b) for r, b in zip(row, best, strict=True)]
        if metric.ratios:
            bold = key in complete and _mean(ratios[key]) == best_overall
            empty = "–" if any(record["runs"] for record in row) else NOT_RUN
            cells.append(_overall_cell(metric, key[0], ratios[key], benchmarks, bold, empty))
        rows.append([Cell(title_of(*key)), *cells])
    header = [metric.title, *map(benchmark_title, benchmarks), *(["Overall"] if metric.ratios else [])]
    records = [record for row in table.values() for record in row]
    return Table(metric.name, metric.title, metric.caption, header, rows, records, conditions(gathered))


def record_of(
    gathered: Gathered, metric: Metric, learner: str, change: str, benchmark: str, replay: bool = True
) -> dict[str, Any]:
    """One cell as numbers, in the unit shown; None where something was not run or not printed."""
    entry = gathered.get(benchmark, learner, replay, change)
    values = _values(metric, entry)
    mean, std = _mean(values), statistics.stdev(values) if len(values) > 1 else None
    reference = _mean(_values(metric, gathered.get(benchmark, "tpc")))
    ratio = mean / reference if metric.ratios and mean is not None and reference else None
    printed = printed_ratio = None
    if replay and not change and benchmark in metric.paper.get(learner, {}):
        printed = metric.paper[learner][benchmark]
        printed_ratio = paper.ratio(metric.paper, learner, benchmark)
    elif learner == "tpc" and metric.name == "amca":
        printed = paper.ABLATION.get((benchmark, replay), {}).get(change)
    ours, theirs = (ratio, printed_ratio) if metric.name == "time" else (mean, printed)
    gap = ours - theirs if ours is not None and theirs is not None else None
    found = (title_of(learner, change, replay), benchmark, len(entry.runs) if entry else 0)
    return dict(zip(COLUMNS, (*found, mean, std, ratio, printed, printed_ratio, gap), strict=True))


def _values(metric: Metric, entry: Entry | None) -> list[float]:
    return [metric.scale * value for value in entry.values(metric.name)] if entry else []


def _mean(values: Sequence[float]) -> float | None:
    return statistics.mean(values) if values else None


def best_of(metric: Metric, values: Sequence[float | None]) -> float | None:
    """What is set in bold, if there is a choice."""
    found = [value for value in values if value is not None]
    return metric.best(found) if metric.best and len(found) > 1 else None


def cell_of(metric: Metric, record: dict[str, Any], best: bool) -> Cell:
    """A record for people; a dash where it was run but the metric means nothing."""
    under = ""
    if record["paper"] is not None:
        under = f"paper {_printed(metric, record['paper'])}{_bracket(record['paper_ratio'])}"
        if record["difference"] is not None:
            under += f", {'ratio ' if metric.name == 'time' else ''}{signed(record['difference'])}"
    if record["mean"] is None:
        return Cell("–" if record["runs"] else NOT_RUN, under)
    return Cell(metric.write(record["mean"], record["std"]) + _bracket(record["ratio_to_tpc"]), under, best)


def _bracket(ratio: float | None) -> str:
    return "" if ratio is None else f" ({ratio:.2f})"


def _printed(metric: Metric, value: float) -> str:
    return f"{value:.0f} s" if metric.name == "time" else f"{value:.2f} %"


def _overall_cell(
    metric: Metric, learner: str, ratios: list[float], benchmarks: list[str], best: bool, empty: str
) -> Cell:
    """The mean of the ratios, over the benchmarks that were run; the paper's is over its own four."""
    printed = paper.OVERALL[metric.name].get(learner) if set(benchmarks) & set(paper.BENCHMARKS) else None
    under = "" if printed is None else f"paper {printed:.2f}"
    if not ratios:
        return Cell(empty, under)
    under += "" if printed is None else f", {signed(statistics.mean(ratios) - printed)}"
    part = f" (of {len(ratios)})" if len(ratios) < len(benchmarks) else ""
    return Cell(f"{statistics.mean(ratios):.2f}{part}", under, best)


def as_csv(records: Sequence[Mapping[str, Any]]) -> str:
    """Records with the same names, one per line.

    >>> as_csv([{"a": 1, "b": None}])
    'a,b\\n1,\\n'
    """
    text = io.StringIO()
    writer = csv.DictWriter(text, list(records[0]) if records else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows(records)
    return text.getvalue()


def signed(value: float) -> str:
    """A difference with its sign, two digits and a true minus.

    >>> signed(-0.5)
    '−0.50'
    """
    return f"{value:+.2f}".replace("-", "−")


def _escaped(text: str) -> str:
    return text.replace("|", "\\|")
