"""Commands that change a model: rename, forget, unteach."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from triphase.app import manage
from triphase.app.removal import forgotten_message
from triphase.app.store.versions import open_store
from triphase.cli.arguments import JSON, ModelFolder, SkipBad
from triphase.cli.device import Device, open_device
from triphase.cli.lesson_view import LessonView
from triphase.cli.live import live
from triphase.cli.printing import print_skipped
from triphase.cli.versions import NEVER_UNKNOWN, print_change
from triphase.printable import count

ClassName = Annotated[str, typer.Argument(metavar="CLASS", help="Name of the class.")]


def rename(
    model: ModelFolder,
    old: Annotated[str, typer.Argument(metavar="OLD", help="Present name of the class.")],
    new: Annotated[str, typer.Argument(metavar="NEW", help="New name.")],
    as_json: JSON = False,
) -> None:
    """Rename a class; rename its folder of photos, too."""
    version = manage.rename(model, old, new)
    print_change(
        as_json, model, version, f"Renamed {old} to {new} in version {version.number}. Rename its folder, too."
    )


def forget(
    model: ModelFolder,
    name: ClassName,
    everywhere: Annotated[
        bool, typer.Option("--everywhere", help="Remove it from all older versions and the history, too.")
    ] = False,
    device: Device = None,
    as_json: JSON = False,
) -> None:
    """Remove a class and everything that is stored of its photos.

    Remove its folder, too: a later `teach` would learn the photos again.
    """
    version = manage.forget(model, name, everywhere=everywhere, device=open_device(device))
    stays = "What the trained layers have learned from its photos remains in their weights."
    older = [number for number in open_store(model).version_numbers() if number != version.number]
    if everywhere:
        text = f"{name} is forgotten in all versions; version {version.number} is in use. {stays}"
    else:
        text = f"{name} is forgotten in version {version.number}. {stays}"
        if older:
            text += " Older versions still contain the class; --everywhere removes it from them, too."
    text += "" if version.info["unknown"] else f" From now on, {NEVER_UNKNOWN}."
    print_change(as_json, model, version, text)


def unteach(
    model: ModelFolder,
    photos: Annotated[
        list[Path], typer.Argument(metavar="PHOTOS", help="Photos, or folders of photos at any depth.")
    ],
    skip_bad: SkipBad = False,
    device: Device = None,
    as_json: JSON = False,
) -> None:
    """Remove photos that were taught, for example with wrong labels.

    They are recognised by their content, wherever they lie now.
    Remove them from their class folder, too: a later `teach` would learn them again.

    Examples:
      triphase unteach my-model photos/cat/7.jpg
      triphase unteach my-model bad-batch/
    """
    before = open_store(model).version().info["classes"]
    where = open_device(device)
    with live(LessonView(quiet=as_json)) as view:
        done = manage.unteach(model, photos, skip_bad=skip_bad, on_event=view.on_event, device=where)
    version, taken = done.version, count(done.images, "photo")
    text = f"Removed {taken} from memory, held-out photos and statistics in version {version.number}."
    for name in before:
        if name not in version.info["classes"]:
            text += f" {forgotten_message(name)}"
    them = "it" if done.images == 1 else "them"
    text += f" What the trained layers have learned from {them} remains in their weights."
    text += f" Older versions still contain {them}."
    text += "" if version.info["unknown"] else f" From now on, {NEVER_UNKNOWN}."
    print_change(as_json, model, version, text, images=done.images, skipped=done.skipped)
    if not as_json:
        print_skipped(done.skipped)
