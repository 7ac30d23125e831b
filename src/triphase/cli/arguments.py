"""Arguments that several commands share."""

from pathlib import Path
from typing import Annotated

import typer

JSON = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of text.")]
ModelFolder = Annotated[Path, typer.Argument(metavar="MODEL", help="Folder of the model.")]
PhotoFolder = Annotated[
    Path, typer.Argument(metavar="PHOTOS", help="Folder with one subfolder of photos per class.")
]
SkipBad = Annotated[bool, typer.Option("--skip-bad", help="Skip photos that cannot be read, and list them.")]
