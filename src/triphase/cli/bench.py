"""Run continual-learning benchmarks and report the results."""

from pathlib import Path
from typing import Annotated

import torch
import typer
from rich.console import Console
from rich.table import Table

from triphase import state as files
from triphase.bench.benchmarks import BENCHMARKS, NOTATIONS, file_name, find
from triphase.bench.learners import LEARNER_SPECS
from triphase.bench.run.directory import recorded_threads
from triphase.bench.run.options import RunOptions
from triphase.bench.run.results import Report
from triphase.bench.run.setup import prepare
from triphase.budget import Budget
from triphase.cli.arguments import JSON
from triphase.cli.device import Device, device_of, open_device
from triphase.cli.live import live
from triphase.cli.printing import print_json
from triphase.cli.report import report
from triphase.cli.run_options import Data, LatentBudget, run_options
from triphase.cli.run_view import RunView
from triphase.cli.sweep import ablate, sweep
from triphase.cli.tables import cell
from triphase.cli.usage import Command, PrintableUsage
from triphase.context import Context
from triphase.printable import percent
from triphase.processes import join

bench = typer.Typer(cls=PrintableUsage, help=__doc__, no_args_is_help=True)


@bench.command("list", cls=Command)
def list_benchmarks(as_json: JSON = False) -> None:
    """List the benchmarks and the learners."""
    if as_json:
        benchmarks = [benchmark.to_json() for benchmark in BENCHMARKS.values()]
        print_json({"benchmarks": benchmarks, "notations": NOTATIONS, "learners": list(LEARNER_SPECS)})
        return
    table = Table(box=None)
    for column in ("name", "paper's name", "backbone", "memory", "n_mbe:n_mbr"):  # the rest is in --json
        table.add_column(column, no_wrap=True)
    for b in BENCHMARKS.values():
        table.add_row(b.name, b.title, b.backbone, str(b.memory), f"{b.rest.n_mbe}:{b.rest.n_mbr}")
    console = Console()
    console.print(table)
    console.print("\nOther benchmarks, by notation:")
    for notation, meaning in NOTATIONS.items():
        console.print(f"  {notation:<18} {meaning}", highlight=False, soft_wrap=True)
    console.print("As DATASET, folder means your own photos in --data, one folder per class.", highlight=False)
    console.print(f"Learners: {', '.join(LEARNER_SPECS)}.", highlight=False)


@bench.command("run", cls=Command)
@run_options
def run_benchmark(
    benchmark: Annotated[str, typer.Argument(help="Name or notation from `triphase bench list`.")],
    options: RunOptions,
    out: Annotated[Path | None, typer.Option(help="Folder of the run; an unfinished run is continued.")] = None,
    data: Data = Path("data"),
    threads: Annotated[int | None, typer.Option(min=1, help="CPU threads; all if not given.")] = None,
    device: Device = None,
    latent_budget: LatentBudget = None,
    latent_cache: Annotated[
        Path | None, typer.Option(help="Folder in which runs over the same images share latents.")
    ] = None,
    save_every: Annotated[float, typer.Option(help="Seconds between saves; 0 saves every step.")] = 1.0,
    profile: Annotated[bool, typer.Option("--profile", help="Write profile.json: where the time went.")] = False,
    as_json: JSON = False,
) -> None:
    """Run one learner on one benchmark; run it again to continue after an interruption.

    Examples:
      triphase bench run digits-5 --learner tpc
      triphase bench run cifar100:10/10-10 --learner anchored --backbone efficientnet_lite0 --data DIR
      torchrun --nproc-per-node 2 -m triphase bench run cifar100-11 --data DIR
    """
    name = f"{file_name(benchmark)}-{options.learner}-order{options.order}-seed{options.seed}"
    name += "" if options.labelled is None else f"-labelled{options.labelled}"
    directory = out or Path("runs") / name
    threads = recorded_threads(directory) or threads  # a run goes on as it was begun
    if threads is not None:
        torch.set_num_threads(threads)
    with join() as processes:
        budget = Budget() if latent_budget is None else Budget.megabytes(latent_budget)
        budget.limit //= processes.on_machine
        mine = open_device(device_of(processes, device))
        context = Context(budget, latent_cache, device=mine, processes=processes)
        setup = prepare(find(benchmark), options, data, context)
        with live(RunView(options.learner, quiet=as_json or not processes.is_first)) as view:
            done = setup.run(directory, on_event=view.on_event, save_every=save_every)
    if not processes.is_first:
        return
    if profile:
        files.write_json(directory / "profile.json", done.profile)
    if as_json:
        print_json({"run": str(directory), **done.to_json()})
    else:
        _print(directory, done)


bench.command("sweep", cls=Command)(sweep)
bench.command("ablate", cls=Command)(ablate)
bench.command("report", cls=Command)(report)


def _print(directory: Path, done: Report) -> None:
    phases = ", ".join(f"{name} {seconds:.1f}" for name, seconds in done.phase_seconds.items())
    ceiling = f" of {percent(done.ceiling)} that perfect learning would reach" if done.ceiling < 1 else ""
    table = Table.grid(padding=(0, 2))
    table.add_row("AMCA", percent(done.amca) + ceiling)
    table.add_row("final accuracy", percent(done.final_accuracy))
    table.add_row("training time", f"{done.train_seconds:.1f} s ({phases})")
    parts = ", ".join(f"{part} {100 * share:.0f} %" for part, share in done.profile["shares"].items())
    table.add_row("speed", f"{done.profile['images_per_second']:,.0f} images/s ({parts})")
    table.add_row("run", cell(directory))
    Console().print(table, highlight=False)
