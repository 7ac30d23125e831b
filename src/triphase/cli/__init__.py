"""The command line: parse, call, print."""

import ctypes
import errno
import os
import sys
import warnings
from typing import Annotated, TextIO

import typer

from triphase import __version__
from triphase.cli.bench import bench
from triphase.cli.data import data
from triphase.cli.demo import demo
from triphase.cli.model import classes, evaluate, forget, history, predict, rename, status, undo, unteach
from triphase.cli.teach import teach
from triphase.cli.usage import PrintableUsage
from triphase.errors import TriphaseError, TriphaseWarning
from triphase.printable import printable

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
CTRL_C = 130  # what typer makes of a KeyboardInterrupt

app = typer.Typer(
    cls=PrintableUsage,
    help="Continual learning that people use: teach an image classifier new classes without forgetting the old.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
for command in (teach, predict, evaluate, status, history, classes, undo, rename, forget, unteach, demo, data):
    app.command()(command)
app.add_typer(bench, name="bench")


def _version(asked: bool) -> None:
    if asked:
        print(f"triphase {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", help="Say which version this is.", callback=_version)
    ] = False,
) -> None:
    """What can be said before a command."""


def main() -> None:
    """Run a command; what a person can mend is told in a sentence, with exit status 1."""
    _keep_freed_memory()
    warnings.simplefilter("ignore")
    warnings.simplefilter("always", TriphaseWarning)
    warnings.showwarning = _show_warning
    try:
        app()
    except TriphaseError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(1)
    except OSError as error:  # a file that may not be read, a disk that is full
        if isinstance(error, BrokenPipeError) or (error.filename is None and error.errno not in FULL):
            raise
        where = "" if error.filename is None else f"{printable(os.fsdecode(error.filename))}: "
        print(f"error: {where}{error.strerror}.", file=sys.stderr)
        sys.exit(1)
    except SystemExit as end:
        if end.code != CTRL_C:
            raise
        print("Stopped.", file=sys.stderr)
        sys.exit(1)


def _keep_freed_memory() -> None:
    """Have glibc keep what a training step frees for the next one, which spares the page faults."""
    if sys.platform == "linux" and hasattr(libc := ctypes.CDLL(None), "mallopt"):
        M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
        libc.mallopt(M_MMAP_THRESHOLD, 32 << 20)  # the most that glibc allows
        libc.mallopt(M_TRIM_THRESHOLD, 1 << 30)


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    print(f"warning: {message}", file=sys.stderr)
