"""triphase teach: learn what is new in a folder of photos."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.console import Console
from rich.table import Table

from triphase.app.options import LEARNERS, ModelOptions, parse_memory
from triphase.app.plan import KEEP, LessonSettings, Plan
from triphase.app.publishing import Outcome
from triphase.app.teach import dry_run as dry_run_lesson
from triphase.app.teach import teach as teach_lesson
from triphase.cli.arguments import JSON, PhotoFolder, SkipBad
from triphase.cli.consolidate import (
    KeepOption,
    PrecisionOption,
    consolidate_shown,
    print_consolidation,
    restore_threads,
)
from triphase.cli.device import Device, open_device
from triphase.cli.lesson_view import LessonView
from triphase.cli.live import live
from triphase.cli.printing import print_json, print_skipped, say
from triphase.cli.tables import cell
from triphase.context import Context
from triphase.errors import Interrupted, InvalidValue, few
from triphase.printable import count, percent

NEW: dict[str, Any] = {"rich_help_panel": "Options of a new model (an existing one keeps its own)"}
DEFAULT = ModelOptions()


def teach(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="Folder of the model; created if there is none.")],
    photos: PhotoFolder,
    max_drop: Annotated[float, typer.Option(help="Accuracy that known classes may lose: 0.02 is 2 points.")] = 0.02,
    force: Annotated[bool, typer.Option("--force", help="Publish even a lesson that would be refused.")] = False,
    quick: Annotated[
        bool, typer.Option("--quick", help="Publish a first version within seconds, then the whole lesson.")
    ] = False,
    thorough: Annotated[bool, typer.Option("--thorough", help="Run `consolidate` after the lesson.")] = False,
    unlabelled: Annotated[
        Literal["ignore", "pseudo"],
        typer.Option(help="Photos in PHOTOS/_unlabelled: ignore, or learn the clear ones."),
    ] = "ignore",
    skip_bad: SkipBad = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be learned; write nothing.")] = False,
    keep: KeepOption = KEEP,
    device: Device = None,
    precision: PrecisionOption = "float32",
    as_json: JSON = False,
    memory: Annotated[
        str | None,
        typer.Option(
            help="Size of the replay memory: photos, or bytes such as 50MB.",
            show_default=str(DEFAULT.memory),
            **NEW,
        ),
    ] = None,
    replay: Annotated[
        Literal["raw", "latent", "none"] | None,
        typer.Option(
            help="What to store of photos: pixels, features or nothing.", show_default=DEFAULT.replay, **NEW
        ),
    ] = None,
    learner: Annotated[
        str | None, typer.Option(help=f"One of {', '.join(LEARNERS)}.", show_default=DEFAULT.learner, **NEW)
    ] = None,
    backbone: Annotated[
        str | None,
        typer.Option(
            help="Network: auto, efficientnet_lite0 to efficientnet_lite2, or timm:NAME.",
            show_default=DEFAULT.backbone,
            **NEW,
        ),
    ] = None,
    weights: Annotated[
        Path | None, typer.Option(help="File with weights of the network.", show_default="its own", **NEW)
    ] = None,
    image_size: Annotated[
        int | None,
        typer.Option(min=1, help="Photos are scaled to this many pixels.", show_default="224", **NEW),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Random seed.", show_default=str(DEFAULT.seed), **NEW)] = None,
) -> None:
    """Teach a model new classes, or more photos of known ones.

    Photos that were taught before are recognised and skipped, so the same folder may grow for ever.
    A photo that has moved to another class folder is a correction.
    The new version is published unless it has forgotten too much.

    Examples:
      triphase teach my-model photos/              photos/cat/1.jpg and so on
      triphase teach my-model photos/ --dry-run    show what is new
      triphase teach my-model photos/ --quick      answer in seconds, then go on
    """
    given = {
        "memory": None if memory is None else _memory(memory),
        "replay": replay,
        "learner": learner,
        "backbone": backbone,
        "image_size": image_size,
        "seed": seed,
        "weights": None if weights is None else str(weights),
    }
    given = {name: value for name, value in given.items() if value is not None}
    settings = LessonSettings(max_drop, force, quick, skip_bad, keep, unlabelled, precision, thorough)
    restore_threads(model)
    where = open_device(device)
    context = Context(engine="auto", device=where)
    with live(LessonView(quiet=as_json)) as view:
        if dry_run:
            plan = dry_run_lesson(model, photos, given, settings, on_event=view.on_event, context=context)
        else:
            try:
                outcome = teach_lesson(model, photos, given, settings, on_event=view.on_event, context=context)
            except KeyboardInterrupt as error:
                raise Interrupted("Stopped; run the same command to continue.") from error
    if dry_run:
        print_json({"model": str(model), **plan.to_json()}) if as_json else _print_plan(plan)
        return
    if not as_json:
        _print_outcome(outcome)
    extra: dict[str, Any] = {}
    if thorough and outcome.refusal is None:
        try:
            consolidation = consolidate_shown(model, quiet=as_json, device=where, precision=precision, keep=keep)
            extra = {"consolidation": consolidation.to_json()}
            if not as_json:
                print_consolidation(consolidation)
        except InvalidValue as error:  # a lesson can leave too little to consolidate, and is published all the same
            note = f"Not consolidated: {error}"
            extra = {"consolidation": None, "notes": [*outcome.notes, note]}
            if not as_json:
                say(note)
    if as_json:
        print_json({"model": str(model), **outcome.to_json(), **extra, "error": outcome.refusal})
    if outcome.refusal is not None:
        print(f"error: {outcome.refusal}", file=sys.stderr)
        raise typer.Exit(1)


def _memory(text: str) -> int | str:
    """A number of samples as int; bytes as they were written."""
    number, in_bytes = parse_memory(text)
    return text if in_bytes else number


def _print_plan(found: Plan) -> None:
    table = Table(box=None)
    table.add_column("class")
    table.add_column("photos to learn", justify="right")
    for name, n in found.counts.items():
        table.add_row(cell(name), f"{n:,}{' (new)' if name in found.new_classes else ''}")
    if found.counts:
        Console().print(table)
    known, moved = found.n_known_already, found.n_corrected
    what = "Nothing to learn" if not found.counts else f"{count(len(found.photos), 'photo')} would be learned"
    say(f"{what}{_left_out(known, moved)}. Nothing was written.")
    if n := len(found.unlabelled.images):
        say(f"{count(n, 'photo')} without a class would be considered, and learned if their class is clear.")
    print_skipped(found.photos.skipped)
    for note in (*found.photos.remarks, *found.doubtful):
        say(note)


def _left_out(known: int, moved: int) -> str:
    parts = [f"{moved:,} moved from another class"] if moved else []
    parts += [f"{known:,} had been taught before"] if known else []
    return "".join(f"; {part}" for part in parts)


def _print_outcome(outcome: Outcome) -> None:
    table = Table(box=None)
    table.add_column("class")
    for name in ("photos learned", "accuracy before", "accuracy after", "held-out photos"):
        table.add_column(name, justify="right")
    for line in outcome.classes:
        before = "new" if line.new else _checked(line.before)
        held = f"{line.exemplars:,}" if line.exemplars else ""
        table.add_row(cell(line.name), f"{line.images:,}", before, _checked(line.after), held)
    if outcome.classes:
        Console().print(table)
    unchecked = [line.name for line in outcome.classes if line.after is None]
    if 0 < len(unchecked) < len(outcome.classes):
        say(f"No photo of {few(unchecked)} could be held out: teach more photos to have accuracy checked.")
    if outcome.learned:
        say(f"Learned {count(outcome.learned, 'photo')}{_left_out(outcome.known_already, outcome.corrected)}.")
    verdict = outcome.verdict
    if verdict.before is not None and verdict.after is not None:
        say(
            f"Accuracy among the classes known before: {percent(verdict.before)} -> {percent(verdict.after)} "
            f"on {count(verdict.n, 'held-out photo')}."
        )
    if outcome.confused:
        pairs = [f"{old} taken for {new} ({n} of {of})" for old, new, n, of in outcome.confused]
        say(f"Known classes confused with new ones: {few(pairs)}.")
    print_skipped(outcome.skipped)
    for note in outcome.notes:
        say(note)
    if outcome.published:
        forced = ", by force: more was forgotten than allowed" if verdict.refused else ""
        forced = forced or (", by force: its labels look mixed up" if outcome.labels_mixed_up else "")
        say(f"Version {outcome.version} is in use{forced}. The lesson took {outcome.seconds:.1f} s.")


def _checked(accuracy: float | None) -> str:
    return "not checked" if accuracy is None else percent(accuracy)
