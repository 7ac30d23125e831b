"""Photos in folders, found by name or content; nothing here needs torch, which takes long to import."""

import os
from pathlib import Path
from typing import NamedTuple

from triphase.data.decoding import image_suffixes, is_picture
from triphase.errors import BadData


class ClassFolder(NamedTuple):
    """A folder of photos of one class; its files lie in it at any depth, sorted."""

    path: Path
    images: list[Path]
    others: list[Path]


def files_below(start: Path) -> ClassFolder:
    """The images in a folder at any depth and the other files. Links are followed; cycles of links are not."""
    try:
        files = _walk(start)
        images = [path for path in files if is_image(path)]
    except OSError as error:
        raise BadData(f"{start} cannot be listed ({error}); allow reading it.") from error
    return ClassFolder(start, images, sorted(set(files) - set(images)))


def is_image(path: Path) -> bool:
    """Whether the name or else the content says image; a dangling link counts (it is broken), a pipe does not."""
    if path.suffix.lower() in image_suffixes():
        return path.is_file() or (path.is_symlink() and not path.exists())
    return path.is_file() and is_picture(path)


def _walk(start: Path) -> list[Path]:
    """Everything in a folder that is no folder, at any depth, sorted."""
    found: list[Path] = []
    around = set(start.resolve().parents)  # a link back to one of these would bring in the other classes
    visited: set[Path] = set()
    waiting = [start]
    while waiting:
        here = waiting.pop()
        real = here.resolve()
        if real in visited or real in around:
            continue
        visited.add(real)
        for entry in (here / name for name in listdir(here)):
            (waiting if entry.is_dir() else found).append(entry)
    return sorted(found)


def listdir(folder: Path) -> list[str]:
    """The sorted names in a folder without the hidden ones; none if there is no such folder."""
    try:
        return sorted(name for name in os.listdir(folder) if not name.startswith("."))
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise BadData(f"{folder} cannot be listed ({error}); allow reading it.") from error
