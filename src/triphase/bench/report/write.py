"""Writes a report: the paper's tables and figures of whatever was run, on one page and as files."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from triphase import state as files
from triphase.bench import metrics
from triphase.bench.report.ablation_tables import ablation, no_replay
from triphase.bench.report.caveats import conditions, departures
from triphase.bench.report.difference_table import differences
from triphase.bench.report.figure_style import inline, png, svg
from triphase.bench.report.figures import all_figures
from triphase.bench.report.group import Group, GroupedRuns, group_runs
from triphase.bench.report.html import render
from triphase.bench.report.main_tables import METRICS, metric_table
from triphase.bench.report.settings_table import what_was_run
from triphase.bench.report.tables import Table, as_csv


@dataclass(frozen=True)
class WrittenReport:
    """The content of a report and the path of its page."""

    page: Path
    grouped: GroupedRuns
    tables: list[Table]
    caveats: list[str]


def write_report(runs: Sequence[Path], out: Path) -> WrittenReport:
    """Write `report.html`, which is one file; beside it tables as CSV and Markdown, figures as PNG and SVG."""
    grouped = group_runs(runs)
    files.make_directory(out)
    tables, caveats = all_tables(grouped), conditions(grouped)
    for table in tables:
        files.write(out / "tables" / f"{table.name}.csv", table.csv().encode())
        files.write(out / "tables" / f"{table.name}.md", table.markdown().encode())
    files.write(out / "tables" / "classes.csv", as_csv(class_records(grouped)).encode())
    pictures = []
    for name, title, figure in all_figures(grouped):
        picture = svg(figure)
        files.write(out / "figures" / f"{name}.png", png(figure))
        files.write(out / "figures" / f"{name}.svg", picture.encode())
        pictures.append({"name": name, "title": title, "svg": inline(picture)})
    files.write(out / "report.html", _page(grouped, tables, caveats, pictures).encode())
    return WrittenReport(out / "report.html", grouped, tables, caveats)


def all_tables(grouped: GroupedRuns) -> list[Table]:
    """Every table of a report, in its order."""
    main, more = METRICS[:3], METRICS[3:]
    optional = [table for table in (ablation(grouped), no_replay(grouped)) if table is not None]
    tables = [metric_table(grouped, metric) for metric in main] + [differences(grouped), *optional]
    return tables + [metric_table(grouped, metric) for metric in more] + [what_was_run(grouped)]


def class_records(grouped: GroupedRuns) -> list[dict[str, Any]]:
    """Final accuracy and forgetting of every class in points, mean over runs."""
    records = []
    for group in grouped.groups:
        for name, (final, forgetting) in _by_class(group).items():
            record: dict[str, Any] = {"benchmark": group.benchmark, "learner": group.title, "class": name}
            records.append(record | {"final": _mean(final), "forgetting": _mean(forgetting)})
    return records


def _by_class(group: Group) -> dict[str, tuple[list[float], list[float]]]:
    """Final accuracies and forgetting of each class, one number per run."""
    found: dict[str, tuple[list[float], list[float]]] = {}
    for run in group.runs:
        last, lost = run.report.matrix[-1].tolist(), metrics.forgetting(run.report.matrix).tolist()
        for name, accuracy, forgotten in zip(run.report.names, last, lost, strict=False):
            final, forgetting = found.setdefault(name, ([], []))
            final.append(100 * accuracy)
            forgetting.append(100 * forgotten)
    return found


def _mean(values: Sequence[float]) -> float | None:
    numbers = [value for value in values if not math.isnan(value)]
    return fmean(numbers) if numbers else None


def _page(grouped: GroupedRuns, tables: list[Table], caveats: list[str], pictures: list[dict[str, Any]]) -> str:
    runs = [run for group in grouped.groups for run in group.runs]
    versions = sorted({tuple(run.report.versions.items()) for run in runs})
    return render(
        "report.html",
        n_runs=len(runs),
        n_learners=len({group.learner for group in grouped.groups}),
        n_benchmarks=len(grouped.benchmarks),
        tables=tables,
        caveats=caveats,
        departures=departures(grouped),
        pictures=pictures,
        versions=[", ".join(f"{name} {version}" for name, version in each) for each in versions],
    )
