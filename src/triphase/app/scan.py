"""Photos on a disk: which there are, and which of them were taught before."""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from triphase.app.class_names import class_name
from triphase.app.near_duplicates import SIDE, dhash
from triphase.data.images import Images, decode, decode_pool, printable
from triphase.data.sources.folder import class_folders, images_below, layout
from triphase.data.sources.listing import file_digest, ids_from
from triphase.errors import BadData, InvalidValue

AT_ONCE = 32  # files handed to the threads together, so that a huge folder does not fill the memory
Watch = Callable[[dict[str, Any]], object]


@dataclass(frozen=True)
class Photos:
    """The photos to learn from a folder, each content once, sorted by class and path.

    An id is a hash of the file's bytes, so a photo that was copied or renamed is recognised without decoding it,
    for ever: pixels would depend on the decoder's version. One that was edited or compressed anew is another
    photo, and `near_duplicates` puts it into the group of the first.
    """

    paths: list[Path]
    names: list[str]  # classes that have photos in the folder, sorted
    labels: Tensor  # (n,) rows of `names`
    ids: Tensor  # (n,)
    hashes: Tensor  # (n, 2) from `dhash`
    moved: Tensor  # (n,) bool: taught before, as another class
    taught: dict[str, int]  # photos left out because they have been taught before, per class
    repeats: int  # further copies within a class
    skipped: list[str]  # a sentence for each photo that cannot be read (only with skip_bad)
    notes: list[str]  # sentences about what is odd, but no mistake

    def __len__(self) -> int:
        return len(self.paths)

    def images(self, size: int) -> Images:
        """The photos as size x size RGB, decoded on demand."""
        return Images.from_files(self.paths, self.labels, self.ids, size)


class _File(NamedTuple):
    name: str  # of the class
    path: Path
    id: int = 0
    hash: tuple[int, int] | None = None  # None for a photo that is not to be learned
    fault: str = ""


def scan(
    root: Path,
    *,
    taught: Mapping[int, str] | None = None,
    skip_bad: bool = False,
    watch: Watch = lambda event: None,
) -> Photos:
    """Look at every photo in the class folders of `root` once.

    `taught` says which ids have been taught as which class; those are counted, not decoded again. `watch` is told
    {"event": "scan", "done": n, "total": n}. Photos that cannot be read are refused by name, or left out with
    skip_bad; the same photo in two classes is refused.
    """
    root, before = Path(root), taught or {}
    listed, notes = _list(root)
    files: list[_File] = []
    for first in range(0, len(listed), AT_ONCE):
        files += _look(listed[first : first + AT_ONCE], before)
        watch({"event": "scan", "done": len(files), "total": len(listed)})
    bad = [file for file in files if file.fault]
    if bad and not skip_bad:
        more = f" {len(bad)} in all: {_few([printable(file.path) for file in bad])}." if len(bad) > 1 else ""
        raise BadData(f"{bad[0].fault}{more} To go on without, use --skip-bad.")
    good = [file for file in files if not file.fault]
    if not good:
        raise BadData(f"No folder in {printable(root)} holds a photo that can be read; {layout(root)}.")
    distinct = _distinct(good)
    fresh = [file for file in distinct if file.hash is not None]
    names = sorted({file.name for file in distinct})
    number = {name: label for label, name in enumerate(names)}
    return Photos(
        paths=[file.path for file in fresh],
        names=names,
        labels=torch.tensor([number[file.name] for file in fresh], dtype=torch.long),
        ids=torch.tensor([file.id for file in fresh], dtype=torch.long),
        hashes=torch.tensor([file.hash for file in fresh], dtype=torch.long).view(-1, 2),
        moved=torch.tensor([file.id in before for file in fresh], dtype=torch.bool),
        taught=dict(Counter(file.name for file in distinct if file.hash is None)),
        repeats=len(good) - len(distinct),
        skipped=[file.fault for file in bad],
        notes=notes,
    )


def recognise(
    places: Sequence[Path],
    taught: Collection[int],
    *,
    skip_bad: bool = False,
    watch: Watch = lambda event: None,
) -> tuple[list[Path], Tensor]:
    """The photos in some files and folders, at any depth, that were taught: each content once, and their ids."""
    listed: list[Path] = []
    for place in places:
        if not place.exists():
            raise BadData(f"There is no file or folder {printable(place)}; check the spelling.")
        if not place.is_dir() and not place.is_file():  # reading a pipe might never end
            raise BadData(f"{printable(place)} is neither a file nor a folder; give photos, or folders of them.")
        listed += images_below(place)[0] if place.is_dir() else [place]
    found: dict[int, Path] = {}
    for first in range(0, len(listed), AT_ONCE):
        some = listed[first : first + AT_ONCE]
        for path, id_ in zip(some, decode_pool().map(_id, some), strict=True):
            if isinstance(id_, str) and not skip_bad:
                raise BadData(f"{id_} To go on without, use --skip-bad.")
            if isinstance(id_, int) and id_ in taught:
                found.setdefault(id_, path)
        watch({"event": "scan", "done": first + len(some), "total": len(listed)})
    return list(found.values()), torch.tensor(list(found), dtype=torch.long)


def _id(path: Path) -> int | str:
    """What a photo is recognised by, or a sentence why it cannot be read."""
    try:
        return int(ids_from([file_digest(path)]))
    except OSError as error:
        return f"{printable(path)} cannot be read ({error.strerror}); allow reading it, or remove it."


def _list(root: Path) -> tuple[list[_File], list[str]]:
    """All images in the class folders with their class, and what is odd about the folders."""
    files: list[_File] = []
    notes: list[str] = []
    inner: dict[str, list[str]] = {}  # class folder -> its subfolders, if all its photos are in some
    folders = class_folders(root)
    for folder in folders:
        name = _class_of(root / folder)
        images, others = images_below(root / folder)
        files += [_File(name, path) for path in images]
        if not images:
            also = f" ({len(others)} other files, such as {printable(others[0])})" if others else ""
            notes.append(f"Folder {name} holds no photo{also}.")
        first = {path.relative_to(root / folder).parts[0] for path in images}
        if len(first) > 1 and not any(path.parent == root / folder for path in images):
            inner[folder] = sorted(printable(Path(part)) for part in first)
    if inner and len(inner) == len(folders):
        folder, parts = next(iter(inner.items()))
        notes.append(
            f"The photos in all subfolders of {folder} ({_few(parts)}) "
            f"count as class {folder}. If those are the classes, give {printable(root / folder)} instead."
        )
    return files, notes


def _class_of(folder: Path) -> str:
    """The class that a folder stands for."""
    try:
        return class_name(folder.name)
    except InvalidValue as error:
        raise BadData(
            f"{error} Rename the folder {printable(folder)}, or take it away if its photos belong to no class."
        ) from None


def _look(files: Sequence[_File], taught: Mapping[int, str]) -> list[_File]:
    """Read files in threads: ids, hashes and faults."""

    def read(file: _File) -> tuple[_File, Tensor | None]:
        id_ = _id(file.path)
        if isinstance(id_, str):
            return file._replace(fault=id_), None
        try:
            return file._replace(id=id_), None if taught.get(id_) == file.name else decode(file.path, SIDE)
        except BadData as error:
            return file._replace(fault=str(error)), None

    read_files = list(decode_pool().map(read, files))
    decoded = [pixels for _, pixels in read_files if pixels is not None]
    hashes = iter(dhash(torch.stack(decoded)).tolist() if decoded else [])
    return [file if pixels is None else file._replace(hash=tuple(next(hashes))) for file, pixels in read_files]


def _distinct(files: Sequence[_File]) -> list[_File]:
    """Each content once, sorted by class and path; one that is in two classes is refused."""
    first: dict[int, _File] = {}
    for file in sorted(files):
        other = first.setdefault(file.id, file)
        if other.name != file.name:
            raise BadData(
                f"{printable(other.path)} and {printable(file.path)} are the same photo in two classes, "
                f"{other.name} and {file.name}; remove it from one of them."
            )
    return list(first.values())


def _few(names: Sequence[str]) -> str:
    """Some names for a sentence."""
    return ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")
