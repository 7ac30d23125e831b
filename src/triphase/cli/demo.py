"""triphase demo: a classifier learns class after class, beside lower and upper bounds."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from triphase import state as files
from triphase.bench.demo import TITLE, demo_runs
from triphase.bench.run.options import RunOptions
from triphase.bench.run.results import Report
from triphase.cli.arguments import JSON
from triphase.cli.live import live
from triphase.cli.printing import percent, print_json, say
from triphase.cli.run_view import RunView


def demo(
    out: Annotated[Path, typer.Option(help="Folder for report.html and accuracy.png.")] = Path("demo"),
    seed: Annotated[int, typer.Option(help="Seed of everything random.")] = 0,
    epochs_scale: Annotated[float, typer.Option(help="Shortens the training, 0.1 for a tenth.")] = 1.0,
    as_json: JSON = False,
) -> None:
    """Learn handwritten digits, two new ones at a time: TPC against fine-tuning, replay and joint training."""
    from triphase.bench.report.demo_page import rows, write_page  # matplotlib is slow to import

    reports: dict[str, Report] = {}
    files.make_directory(out)  # before the training, not after it
    for learner, setup in demo_runs(RunOptions(seed=seed, epochs_scale=epochs_scale)):
        with live(RunView(f"{learner:<9}", quiet=as_json)) as view:
            reports[learner] = setup.run(watch=view.watch)
    page = write_page(out, TITLE, "triphase demo", reports)
    if as_json:
        print_json({"learners": {n: r.to_json() for n, r in reports.items()}, "report": str(page)})
        return
    table = Table(title=TITLE, title_justify="left")
    table.add_column("learner")
    for name in ("AMCA", "final accuracy", "training time"):
        table.add_column(name, justify="right")
    for row in rows(reports):
        table.add_row(row["learner"], percent(row["amca"]), percent(row["final"]), f"{row['seconds']:.1f} s")
    Console().print(table)
    say(f"The curves are in {page}")
