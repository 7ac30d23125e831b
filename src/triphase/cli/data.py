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
from triphase.data.sources.inventory import Inventory, Tick
from triphase.data.sources.overview import check_readable, overview
from triphase.data.sources.weights import inventory as weights_inventory
from triphase.printable import printable

DEFAULT = Path("data")
PATIENCE = 2.0  # seconds before progress is shown
COLOURS = {"complete": "green", "incomplete": "yellow", "absent": "dim"}


def data(
    folder: Annotated[
        Path | None,
        typer.Option("--data", envvar="TRIPHASE_DATA", help="Folder of the datasets.", show_default=str(DEFAULT)),
    ] = None,
    as_json: JSON = False,
) -> None:
    """Say where each dataset comes from, which layout is expected, and whether what is in --data is complete."""
    root = folder or DEFAULT
    if folder is not None or root.exists():
        check_readable(root)
    with _counting(quiet=as_json) as tick:
        datasets = overview(root, tick)
        files = {b.weights: b for b in BENCHMARKS.values() if b.weights}
        weights = [weights_inventory(root, name, b.backbone) for name, b in files.items()]
    if as_json:
        print_json({"data": str(root), "datasets": _documents(datasets), "weights": _documents(weights)})
        return
    console = Console(highlight=False, markup=False, soft_wrap=True)
    console.print(f"In {printable(root)}" + ("" if root.exists() else ", which does not exist yet") + ":")
    for inventory in [*datasets, *weights]:
        _print(console, inventory)


def _documents(inventories: list[Inventory]) -> list[dict[str, Any]]:
    return [inventory.to_json() | {"benchmarks": _benchmarks(inventory)} for inventory in inventories]


def _benchmarks(inventory: Inventory) -> list[str]:
    """Those of the paper, and digits, that use it."""
    return [b.name for b in BENCHMARKS.values() if inventory.about.name in (b.dataset, b.weights)]


def _print(console: Console, inventory: Inventory) -> None:
    about = inventory.about
    console.print(Text.assemble("\n", (about.name, "bold"), "  ", (inventory.state, COLOURS[inventory.state])))
    console.print(f"  {about.title}")
    if names := _benchmarks(inventory):
        console.print(f"  for       {', '.join(names)}")
    console.print(f"  from      {about.page}")
    console.print(f"  expected  {about.layout}")
    console.print(f"  found     {', '.join(map(str, inventory.counts)) or 'not known'}")
    for problem in inventory.problems:
        console.print(f"  problem   {printable(problem)}")


@contextmanager
def _counting(*, quiet: bool) -> Iterator[Tick]:
    """In a terminal, how many files were counted, once that takes long."""
    console = Console(stderr=True, quiet=quiet)
    status = console.status("Counting files")
    begin, n = time.monotonic(), 0

    def tick(more: int) -> None:
        nonlocal n
        n += more
        if console.is_terminal and time.monotonic() - begin > PATIENCE:
            status.update(f"Counting files: {n:,}")
            status.start()

    try:
        yield tick
    finally:
        status.stop()
