"""triphase demo: a classifier learns class after class, beside lower and upper bounds."""

import shutil
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import torch
import typer
from rich.console import Console
from rich.table import Table

from triphase import state as files
from triphase.app.demo import run_demo
from triphase.bench.demo import TITLE, demo_runs
from triphase.bench.run.options import RunOptions
from triphase.bench.run.results import Report
from triphase.cli.arguments import JSON
from triphase.cli.device import Device, open_device
from triphase.cli.live import live
from triphase.cli.printing import print_json, say
from triphase.cli.run_view import RunView
from triphase.printable import percent


def demo(
    out: Annotated[Path, typer.Option(help="Folder for report.html and accuracy.png.")] = Path("demo"),
    seed: Annotated[int, typer.Option(help="Random seed.")] = 0,
    epochs_scale: Annotated[float, typer.Option(help="Scale of the training epochs: 0.1 is a tenth.")] = 1.0,
    lessons: Annotated[bool, typer.Option(help="Also teach drawings, as `triphase teach` does.")] = True,
    device: Device = None,
    as_json: JSON = False,
) -> None:
    """Watch ten digits being learned two at a time, then lessons on drawings."""
    from triphase.bench.report.demo_page import rows, write_page  # matplotlib is slow to import

    reports: dict[str, Report] = {}
    where = open_device(device)
    files.make_directory(out)  # before the training, not after it
    for learner, setup in demo_runs(RunOptions(seed=seed, epochs_scale=epochs_scale), where):
        with live(RunView(f"{learner:<9}", quiet=as_json)) as view:
            reports[learner] = setup.run(on_event=view.on_event)
    page = write_page(out, TITLE, "triphase demo", reports)
    if as_json:
        steps = [asdict(step) for step in run_demo(_empty(out / "lessons"), seed, device=where)] if lessons else []
        documents = {name: report.to_json() for name, report in reports.items()}
        print_json({"learners": documents, "report": str(page), "lessons": steps})
        return
    table = Table(title=TITLE, title_justify="left")
    table.add_column("learner")
    for name in ("AMCA", "final accuracy", "training time"):
        table.add_column(name, justify="right")
    for row in rows(reports):
        table.add_row(row["learner"], percent(row["amca"]), percent(row["final"]), f"{row['seconds']:.1f} s")
    Console().print(table)
    say(f"The curves are in {page}")
    if lessons:
        say("")
        say("Next, a model is taught with drawings:")
        _show_lessons(_empty(out / "lessons"), seed, where)


def _show_lessons(folder: Path, seed: int, device: torch.device) -> None:
    """Print each command of the demo and its result."""
    for step in run_demo(folder, seed, device=device):
        say(f"  $ {step.command}")
        say(f"    {step.result}")


def _empty(folder: Path) -> Path:
    """The folder, without the files of an earlier demo."""
    shutil.rmtree(folder, ignore_errors=True)
    files.make_directory(folder)
    return folder
