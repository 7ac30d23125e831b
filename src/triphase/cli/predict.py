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
from triphase.data.photo_files import files_below
from triphase.printable import percent, printable


def predict(
    model: ModelFolder,
    files: Annotated[list[Path], typer.Argument(metavar="FILE", help="Photos, or folders of photos at any depth.")],
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
      triphase predict my-model inbox/ --doubtful-first
      triphase predict my-model new.jpg --json
    """
    photos, faults = _find(files)
    # one photo gains less from a second thread than it loses if that core is busy
    predictor = _open(model, device, threads=1 if len(photos) == 1 else None)
    answers = _answers(predictor, photos, quiet=as_json)
    faults += [answer for answer in answers if isinstance(answer, str)]
    answered = [(file, answer) for file, answer in zip(photos, answers, strict=True) if isinstance(answer, Answer)]
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


def _find(paths: list[Path]) -> tuple[list[Path], list[str]]:
    """The photos among files and in folders, and a sentence for each folder without any."""
    photos: list[Path] = []
    empty: list[str] = []
    for path in paths:
        found = files_below(path).images if path.is_dir() else [path]
        photos += found
        if not found:
            empty.append(f"{path} holds no photo; give photos, or a folder of them.")
    return photos, empty


def _answers(predictor: Predictor, photos: list[Path], *, quiet: bool) -> list[Answer | str]:
    """The answer to each photo, with progress where there are many."""
    if quiet or len(photos) <= predictor.chunk:
        return predictor.answer_files(photos)
    from triphase.cli.lesson_view import LessonView  # imports rich, which one answer does not wait for
    from triphase.cli.live import live

    with live(LessonView()) as view:
        return predictor.answer_files(photos, on_event=view.on_event)


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
