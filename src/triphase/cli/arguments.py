"""Arguments that several commands share."""

from pathlib import Path
from typing import Annotated

import typer

JSON = Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else.")]
ModelFolder = Annotated[Path, typer.Argument(metavar="MODEL", help="Folder of the model.")]
PhotoFolder = Annotated[
    Path, typer.Argument(metavar="PHOTOS", help="Folder with one folder of photos for each class.")
]
SkipBad = Annotated[bool, typer.Option("--skip-bad", help="Go on without photos that cannot be read.")]
