"""The command-line options of `bench run`, `bench sweep` and `bench ablate`, made from the fields of RunOptions."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from dataclasses import fields
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from triphase.bench.run.options import RunOptions, default, flag, option_infos
from triphase.errors import InvalidValue

Command = Callable[..., None]
Data = Annotated[Path, typer.Option(envvar="TRIPHASE_DATA", help="Folder of the datasets.")]
LatentBudget = Annotated[
    int | None,
    typer.Option(help="MB of latents kept in memory; by default a quarter of it.", min=0),
]
Set = Annotated[list[str] | None, typer.Option("--set", help=option_infos()["learner_options"].help)]


def run_options(command: Command) -> Command:
    """Replace a command's parameter `options` by all fields of RunOptions."""
    return _with_options(command, list(option_infos()))


def sweep_options(command: Command) -> Command:
    """Replace a command's parameter `options` by the fields of RunOptions that a sweep does not set itself."""
    return _with_options(command, [name for name, info in option_infos().items() if info.sweep != "per job"])


def parse_settings(texts: list[str] | None) -> tuple[tuple[str, Any], ...]:
    """NAME=VALUE as --set takes it; a value is JSON, or else a word.

    >>> parse_settings(["t=0.3", "masking=none"])
    (('t', 0.3), ('masking', 'none'))
    """
    pairs: dict[str, Any] = {}
    for text in texts or ():
        name, equals, value = text.partition("=")
        if not equals:
            raise InvalidValue(f"--set takes NAME=VALUE, got {text!r}.")
        try:
            pairs[name] = json.loads(value)
        except ValueError:
            pairs[name] = value
        if isinstance(pairs[name], (list, dict)):
            raise InvalidValue(f"--set takes one value for {name}, got {value!r}.")
    return tuple(pairs.items())


def parameter(name: str) -> inspect.Parameter:
    """A field of RunOptions as a parameter that typer makes an option of."""
    if name == "learner_options":
        return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Set)
    option = typer.Option(flag(name), help=option_infos()[name].help)
    annotation: Any = Annotated[get_type_hints(RunOptions)[name], option]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default(name), annotation=annotation)


def options_from(values: dict[str, Any]) -> RunOptions:
    """The options that the command line gave; takes them out of `values`."""
    given = {f.name: values.pop(f.name) for f in fields(RunOptions) if f.name in values}
    if "learner_options" in given:
        given["learner_options"] = parse_settings(given["learner_options"])
    return RunOptions(**given)


def _with_options(command: Command, names: list[str]) -> Command:
    own = inspect.signature(command, eval_str=True).parameters.values()
    keyword_only = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in own if p.name != "options"]
    parameters = [*keyword_only, *map(parameter, names)]

    @wraps(command)
    def call(**values: Any) -> None:
        command(options=options_from(values), **values)

    call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    call.__annotations__ = {p.name: p.annotation for p in parameters}
    return call
