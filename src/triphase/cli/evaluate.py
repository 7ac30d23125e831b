"""triphase evaluate: measure a model on photos that it was not taught."""

from __future__ import annotations

from dataclasses import asdict

from rich.console import Console

from triphase.app import manage
from triphase.cli.arguments import JSON, ModelFolder, PhotoFolder, SkipBad
from triphase.cli.device import Device, open_device
from triphase.cli.lesson_view import LessonView
from triphase.cli.live import live
from triphase.cli.printing import print_json, print_skipped, say
from triphase.cli.tables import cell, plain_table
from triphase.printable import count, percent


def evaluate(
    model: ModelFolder,
    photos: PhotoFolder,
    skip_bad: SkipBad = False,
    device: Device = None,
    as_json: JSON = False,
) -> None:
    """Measure accuracy on photos that the model was not taught."""
    where = open_device(device)
    with live(LessonView(quiet=as_json)) as view:
        result = manage.evaluate(model, photos, skip_bad=skip_bad, on_event=view.on_event, device=where)
    if as_json:
        print_json({"model": str(model), **asdict(result)})
        return
    table = plain_table("class", "photos", "accuracy", "most often confused with")
    for label, name in enumerate(result.classes):
        if name in result.per_class:
            row = result.confusion[label]
            wrong = max((n, other) for other, n in enumerate(row) if other != label) if len(row) > 1 else (0, 0)
            other = f"{result.classes[wrong[1]]} ({wrong[0]})" if wrong[0] else ""
            table.add_row(cell(name), f"{sum(row):,}", percent(result.per_class[name]), cell(other))
    Console().print(table)
    say(f"Accuracy: {percent(result.accuracy)} on {count(result.images, 'photo')}.")
    say(f'Answered with "unknown": {percent(result.unknown_rate)}.')
    if result.taught:
        say(f"The model was taught {result.taught:,} of these photos, so the accuracy is too high.")
    print_skipped(result.skipped)
