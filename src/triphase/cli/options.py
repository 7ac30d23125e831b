"""The options that `bench run`, `bench sweep` and `bench ablate` share, written down once."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from triphase.bench.learners import LEARNERS
from triphase.bench.run.options import RunOptions
from triphase.errors import InvalidValue

Data = Annotated[Path, typer.Option(envvar="TRIPHASE_DATA", help="Folder of the datasets.")]
Set = Annotated[list[str] | None, typer.Option("--set", help="NAME=VALUE of the learner, e.g. t=0.3.")]
LatentBudget = Annotated[
    int | None,
    typer.Option(help="MB of latents kept in memory, the rest goes to TMPDIR; by default a quarter.", min=0),
]
NAMES = ", ".join(LEARNERS)


def overriding(
    seed: Annotated[int, typer.Option(help="Seed of everything random but the class order.")] = 0,
    epochs: Annotated[int | None, typer.Option(help="Epochs of every experience.")] = None,
    epochs_scale: Annotated[float, typer.Option(help="Shortens the schedule, to 3 epochs at the least.")] = 1.0,
    lr: Annotated[float | None, typer.Option(help="Learning rate of the head.")] = None,
    csf_lr: Annotated[float | None, typer.Option(help="Learning rate of csf; the same if not given.")] = None,
    weight_decay: Annotated[float | None, typer.Option(help="Weight decay below the head.")] = None,
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
    backbone: Annotated[str | None, typer.Option(help="Network instead of the benchmark's own.")] = None,
    image_size: Annotated[int | None, typer.Option(help="Side of the images in pixels.")] = None,
    weights: Annotated[Path | None, typer.Option(help="File of pre-trained weights.")] = None,
    norm: Annotated[Literal["bn", "brn"], typer.Option(help="Batch (re)normalisation.")] = "bn",
    head: Annotated[str, typer.Option(help="fixed (all classes from the start) or incremental.")] = "fixed",
    bfloat16: Annotated[bool, typer.Option("--bfloat16", help="Compute csf in bfloat16.")] = False,
    compiled: Annotated[bool, typer.Option("--compile", help="Compile csf with torch.compile.")] = False,
    per_class: Annotated[int | None, typer.Option(help="Use only so many training images a class.")] = None,
    classes: Annotated[str | None, typer.Option(help="Use only these classes, by label: 50-99 or 0,3,7.")] = None,
    evaluate_every: Annotated[int | None, typer.Option(help="Evaluate after every N-th experience only.")] = None,
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Leave out photos that cannot be read.")] = False,
) -> RunOptions:
    """What a person may change about a benchmark, whoever learns."""
    return RunOptions(**locals())


def takes_options(command: Callable[..., None]) -> Callable[..., None]:
    """Replace a command's parameter `options` by those of `overriding`."""
    shared = inspect.signature(overriding, eval_str=True).parameters
    own = inspect.signature(command, eval_str=True).parameters
    every = [p for p in [*own.values(), *shared.values()] if p.name != "options"]

    @wraps(command)
    def call(**values: Any) -> None:
        options = overriding(**{name: values.pop(name) for name in shared})
        command(options=options, **values)

    signature = inspect.Signature([p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in every])
    call.__signature__ = signature  # type: ignore[attr-defined]
    call.__annotations__ = {p.name: p.annotation for p in every}
    return call


def parse_sets(texts: list[str] | None) -> tuple[tuple[str, Any], ...]:
    """NAME=VALUE as given; a value is JSON, or else a word.

    >>> parse_sets(["t=0.3", "masking=none"])
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
