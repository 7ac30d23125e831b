"""The command line: parse, call, print."""

import ast
import ctypes
import errno
import json
import os
import sys
import warnings
from collections.abc import Sequence
from importlib import import_module
from importlib.resources import files
from typing import Annotated, TextIO

import typer

from triphase import __version__
from triphase.cli.usage import Command, PrintableUsage
from triphase.errors import ProcessFailed, TriphaseError, TriphaseWarning, is_out_of_memory
from triphase.interrupt import exit_at_ctrl_c
from triphase.printable import printable

DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
WRONG_USAGE = 2
CTRL_C = 130  # what typer makes of a KeyboardInterrupt
# Command -> the module here that defines it: only that one is imported, because imports take longest.
COMMANDS = {
    "teach": "teach",
    "predict": "predict",
    "evaluate": "evaluate",
    "consolidate": "consolidate",
    "export": "export",
    "serve": "serve",
    "status": "versions",
    "classes": "versions",
    "history": "versions",
    "undo": "versions",
    "rename": "model",
    "unteach": "model",
    "forget": "model",
    "demo": "demo",
    "bench": "bench",
    "data": "data",
}
PANELS = {
    "Teach and use a model": ("teach", "predict", "evaluate", "consolidate", "export", "serve"),
    "Look after a model": ("status", "classes", "history", "undo", "rename", "unteach", "forget"),
    "Demonstration and research": ("demo", "bench", "data"),
}


def build(arguments: Sequence[str]) -> typer.Typer:
    """The command that these arguments name; without one, all of them as help lists them."""
    app = typer.Typer(
        cls=PrintableUsage,
        help="Teach an image classifier new classes without forgetting the old ones.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
    )
    app.callback()(_options)
    named = next((word for word in arguments if word in COMMANDS), None)
    for title, names in PANELS.items():
        for name in names if named is None else set(names) & {named}:
            _add(app, name, title, listed_only=named is None)
    return app


def _add(app: typer.Typer, name: str, panel: str, *, listed_only: bool) -> None:
    """Add a command; one that is only listed is not imported."""
    if listed_only:
        app.command(name, cls=Command, help=_docstring(name), rich_help_panel=panel)(lambda: None)
        return
    command = getattr(import_module(f"triphase.cli.{COMMANDS[name]}"), name)
    if isinstance(command, typer.Typer):
        app.add_typer(command, name=name, rich_help_panel=panel)
    else:
        app.command(name, cls=Command, rich_help_panel=panel)(command)


def _docstring(name: str) -> str:
    """The docstring of a command, or of its module if it is a group, read without importing the module."""
    module = ast.parse((files("triphase.cli") / f"{COMMANDS[name]}.py").read_text(encoding="utf-8"))
    functions = [node for node in module.body if isinstance(node, ast.FunctionDef) and node.name == name]
    return ast.get_docstring(functions[0] if functions else module) or ""


def _version(asked: bool) -> None:
    if asked:
        print(f"triphase {__version__}")
        raise typer.Exit


def _options(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version of triphase.", callback=_version)
    ] = False,
) -> None:
    """Options before the command."""


def main() -> None:
    """Run a command; an error that the user can fix is printed as one sentence, with exit status 1."""
    _keep_freed_memory()
    warnings.simplefilter("ignore")
    if _prints():
        warnings.simplefilter("always", TriphaseWarning)
    warnings.showwarning = _show_warning
    try:
        with exit_at_ctrl_c():
            app = build(sys.argv[1:])
        app()
    except TriphaseError as error:
        if not _prints() and not isinstance(error, ProcessFailed):
            sys.exit(1)  # the first process says the same
        _fail(str(error))
    except OSError as error:  # a file that may not be read, a disk that is full
        if isinstance(error, BrokenPipeError) or (error.filename is None and error.errno not in DISK_FULL):
            raise
        where = "" if error.filename is None else f"{printable(os.fsdecode(error.filename))}: "
        _fail(f"{where}{error.strerror}.")
    except Exception as error:  # of torch, numpy or ONNX Runtime
        if not is_out_of_memory(error):
            raise
        _fail("There is not enough memory: use another --device, or smaller images.")
    except SystemExit as end:
        if end.code == WRONG_USAGE and "--json" in sys.argv and _prints():
            print(json.dumps({"error": "Wrong usage; standard error says what is wrong."}))
        if end.code != CTRL_C:
            raise
        if _prints():
            print("Stopped.", file=sys.stderr)
        sys.exit(1)


def _prints() -> bool:
    """Whether this process prints: not if torchrun started it and it is not the first."""
    return os.environ.get("WORLD_SIZE", "1") == "1" or os.environ.get("RANK", "0") == "0"


def _fail(sentence: str) -> None:
    """Say what went wrong: to people on stderr, with --json as a document on stdout as well."""
    print(f"error: {sentence}", file=sys.stderr)
    if "--json" in sys.argv:
        print(json.dumps({"error": sentence}))
    sys.exit(1)


def _keep_freed_memory() -> None:
    """Let glibc keep freed memory for the next training step, which avoids page faults."""
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
