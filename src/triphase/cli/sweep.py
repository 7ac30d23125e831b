"""triphase bench sweep and triphase bench ablate: many runs from one command."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from triphase import state as files
from triphase.bench.benchmarks import find
from triphase.bench.datasets import parse_numbers
from triphase.bench.learners import learner_spec
from triphase.bench.run.options import RunOptions
from triphase.bench.run.setup import make_stream
from triphase.bench.sweep.ablation import Ablation, Which, chosen_lr
from triphase.bench.sweep.grid import Search, Sweep
from triphase.bench.sweep.scheduler import Plan, Standing, check_options, check_stream, work
from triphase.budget import Budget
from triphase.cli.arguments import JSON
from triphase.cli.board import Board
from triphase.cli.options import NAMES, Data, LatentBudget, Set, parse_sets, takes_options
from triphase.cli.printing import percent, print_json
from triphase.directory_lock import locked
from triphase.errors import Interrupted, InvalidValue, TriphaseError, few

COMMAND = (sys.executable, "-m", "triphase")
LATENTS = "latents"  # folder that the runs of a sweep share

Benchmarks = Annotated[list[str], typer.Argument(help="Names or notations of `triphase bench list`.")]
Orders = Annotated[str, typer.Option(help="Class orders: search on the first, results from the others.")]
Workers = Annotated[int, typer.Option(min=1, help="Runs at the same time; threads are divided.")]
Threads = Annotated[int | None, typer.Option(min=1, help="CPU threads of each run.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="List the runs and do none.")]


@takes_options
def sweep(
    benchmarks: Benchmarks,
    options: RunOptions,
    learners: Annotated[str, typer.Option(help=f"Some of {NAMES}.")] = "tpc,ar1,bic,derpp",
    orders: Orders = "0-3",
    grid: Annotated[
        Search, typer.Option(help="As the paper, learning rates alone, or also what the rivals' papers leave open.")
    ] = "paper",
    lr_grid: Annotated[str | None, typer.Option(help="Learning rates to search, e.g. 0.1,0.03,0.01.")] = None,
    out: Annotated[Path, typer.Option(help="Folder of the runs; what is done there is kept.")] = Path("runs/sweep"),
    data: Data = Path("data"),
    workers: Workers = 1,
    threads: Threads = None,
    latent_budget: LatentBudget = None,
    option: Set = None,
    dry_run: DryRun = False,
    as_json: JSON = False,
) -> None:
    """Search each learner's settings on the first order by AMCA, then run the best on the other orders."""
    own = parse_sets(option)
    names = tuple(dict.fromkeys(name.strip() for name in learners.split(",")))
    for name in names:
        learner_spec(name)
    plan = Sweep(
        out,
        tuple(dict.fromkeys(benchmarks)),
        names,
        parse_numbers("--orders", orders),
        options,
        own,
        grid,
        _rates(lr_grid),
    )
    if dry_run:
        _list(plan, as_json)
        return
    check_options(out, options, dict(own))
    _check_data(plan, data)
    extra = _extra(out, data, workers, threads, latent_budget)
    standing = _work(plan, out / "sweep.json", extra, workers, quiet=as_json)
    document = plan.document(standing.results, standing.failed)
    if as_json:
        print_json(document)
    else:
        for benchmark, entries in document["benchmarks"].items():
            _table(benchmark, {name: (_words(entry["chosen"]), entry) for name, entry in entries.items()})
        if len(plan.orders) == 1:
            print("One order: whatever was chosen was chosen by the very results that are shown.")
    _complain(standing, out)


@takes_options
def ablate(
    benchmarks: Benchmarks,
    options: RunOptions,
    orders: Orders = "0-3",
    rows: Annotated[Which, typer.Option(help="With replay, without it, or both.")] = "both",
    more: Annotated[bool, typer.Option("--more", help="Also the choices that the paper leaves open.")] = False,
    sweep_dir: Annotated[
        Path | None, typer.Option("--sweep", help="Sweep whose learning rate is used with replay, instead of --lr.")
    ] = None,
    lr_grid: Annotated[str | None, typer.Option(help="Learning rates to search without replay.")] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder of the runs; that of --sweep if not given, or runs/ablation.")
    ] = None,
    data: Data = Path("data"),
    workers: Workers = 1,
    threads: Threads = None,
    latent_budget: LatentBudget = None,
    option: Set = None,
    dry_run: DryRun = False,
    as_json: JSON = False,
) -> None:
    """Leave parts of TPC out, with and without replay, and measure what they were worth."""
    out = out or sweep_dir or Path("runs/ablation")
    names = tuple(dict.fromkeys(benchmarks))
    rates = {name: find(name).rest.lr if options.lr is None else options.lr for name in names}
    if sweep_dir is not None and options.lr is None and rows != "no-replay":
        rates = {name: chosen_lr(sweep_dir, name) for name in names}
    base = replace(options, learner_options=parse_sets(option))
    plan = Ablation(out, names, rates, parse_numbers("--orders", orders), base, rows, more, _rates(lr_grid))
    if dry_run:
        _list(plan, as_json)
        return
    check_options(out, options, base.own)
    _check_data(plan, data)
    extra = _extra(out, data, workers, threads, latent_budget)
    standing = _work(plan, out / "ablation.json", extra, workers, quiet=as_json)
    document = plan.document(standing.results, standing.failed)
    if as_json:
        print_json(document)
    else:
        for benchmark, parts in document["benchmarks"].items():
            for part, entry in parts.items():
                words = _words({"lr": entry["lr"]})
                _table(f"{benchmark}, {part}", {name: (words, c) for name, c in entry["columns"].items()})
    _complain(standing, out)


def _rates(text: str | None) -> tuple[float, ...]:
    try:
        rates = tuple(float(word) for word in text.split(",")) if text is not None else ()
    except ValueError:
        rates = (0.0,)
    if any(not 0 < rate < float("inf") for rate in rates):
        raise InvalidValue(f"--lr-grid takes learning rates above 0 such as 0.1,0.03,0.01, got {text!r}.")
    return tuple(dict.fromkeys(rates))


def _extra(out: Path, data: Path, workers: int, threads: int | None, latent_budget: int | None) -> list[str]:
    """What every run is told: its share of the machine."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    threads = threads or max(1, cores // workers)
    budget = (Budget().limit >> 20) // workers if latent_budget is None else latent_budget
    shared = ["--latent-cache", str(out / LATENTS)]
    return ["--data", str(data), "--threads", str(threads), "--latent-budget", str(budget), *shared]


def _check_data(plan: Plan, data: Path) -> None:
    """Refuse at once what every run would refuse, such as too little data; and data that no finished run had."""
    cells = sorted(plan.cells({}), key=lambda cell: (cell.directory / "report.json").exists())
    for benchmark, cell in {cell.benchmark: cell for cell in reversed(cells)}.items():
        size = cell.options.image_size or find(benchmark).image_size
        try:
            stream = make_stream(find(benchmark), cell.options, data, size)
        except TriphaseError:
            if (cell.directory / "report.json").exists():
                continue  # all that is planned so far is done: there is no need for data to look at it again
            raise
        for done in cells:
            if (done.benchmark, done.options.order) == (benchmark, cell.options.order):
                check_stream(done, stream)


def _work(plan: Plan, record: Path, extra: Sequence[str], workers: int, *, quiet: bool) -> Standing:
    """Do the plan under the eyes of a person; the record on disk is always up to date."""
    noted = -1
    with locked(record.parent), Board(quiet=quiet) as board:

        def watch(standing: Standing) -> None:
            nonlocal noted
            if noted != len(standing.results) + len(standing.failed):
                noted = len(standing.results) + len(standing.failed)
                files.write_json(record, plan.document(standing.results, standing.failed))
            board.watch(standing)

        try:
            standing = work(plan, command=COMMAND, extra=extra, workers=workers, watch=watch)
        except KeyboardInterrupt as error:
            raise Interrupted(f"Stopped; {record.parent} is saved. Run again to continue.") from error
    if not standing.failed:
        shutil.rmtree(record.parent / LATENTS, ignore_errors=True)  # they were for the runs that are done now
    return standing


def _list(plan: Plan, as_json: bool) -> None:
    rows = plan.rows()
    if as_json:
        print_json({"runs": len(rows), "rows": [row._asdict() for row in rows]})
        return
    for row in rows:
        print(f"{row.benchmark}  {row.learner}  {row.text}")
    if any(cell.options.experiences for cell in plan.cells({})):
        print("First experiences that learners share are runs beside these, done once.")
    print(f"{len(rows)} runs")


def _table(title: str, entries: dict[str, tuple[str, dict[str, Any]]]) -> None:
    """One line per learner or column: what was chosen, and mean and standard deviation over the orders."""
    table = Table(title=title, title_justify="left")
    for name in ("", "setting", "AMCA", "final accuracy", "training time"):
        table.add_column(name, justify="left" if name in ("", "setting") else "right")
    for name, (setting, entry) in entries.items():
        measured = [_spread(entry[key]) for key in ("amca", "final_accuracy")]
        seconds = entry["train_seconds"]["mean"]
        table.add_row(name, setting, *measured, "–" if seconds is None else f"{seconds:.1f} s")
    Console().print(table, highlight=False)


def _spread(value: dict[str, float | None]) -> str:
    return percent(value["mean"]) + ("" if value["std"] is None else f" ± {100 * value['std']:.1f}")


def _words(setting: dict[str, Any] | None) -> str:
    return (
        "–" if not setting else " ".join(f"{name} {value}" for name, value in setting.items() if value is not None)
    )


def _complain(standing: Standing, out: Path) -> None:
    """End with status 1 if anything failed."""
    failed = [str(cell.directory.relative_to(out)) for cell in standing.failed]
    if failed:
        reason = next(iter(standing.failed.values())).rstrip(".")
        count = f"{len(failed)} of {len(standing.plan.rows())} runs failed"
        raise TriphaseError(f"{count}: {few(failed)} ({reason}). Run again to try them again.")
