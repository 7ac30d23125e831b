"""triphase bench report: tables and figures of runs."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from triphase.cli.arguments import JSON
from triphase.cli.printing import print_json, say
from triphase.printable import printable


def report(
    runs: Annotated[list[Path], typer.Argument(help="Folders of runs or sweeps, or folders that contain them.")],
    out: Annotated[Path, typer.Option(help="Folder for report.html, tables and figures.")] = Path("report"),
    as_json: JSON = False,
) -> None:
    """Put runs into the paper's tables and figures, beside the paper's own numbers."""
    from triphase.bench.report.write import write_report  # matplotlib is slow to import

    written = write_report(runs, out)
    if as_json:
        tables = {table.name: table.records for table in written.tables}
        print_json({"report": str(written.page), "tables": tables, "notes": written.caveats})
        return
    console = Console()
    for table in written.tables[:2]:
        shown = Table(title=table.title, title_justify="left")
        for name in ("", *table.header[1:]):
            shown.add_column(name)
        for row in table.rows:
            shown.add_row(*(Text(printable(cell.text), "bold" if cell.best else "") for cell in row))
        console.print(shown, highlight=False)
    for caveat in written.caveats:
        say(f"- {caveat}")
    say(f"The page is {written.page}")
