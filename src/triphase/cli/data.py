"""triphase data: where datasets come from, and whether what is there is complete."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from triphase.bench.benchmarks import BENCHMARKS
from triphase.cli.arguments import JSON
from triphase.cli.printing import print_json
from triphase.data.sources.data_folder import check_datasets, check_readable
from triphase.data.sources.integrity import Integrity, Progress
from triphase.data.sources.pretrained import check_weights
from triphase.printable import printable

DEFAULT = Path("data")
SHOW_AFTER = 2.0  # seconds before progress is shown
COLOURS = {"complete": "green", "incomplete": "yellow", "absent": "dim"}


def data(
    folder: Annotated[
        Path | None,
        typer.Option("--data", envvar="TRIPHASE_DATA", help="Folder of the datasets.", show_default=str(DEFAULT)),
    ] = None,
    as_json: JSON = False,
) -> None:
    """Show where each dataset comes from, its layout, and whether --data is complete."""
    root = folder or DEFAULT
    if folder is not None or root.exists():
        check_readable(root)
    with _counting(quiet=as_json) as progress:
        datasets = check_datasets(root, progress)
        files = {b.weights: b for b in BENCHMARKS.values() if b.weights}
        weights = [check_weights(root, name, b.backbone) for name, b in files.items()]
    if as_json:
        print_json({"data": str(root), "datasets": _documents(datasets), "weights": _documents(weights)})
        return
    console = Console(highlight=False, markup=False, soft_wrap=True)
    console.print(f"In {printable(root)}" + ("" if root.exists() else ", which does not exist yet") + ":")
    for dataset in [*datasets, *weights]:
        _print(console, dataset)


def _documents(datasets: list[Integrity]) -> list[dict[str, Any]]:
    return [dataset.to_json() | {"benchmarks": _benchmarks(dataset)} for dataset in datasets]


def _benchmarks(dataset: Integrity) -> list[str]:
    """Those of the paper, and digits, that use it."""
    return [b.name for b in BENCHMARKS.values() if dataset.info.name in (b.dataset, b.weights)]


def _print(console: Console, dataset: Integrity) -> None:
    info = dataset.info
    console.print(Text.assemble("\n", (info.name, "bold"), "  ", (dataset.state, COLOURS[dataset.state])))
    console.print(f"  {info.title}")
    if names := _benchmarks(dataset):
        console.print(f"  for       {', '.join(names)}")
    console.print(f"  from      {info.page}")
    console.print(f"  expected  {info.layout}")
    console.print(f"  found     {', '.join(map(str, dataset.counts)) or 'not known'}")
    for problem in dataset.problems:
        console.print(f"  problem   {printable(problem)}")


@contextmanager
def _counting(*, quiet: bool) -> Iterator[Progress]:
    """Show the number of counted files in a terminal, once it takes more than SHOW_AFTER seconds."""
    console = Console(stderr=True, quiet=quiet)
    status = console.status("Counting files")
    begin, n = time.monotonic(), 0

    def progress(more: int) -> None:
        nonlocal n
        n += more
        if console.is_terminal and time.monotonic() - begin > SHOW_AFTER:
            status.update(f"Counting files: {n:,}")
            status.start()

    try:
        yield progress
    finally:
        status.stop()
