"""triphase demo: watch a classifier learn class after class, beside the bounds."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from triphase import state as files
from triphase.bench.benchmarks import find
from triphase.bench.run import Report, run
from triphase.bench.run.options import RunOptions
from triphase.bench.run.setup import prepare
from triphase.cli.arguments import JSON
from triphase.cli.printing import percent, print_json, say
from triphase.cli.show import Show

TITLE = "Digits in 5 experiences of 2 classes, memory of 100 images"


def demo(
    out: Annotated[Path, typer.Option(help="Folder for report.html and accuracy.png.")] = Path("demo"),
    seed: Annotated[int, typer.Option(help="Seed of everything random.")] = 0,
    epochs_scale: Annotated[float, typer.Option(help="Shortens the training, 0.1 for a tenth.")] = 1.0,
    as_json: JSON = False,
) -> None:
    """Learn handwritten digits, two new ones at a time: TPC against fine-tuning, replay and joint training."""
    from triphase.bench.report.demo_page import (  # matplotlib is slow to import; other commands need none
        rows,
        write_page,
    )

    reports: dict[str, Report] = {}
    options = RunOptions(seed=seed, epochs_scale=epochs_scale)
    files.make_directory(out)  # before the training, not after it
    for learner in ("tpc", "replay", "finetune", "joint"):
        setup = prepare(find("digits-5"), replace(options, learner=learner), Path())
        with Show(f"{learner:<9}", quiet=as_json) as show:
            reports[learner] = run(
                setup.learner,
                setup.stream,
                first=setup.first,
                rest=setup.rest,
                settings=setup.settings,
                watch=show.watch,
            )
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
