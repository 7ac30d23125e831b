"""triphase bench report: the paper's tables and figures of whatever was run, on one page and as files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from triphase import state as files
from triphase.bench.report.caveats import conditions, departures
from triphase.bench.report.figures import all_figures, inline, png, svg
from triphase.bench.report.group import Gathered, gather
from triphase.bench.report.html import render
from triphase.bench.report.side_tables import all_tables, class_records
from triphase.bench.report.tables import Table, as_csv


@dataclass(frozen=True)
class Written:
    """What a report says and where it is."""

    page: Path
    gathered: Gathered
    tables: list[Table]
    notes: list[str]


def write_report(runs: Sequence[Path], out: Path) -> Written:
    """`report.html`, needing nothing else; beside it tables as CSV and Markdown, figures as PNG and SVG."""
    gathered = gather(runs)
    files.make_directory(out)
    tables, notes = all_tables(gathered), conditions(gathered)
    for table in tables:
        files.write(out / "tables" / f"{table.name}.csv", table.csv().encode())
        files.write(out / "tables" / f"{table.name}.md", table.markdown().encode())
    files.write(out / "tables" / "classes.csv", as_csv(class_records(gathered)).encode())
    pictures = []
    for name, title, figure in all_figures(gathered):
        picture = svg(figure)
        files.write(out / "figures" / f"{name}.png", png(figure))
        files.write(out / "figures" / f"{name}.svg", picture.encode())
        pictures.append({"name": name, "title": title, "svg": inline(picture)})
    files.write(out / "report.html", _page(gathered, tables, notes, pictures).encode())
    return Written(out / "report.html", gathered, tables, notes)


def _page(gathered: Gathered, tables: list[Table], notes: list[str], pictures: list[dict[str, Any]]) -> str:
    versions = sorted({tuple(run.report.versions.items()) for entry in gathered.entries for run in entry.runs})
    return render(
        "report.html",
        n_runs=sum(len(entry.runs) for entry in gathered.entries),
        n_learners=len({entry.learner for entry in gathered.entries}),
        n_benchmarks=len(gathered.benchmarks),
        tables=tables,
        notes=notes,
        departures=departures(gathered),
        pictures=pictures,
        versions=[", ".join(f"{name} {version}" for name, version in each) for each in versions],
    )
