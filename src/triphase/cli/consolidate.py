"""triphase consolidate: train a model again on everything it has stored."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import torch
import typer

from triphase.app.consolidate import Consolidation
from triphase.app.consolidate import consolidate as consolidate_model
from triphase.app.lesson_checkpoint import LessonCheckpoint
from triphase.app.plan import KEEP, LessonPrecision
from triphase.cli.arguments import JSON, ModelFolder
from triphase.cli.device import Device, open_device
from triphase.cli.lesson_view import LessonView
from triphase.cli.live import live
from triphase.cli.printing import print_json, say
from triphase.errors import Interrupted
from triphase.printable import count

PrecisionOption = Annotated[
    LessonPrecision,
    typer.Option("--precision", help="Precision of activations in training; bfloat16 can be faster."),
]

KeepOption = Annotated[int, typer.Option("--keep", min=1, help="Number of versions to keep for undo.")]


def consolidate(
    model: ModelFolder,
    minutes: Annotated[float | None, typer.Option(help="Time limit, approximately; by default 8 epochs.")] = None,
    keep: KeepOption = KEEP,
    device: Device = None,
    precision: PrecisionOption = "float32",
    as_json: JSON = False,
) -> None:
    """Train a model again on everything it has stored, for example overnight.

    It needs no photos. The result is published only if it is better on held-out photos.

    Examples:
      triphase consolidate my-model
      triphase consolidate my-model --minutes 30
    """
    where = open_device(device)
    outcome = consolidate_shown(model, minutes, quiet=as_json, device=where, precision=precision, keep=keep)
    print_json({"model": str(model), **outcome.to_json()}) if as_json else print_consolidation(outcome)


def consolidate_shown(
    model: Path,
    minutes: float | None = None,
    *,
    quiet: bool = False,
    device: torch.device,
    precision: LessonPrecision = "float32",
    keep: int = KEEP,
) -> Consolidation:
    """Consolidate with progress on the terminal."""
    restore_threads(model)
    with live(LessonView(quiet=quiet)) as view:
        try:
            return consolidate_model(
                model, minutes, keep=keep, on_event=view.on_event, device=device, precision=precision
            )
        except KeyboardInterrupt as error:
            raise Interrupted("Stopped; run the same command to continue.") from error


def print_consolidation(outcome: Consolidation) -> None:
    """Print the result."""
    for note in outcome.notes:
        say(note)
    say(
        f"Trained {count(outcome.epochs, 'epoch')} on {count(outcome.samples, 'stored photo')} in "
        f"{outcome.seconds:.1f} s; {count(outcome.after.n, 'held-out photo')} evaluated it."
    )
    say(outcome.verdict)


def restore_threads(model: Path) -> None:
    """Continue an interrupted lesson with its number of threads: another number would give another model."""
    threads = LessonCheckpoint.recorded_threads(model)
    if threads is not None:
        torch.set_num_threads(threads)
