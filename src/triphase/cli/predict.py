"""triphase predict: classify photos."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from triphase.app.predictor import Answer, Predictor
from triphase.cli.arguments import JSON, ModelFolder
from triphase.cli.device import Device, report_device
from triphase.cli.printing import print_json, print_rows
from triphase.printable import percent, printable


def predict(
    model: ModelFolder,
    files: Annotated[list[Path], typer.Argument(metavar="FILE", help="Photos to classify.")],
    doubtful_first: Annotated[
        bool, typer.Option("--doubtful-first", help="Sort the answers: those to check first come first.")
    ] = False,
    device: Device = None,
    as_json: JSON = False,
) -> None:
    """Classify photos: a class with its probability, or "unknown".

    A file that cannot be read is reported; the others are answered.

    Examples:
      triphase predict my-model new.jpg
      triphase predict my-model inbox/*.jpg --doubtful-first
      triphase predict my-model new.jpg --json
    """
    # one photo gains less from a second thread than it loses if that core is busy
    answers = _open(model, device, threads=1 if len(files) == 1 else None).answer_files(files)
    faults = [answer for answer in answers if isinstance(answer, str)]
    answered = [(file, answer) for file, answer in zip(files, answers, strict=True) if isinstance(answer, Answer)]
    if doubtful_first:
        answered.sort(key=lambda one: -one[1].doubt)
    if as_json:
        rows = [{"file": str(file), **asdict(answer)} for file, answer in answered]
        print_json({"model": str(model), "answers": rows, "errors": faults})
    else:
        print_rows([_row(file, answer) for file, answer in answered])
    for fault in faults:
        print(f"error: {fault}", file=sys.stderr)
    if faults:
        raise typer.Exit(1)


def _row(file: Path, answer: Answer) -> tuple[str, str, str]:
    sure = percent(answer.probability)
    doubt = sure if answer.known else f"(best guess: {printable(answer.best)}, {sure})"
    return printable(file), printable(answer.label), doubt


def _open(model: Path, device: str | None, threads: int | None) -> Predictor:
    """The predictor of a model, after the device that it computes on has been reported."""
    predictor = Predictor.open(model, device or "auto", threads)
    if device == "auto" or predictor.device != "cpu":
        report_device(device, predictor.device)
    return predictor
