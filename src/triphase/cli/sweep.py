"""triphase bench sweep and triphase bench ablate: many runs from one command."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from triphase.bench.learners import LEARNER_SPECS
from triphase.bench.ranges import parse_ranges
from triphase.bench.run.options import RunOptions
from triphase.bench.sweep.ablation import Ablation, Rows, replay_rates
from triphase.bench.sweep.checks import check_data, check_options, fixed_options, record_options
from triphase.bench.sweep.grid import Search, Sweep, parse_rates
from triphase.bench.sweep.jobs import Schedule
from triphase.bench.sweep.scheduler import Progress, execute
from triphase.cli.arguments import JSON
from triphase.cli.live import live
from triphase.cli.printing import print_json
from triphase.cli.run_options import Data, Set, parse_settings, sweep_options
from triphase.cli.sweep_execution import ExecutionOptions, execution_options
from triphase.cli.sweep_view import SweepView
from triphase.errors import TriphaseError, few
from triphase.printable import percent
from triphase.processes import refuse_several

Benchmarks = Annotated[list[str], typer.Argument(help="Names or notations from `triphase bench list`.")]
Orders = Annotated[str, typer.Option(help="Class orders: the first for the search, the others for results.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="List the runs without starting them.")]


@sweep_options
@execution_options
def sweep(
    benchmarks: Benchmarks,
    options: RunOptions,
    execution: ExecutionOptions,
    learners: Annotated[str, typer.Option(help=f"Some of {', '.join(LEARNER_SPECS)}.")] = "tpc,ar1,bic,derpp",
    orders: Orders = "0-3",
    grid: Annotated[
        Search, typer.Option(help="What to search: the paper's grid, learning rates only, or open choices, too.")
    ] = "paper",
    lr_grid: Annotated[str | None, typer.Option(help="Learning rates to search, such as 0.1,0.03,0.01.")] = None,
    out: Annotated[Path, typer.Option(help="Folder of the runs; finished runs are kept.")] = Path("runs/sweep"),
    data: Data = Path("data"),
    option: Set = None,
    dry_run: DryRun = False,
    as_json: JSON = False,
) -> None:
    """Search each learner's settings on the first order by AMCA, then run the best on the other orders."""
    refuse_several("bench sweep")
    own = parse_settings(option)
    schedule = Sweep(
        out,
        tuple(dict.fromkeys(benchmarks)),
        tuple(dict.fromkeys(name.strip() for name in learners.split(","))),
        parse_ranges("--orders", orders),
        options,
        own,
        grid,
        parse_rates(lr_grid),
    )
    if dry_run:
        _list(schedule, as_json)
        return
    fixed = fixed_options(options, dict(own))
    progress = _execute(schedule, out / "sweep.json", fixed, execution, data, quiet=as_json)
    summary = schedule.summary(progress.results, progress.failed)
    if as_json:
        _print_json(summary, progress, out)
    else:
        for benchmark, entries in summary["benchmarks"].items():
            _print_table(benchmark, {name: (_words(entry["chosen"]), entry) for name, entry in entries.items()})
        if len(schedule.orders) == 1:
            print("With a single order, the settings were chosen by the same results that are shown.")
        _print_diverged(progress, out)
        _fail_if_no_result(summary, progress, out)


@sweep_options
@execution_options
def ablate(
    benchmarks: Benchmarks,
    options: RunOptions,
    execution: ExecutionOptions,
    orders: Orders = "0-3",
    rows: Annotated[Rows, typer.Option(help="With replay, without it, or both.")] = "both",
    more: Annotated[bool, typer.Option("--more", help="Include the choices that the paper leaves open.")] = False,
    sweep_dir: Annotated[
        Path | None, typer.Option("--sweep", help="Sweep whose learning rate is used with replay, instead of --lr.")
    ] = None,
    lr_grid: Annotated[str | None, typer.Option(help="Learning rates to search without replay.")] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder of the runs; default: that of --sweep, or runs/ablation.")
    ] = None,
    data: Data = Path("data"),
    option: Set = None,
    dry_run: DryRun = False,
    as_json: JSON = False,
) -> None:
    """Leave parts of TPC out, with and without replay, and compare."""
    refuse_several("bench ablate")
    out = out or sweep_dir or Path("runs/ablation")
    names = tuple(dict.fromkeys(benchmarks))
    rates = replay_rates(names, options.lr, sweep_dir, rows)
    base = replace(options, learner_options=parse_settings(option))
    schedule = Ablation(out, names, rates, parse_ranges("--orders", orders), base, rows, more, parse_rates(lr_grid))
    if dry_run:
        _list(schedule, as_json)
        return
    fixed = fixed_options(options, base.own)
    progress = _execute(schedule, out / "ablation.json", fixed, execution, data, quiet=as_json)
    summary = schedule.summary(progress.results, progress.failed)
    if as_json:
        _print_json(summary, progress, out)
    else:
        for benchmark, parts in summary["benchmarks"].items():
            for part, entry in parts.items():
                words = _words({"lr": entry["lr"]})
                _print_table(f"{benchmark}, {part}", {name: (words, c) for name, c in entry["columns"].items()})
        _print_diverged(progress, out)
        _fail_if_no_result(summary, progress, out)


def _execute(
    schedule: Schedule,
    summary: Path,
    fixed: Mapping[str, str],
    execution: ExecutionOptions,
    data: Path,
    *,
    quiet: bool,
) -> Progress:
    """Execute a sweep, once everything is known to be there that it needs; nothing is written before."""
    out = summary.parent
    check_options(out, fixed)
    check_data(schedule, data)
    back_end = execution.back_end(out, data)
    record_options(out, fixed)
    with live(SweepView(quiet=quiet), per_second=2) as view:
        return execute(schedule, summary, back_end, on_progress=view.on_progress)


def _list(schedule: Schedule, as_json: bool) -> None:
    planned = schedule.planned()
    if as_json:
        print_json({"runs": len(planned), "rows": [run._asdict() for run in planned]})
        return
    for run in planned:
        print(f"{run.benchmark}  {run.learner}  {run.text}")
    if not all(job.is_result for job in schedule.jobs({})):
        print("First experiences that learners share are runs beside these, done once.")
    print(f"{len(planned)} runs")


def _print_table(title: str, entries: dict[str, tuple[str, dict[str, Any]]]) -> None:
    """One line per learner or column: what was chosen, and mean and standard deviation over the orders."""
    table = Table(title=title, title_justify="left")
    for name in ("", "setting", "AMCA", "final accuracy", "training time"):
        table.add_column(name, justify="left" if name in ("", "setting") else "right")
    for name, (setting, entry) in entries.items():
        accuracies = [_mean_and_std(entry[key]) for key in ("amca", "final_accuracy")]
        seconds = entry["train_seconds"]["mean"]
        table.add_row(name, setting, *accuracies, "–" if seconds is None else f"{seconds:.1f} s")
    Console().print(table, highlight=False)


def _mean_and_std(value: dict[str, float | None]) -> str:
    return percent(value["mean"]) + ("" if value["std"] is None else f" ± {100 * value['std']:.1f}")


def _words(setting: dict[str, Any] | None) -> str:
    return (
        "–" if not setting else " ".join(f"{name} {value}" for name, value in setting.items() if value is not None)
    )


def _print_json(summary: dict[str, Any], progress: Progress, out: Path) -> None:
    """One document, also if runs failed: then with an "error", and status 1."""
    try:
        _fail_if_no_result(summary, progress, out)
    except TriphaseError as error:
        print(f"error: {error}", file=sys.stderr)
        print_json(summary | {"error": str(error)})
        raise typer.Exit(1) from error
    print_json(summary)


def _print_diverged(progress: Progress, out: Path) -> None:
    results = {job: result for job, result in progress.results.items() if job.is_result}
    diverged = [str(job.directory.relative_to(out)) for job, result in results.items() if result.diverged]
    if diverged:
        print(f"Diverged, and left out: {few(diverged)}.")


def _fail_if_no_result(summary: dict[str, Any], progress: Progress, out: Path) -> None:
    """End with status 1 if any run failed, or if nothing could be chosen because all settings diverged."""
    failed = [str(job.directory.relative_to(out)) for job in progress.failed]
    if failed:
        reason = next(iter(progress.failed.values())).rstrip(".")
        count = f"{len(failed)} of {len(progress.schedule.planned())} runs failed"
        raise TriphaseError(f"{count}: {few(failed)} ({reason}). Run again to try them again.")
    for benchmark, parts in summary["benchmarks"].items():
        for part, entry in parts.items():
            if entry.get("chosen", entry.get("lr")) is None:
                raise TriphaseError(
                    f"Every setting of {part} on {benchmark} diverged: give lower rates by --lr-grid."
                )
