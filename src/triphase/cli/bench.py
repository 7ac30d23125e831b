"""triphase bench: run benchmarks."""

import json
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
import typer
from rich.console import Console
from rich.table import Table

from triphase import state as files
from triphase.bench.benchmarks import BENCHMARKS, LEARNERS, Options, find, prepare
from triphase.bench.run import Report, run
from triphase.cli.show import Show, percent, print_json
from triphase.data.latents import set_budget
from triphase.errors import InvalidValue

bench = typer.Typer(help="Benchmarks for continual learning.", no_args_is_help=True)

JSON = Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else.")]


@bench.command("list")
def list_benchmarks(as_json: JSON = False) -> None:
    """List the benchmarks and the learners."""
    if as_json:
        print_json(
            {
                "benchmarks": [
                    {
                        "name": b.name,
                        "title": b.title,
                        "backbone": b.backbone,
                        "memory": b.memory,
                        "first": b.first.to_json(),
                        "rest": b.rest.to_json(),
                        "lr_grid": list(b.lr_grid),
                        "evaluation": b.evaluation,
                    }
                    for b in BENCHMARKS.values()
                ],
                "learners": list(LEARNERS),
            }
        )
        return
    table = Table(box=None)
    for column in ("name", "paper's name", "backbone", "memory", "epochs", "n_mbe:n_mbr", "learning rates"):
        table.add_column(column)
    for b in BENCHMARKS.values():
        epochs = f"{b.first.epochs}, then {b.rest.epochs}"
        rates = " ".join(f"{lr:g}" for lr in b.lr_grid)
        ratio = f"{b.rest.n_mbe}:{b.rest.n_mbr}"
        table.add_row(b.name, b.title, b.backbone, str(b.memory), epochs, ratio, rates)
    console = Console()
    console.print(table)
    console.print("\nDATASET:A/B-C makes others: A experiences, B classes first, C each after (cifar100:10/10-10).")
    console.print("folder:A/B-C takes your own photos from --data, one folder per class.")
    console.print(f"Learners: {', '.join(LEARNERS)}.", highlight=False)


@bench.command("run")
def run_benchmark(
    benchmark: Annotated[str, typer.Argument(help="A name of `triphase bench list`, or DATASET:A/B-C.")],
    learner: Annotated[str, typer.Option(help=f"One of {', '.join(LEARNERS)}.")] = "tpc",
    out: Annotated[Path | None, typer.Option(help="Folder of the run; an unfinished run goes on.")] = None,
    data: Annotated[Path, typer.Option(envvar="TRIPHASE_DATA", help="Folder of the datasets.")] = Path("data"),
    order: Annotated[int, typer.Option(help="Class order; 0 is for tuning, 1 to 3 for results.")] = 0,
    seed: Annotated[int, typer.Option(help="Seed of everything else.")] = 0,
    epochs: Annotated[int | None, typer.Option(help="Epochs of every experience.")] = None,
    epochs_scale: Annotated[float, typer.Option(help="Shortens the schedule, to 3 epochs at the least.")] = 1.0,
    lr: Annotated[float | None, typer.Option(help="Learning rate of the head.")] = None,
    csf_lr: Annotated[float | None, typer.Option(help="Learning rate of csf; the same if not given.")] = None,
    memory: Annotated[int | None, typer.Option(help="Samples in the replay memory.")] = None,
    replay: Annotated[str, typer.Option(help="What the memory holds: raw, latent or none.")] = "raw",
    latent_dtype: Annotated[Literal["float32", "float16"], typer.Option(help="Of stored latents.")] = "float32",
    n_mbe: Annotated[int | None, typer.Option(help="Images of the experience in a minibatch.")] = None,
    n_mbr: Annotated[int | None, typer.Option(help="Images of the memory in a minibatch.")] = None,
    augment: Annotated[str | None, typer.Option(help="none, flip, crop+flip or rrc+flip.")] = None,
    trainable: Annotated[Literal["csf", "all"], typer.Option(help="What rivals train.")] = "csf",
    latents: Annotated[
        Literal["float32", "float16", "off"], typer.Option(help="How latents of a frozen llf are kept.")
    ] = "float32",
    views: Annotated[int, typer.Option(help="Random crops kept per image; 0 draws anew each time.", min=0)] = 0,
    latent_budget: Annotated[
        int | None,
        typer.Option(help="MB of latents in memory, more goes to TMPDIR; a quarter.", min=0),
    ] = None,
    backbone: Annotated[str | None, typer.Option(help="Network instead of the benchmark's own.")] = None,
    image_size: Annotated[int | None, typer.Option(help="Side of the images in pixels.")] = None,
    weights: Annotated[Path | None, typer.Option(help="File of pre-trained weights.")] = None,
    norm: Annotated[Literal["bn", "brn"], typer.Option(help="Batch (re)normalisation.")] = "bn",
    head: Annotated[str, typer.Option(help="fixed (all classes from the start) or incremental.")] = "fixed",
    bfloat16: Annotated[bool, typer.Option("--bfloat16", help="Compute csf in bfloat16.")] = False,
    compiled: Annotated[bool, typer.Option("--compile", help="Compile csf with torch.compile.")] = False,
    per_class: Annotated[int | None, typer.Option(help="Use only so many training images a class.")] = None,
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Leave out photos that cannot be read.")] = False,
    option: Annotated[
        list[str] | None, typer.Option("--set", help="NAME=VALUE of the learner, e.g. t=0.3.")
    ] = None,
    threads: Annotated[int | None, typer.Option(min=1, help="CPU threads; all if not given.")] = None,
    save_every: Annotated[float, typer.Option(help="Seconds between saves; 0 saves every step.")] = 1.0,
    profile: Annotated[bool, typer.Option("--profile", help="Write profile.json: where the time went.")] = False,
    as_json: JSON = False,
) -> None:
    """Run one learner on one benchmark; run it again to continue after an interruption."""
    options = Options(
        learner=learner,
        order=order,
        seed=seed,
        epochs=epochs,
        epochs_scale=epochs_scale,
        lr=lr,
        csf_lr=csf_lr,
        memory=memory,
        replay=replay,  # type: ignore[arg-type]  # Options checks it
        latent_dtype=latent_dtype,
        n_mbe=n_mbe,
        n_mbr=n_mbr,
        augment=augment,
        trainable=trainable,
        latents=latents,
        views=views,
        backbone=backbone,
        image_size=image_size,
        weights=weights,
        norm=norm,
        head=head,  # type: ignore[arg-type]  # Options checks it
        bfloat16=bfloat16,
        compiled=compiled,
        per_class=per_class,
        skip_bad=skip_bad,
        learner_options=tuple(_option(text) for text in option or ()),
    )
    if threads is not None:
        torch.set_num_threads(threads)
    if latent_budget is not None:
        set_budget(latent_budget)
    setup = prepare(find(benchmark), options, data)
    directory = out or Path("runs") / f"{_file_name(benchmark)}-{learner}-order{order}-seed{seed}"
    with Show(learner, quiet=as_json) as show:
        report = run(
            setup.learner,
            setup.stream,
            first=setup.first,
            rest=setup.rest,
            out=directory,
            settings=setup.settings,
            watch=show.watch,
            save_every=save_every,
        )
    if profile:
        files.write_json(directory / "profile.json", report.profile)
    if as_json:
        print_json({"run": str(directory), **report.to_json()})
    else:
        _print(directory, report)


def _print(directory: Path, report: Report) -> None:
    phases = ", ".join(f"{name} {seconds:.1f}" for name, seconds in report.phase_seconds.items())
    table = Table.grid(padding=(0, 2))
    table.add_row("AMCA", percent(report.amca) + _of(report))
    table.add_row("final accuracy", percent(report.final_accuracy))
    table.add_row("training time", f"{report.train_seconds:.1f} s ({phases})")
    parts = ", ".join(f"{part} {100 * share:.0f} %" for part, share in report.profile["shares"].items())
    table.add_row("speed", f"{report.profile['images_per_second']:,.0f} images/s ({parts})")
    table.add_row("run", str(directory))
    Console().print(table, highlight=False)


def _of(report: Report) -> str:
    return f" of {percent(report.ceiling)} that perfect learning would reach" if report.ceiling < 1 else ""


def _option(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals:
        raise InvalidValue(f"--set takes NAME=VALUE, got {text!r}.")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


def _file_name(benchmark: str) -> str:
    return benchmark.replace(":", "-").replace("/", "-")
