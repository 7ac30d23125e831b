"""Scan a folder of photos by content: which are new, known, corrected or broken."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor

from triphase.app.class_names import class_name
from triphase.app.near_duplicates import HASH_SIZE, dhash
from triphase.budget import Budget
from triphase.data.decoding import check_file, decode_sizes, in_threads
from triphase.data.images import Images
from triphase.data.photo_files import files_below
from triphase.data.photo_time import taken_at
from triphase.data.sources.files import file_id
from triphase.data.sources.folder import class_folders, layout, nested_classes, unlabelled_files
from triphase.data.streams import UNLABELLED
from triphase.errors import BadData, InvalidValue, few
from triphase.events import OnEvent, ignore_event
from triphase.printable import count

SKIP_BAD = "To go on without, use --skip-bad."
CHUNK = 32  # files handed to the threads together, so that a huge folder does not fill the memory
Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(frozen=True)
class Photos:
    """The photos to learn from a folder, each content once, sorted by class and path.

    An id is a hash of the file's bytes, so a copied or renamed photo is recognised without decoding it. A hash of
    pixels would depend on the version of the decoder. A photo that was edited or compressed again has another id
    and is a near-duplicate of the first.
    """

    paths: list[Path]
    names: list[str]  # classes that have photos in the folder, sorted
    labels: Tensor  # (n,) rows of `names`
    ids: Tensor  # (n,)
    hashes: Tensor  # (n, 2) from `dhash`
    times: Tensor  # (n,) when it was taken, NaN where it does not say
    corrected: Tensor  # (n,) bool: taught before, as another class
    known_already: dict[str, int]  # photos left out because they have been taught before, per class
    repeats: int  # further copies within a class
    skipped: list[str]  # a sentence for each photo that cannot be read (only with skip_bad)
    remarks: list[str]  # sentences about unusual findings that are no errors
    nested: str  # a sentence if the folder is probably one level too high, else nothing
    pixels: Tensor | None  # uint8 (n or more, 3, size, size)
    rows: Tensor  # (n,) of `pixels`

    def __len__(self) -> int:
        return len(self.paths)

    @property
    def images(self) -> Images:
        """The photos as size x size RGB."""
        assert self.pixels is not None, "the folder was scanned without a budget for pixels"
        return Images(self.pixels.__getitem__, self.labels, self.ids, self.rows)

    @property
    def content(self) -> bytes:
        """What would be learned: which photos, as which classes."""
        return self.ids.numpy().tobytes() + self.labels.numpy().tobytes() + str(self.names).encode()


class UnlabelledPhotos(NamedTuple):
    """Photos without a class."""

    images: Images
    hashes: Tensor  # (n, 2) from `dhash`
    skipped: list[str]  # a sentence for each photo that cannot be read (only with skip_bad)


class _File(NamedTuple):
    """A photo in a class folder; its id and size are known once it has been hashed."""

    name: str  # of the class
    path: Path
    id: int = 0
    stamp: tuple[int, int] = (0, 0)  # bytes and time of the last change, when it was hashed
    fault: str = ""  # a sentence why it cannot be used


class _Decoded(NamedTuple):
    pixels: Tensor | None  # uint8 (n, 3, size, size)
    hashes: Tensor  # (n, 2)
    times: Tensor  # (n,)
    faults: dict[int, str]  # id -> a sentence why it cannot be used


def scan(
    root: Path,
    size: int,
    budget: Budget | None = None,
    *,
    taught: Mapping[int, str] | None = None,
    skip_bad: bool = False,
    on_event: OnEvent = ignore_event,
) -> Photos:
    """Hash every photo in the class folders of `root`, then decode those that are new, each once.

    From one decoded image come the square for the near-duplicate hash and the size x size square that a lesson
    learns from; for a JPEG both come from the fraction that covers the larger one. Pixels are kept in what `budget`
    allocates; without one they are not kept, as for a dry run. `taught` says which ids have been taught as which
    class; those are counted, not decoded. `on_event` gets {"event": "scan", "done": n, "total": n} while files are
    hashed, then "decode" events. Photos that cannot be read are refused by name, or left out with skip_bad; the
    same photo in two classes is refused.
    """
    root, before = Path(root), taught or {}
    listed, remarks, nested = _list(root)
    files = _hash_all(listed, on_event)
    first = {file.id: file for file in sorted(files, reverse=True) if not file.fault}
    new = sorted(file for file in first.values() if before.get(file.id) != file.name)
    decoded = _decode_all(new, size, budget, on_event)
    files = [file._replace(fault=file.fault or decoded.faults.get(file.id, "")) for file in files]
    good = _readable(files, root, skip_bad)
    distinct = _distinct(good)
    names = sorted({file.name for file in distinct})
    number = {name: label for label, name in enumerate(names)}
    learned = [(row, file) for row, file in enumerate(new) if file.id not in decoded.faults]
    rows = torch.tensor([row for row, _ in learned], dtype=torch.long)
    return Photos(
        paths=[file.path for _, file in learned],
        names=names,
        labels=torch.tensor([number[file.name] for _, file in learned], dtype=torch.long),
        ids=torch.tensor([file.id for _, file in learned], dtype=torch.long),
        hashes=decoded.hashes[rows],
        times=decoded.times[rows],
        corrected=torch.tensor([file.id in before for _, file in learned], dtype=torch.bool),
        known_already=dict(Counter(file.name for file in distinct if before.get(file.id) == file.name)),
        repeats=len(good) - len(distinct),
        skipped=[file.fault for file in files if file.fault],
        remarks=remarks,
        nested=nested,
        pixels=decoded.pixels,
        rows=rows,
    )


def scan_unlabelled(
    root: Path, size: int, budget: Budget, left_out: Collection[int], *, skip_bad: bool, on_event: OnEvent
) -> UnlabelledPhotos:
    """Decode the photos in the folder of unlabelled ones, each content once, except for the ids in `left_out`."""
    files = _hash_all([_File("", path) for path in unlabelled_files(root)], on_event)
    distinct = {file.id: file for file in reversed(files) if not file.fault and file.id not in left_out}
    wanted = sorted(distinct.values())
    decoded = _decode_all(wanted, size, budget, on_event)
    faults = [*(file.fault for file in files if file.fault), *decoded.faults.values()]
    if faults and not skip_bad:
        raise BadData(f"{faults[0]} {SKIP_BAD}")
    rows = torch.tensor([i for i, file in enumerate(wanted) if file.id not in decoded.faults], dtype=torch.long)
    ids = torch.tensor([file.id for file in wanted], dtype=torch.long)[rows]
    assert decoded.pixels is not None
    images = Images(decoded.pixels.__getitem__, torch.full((len(rows),), UNLABELLED), ids, rows)
    return UnlabelledPhotos(images, decoded.hashes[rows], faults)


def find_taught(
    paths: Sequence[Path],
    taught: Collection[int],
    *,
    skip_bad: bool = False,
    on_event: OnEvent = ignore_event,
) -> tuple[list[Path], Tensor, list[str]]:
    """The taught photos among files and folders, at any depth: each content once; their ids; what was skipped."""
    listed: list[_File] = []
    for path in paths:
        if not path.is_dir():
            check_file(path)
        listed += [_File("", file) for file in (files_below(path).images if path.is_dir() else [path])]
    files = _hash_all(listed, on_event)
    bad = [file.fault for file in files if file.fault]
    if bad and not skip_bad:
        raise BadData(f"{bad[0]} {SKIP_BAD}")
    found: dict[int, Path] = {}
    for file in files:
        if not file.fault and file.id in taught:
            found.setdefault(file.id, file.path)
    return list(found.values()), torch.tensor(list(found), dtype=torch.long), bad


def classes_in(root: Path) -> list[str]:
    """The classes that have photos in a folder, sorted; no photo is read."""
    return sorted({file.name for file in _list(root)[0]})


def _list(root: Path) -> tuple[list[_File], list[str], str]:
    """All images in the class folders with their class, and remarks about the folders."""
    files: list[_File] = []
    remarks: list[str] = []
    folders = class_folders(root)
    for folder, images, others in folders:
        name = _class_of(folder)
        files += [_File(name, path) for path in images]
        if not images and not (folder / "LOCK").exists():  # a model may lie beside the photos
            also = f" ({count(len(others), 'other file')}, such as {others[0]})" if others else ""
            remarks.append(f"Folder {name} holds no photo{also}.")
    return files, remarks, nested_classes(folders)


def _class_of(folder: Path) -> str:
    """The class that a folder stands for."""
    try:
        return class_name(folder.name)
    except InvalidValue as error:
        raise BadData(
            f"{error} Rename the folder {folder}, or take it away if its photos belong to no class."
        ) from None


def _in_chunks(
    work: Callable[[Item], Result], items: Sequence[Item], event: str, on_event: OnEvent
) -> Iterator[list[Result]]:
    """Apply `work` to the items in threads, a chunk at a time; each chunk is an event."""
    for start in range(0, len(items), CHUNK):
        results = in_threads(work, items[start : start + CHUNK])
        on_event({"event": event, "done": start + len(results), "total": len(items)})
        yield results


def _hash_all(files: Sequence[_File], on_event: OnEvent) -> list[_File]:
    """The files with their ids, or with a sentence why they cannot be read."""

    def hash_one(file: _File) -> _File:
        try:
            stamp = _stamp(file.path)
            return file._replace(id=file_id(file.path), stamp=stamp)
        except BadData as error:
            return file._replace(fault=str(error))

    return [file for chunk in _in_chunks(hash_one, files, "scan", on_event) for file in chunk]


def _decode_all(files: Sequence[_File], size: int, budget: Budget | None, on_event: OnEvent) -> _Decoded:
    """Pixels and near-duplicate hashes of files, each decoded once."""
    pixels = None if budget is None else budget.allocate((len(files), 3, size, size), torch.uint8)
    hashes = torch.zeros(len(files), 2, dtype=torch.long)
    times = torch.full((len(files),), torch.nan, dtype=torch.double)
    faults: dict[int, str] = {}

    def decode_one(row: int) -> Tensor | None:
        path = files[row].path
        try:
            thumbnail, square = decode_sizes(path, (HASH_SIZE, size))
            if _stamp(path) != files[row].stamp:
                raise BadData(f"{path} was changed while the photos were read; run the command again.")
        except BadData as error:
            faults[files[row].id] = str(error)
            return None
        if pixels is not None:
            pixels[row] = square
        times[row] = taken_at(path)
        return thumbnail

    done = 0
    for chunk in _in_chunks(decode_one, range(len(files)), "decode", on_event):
        rows = [row for row, thumbnail in enumerate(chunk, start=done) if thumbnail is not None]
        if rows:
            hashes[rows] = dhash(torch.stack([thumbnail for thumbnail in chunk if thumbnail is not None]))
        done += len(chunk)
    return _Decoded(pixels, hashes, times, faults)


def _stamp(path: Path) -> tuple[int, int]:
    """What changes when a file does: its size in bytes and the time of its last change."""
    status = check_file(path)
    return status.st_size, status.st_mtime_ns


def _readable(files: Sequence[_File], root: Path, skip_bad: bool) -> list[_File]:
    """The files without a fault; if there are others, they must be skipped on purpose."""
    bad = [file for file in files if file.fault]
    if bad and not skip_bad:
        more = f" {len(bad)} in all: {few([file.path for file in bad])}." if len(bad) > 1 else ""
        raise BadData(f"{bad[0].fault}{more} {SKIP_BAD}")
    good = [file for file in files if not file.fault]
    if not good:
        raise BadData(f"No folder in {root} holds a photo that can be read; {layout(root)}.")
    return good


def _distinct(files: Sequence[_File]) -> list[_File]:
    """Each content once, sorted by class and path; one that is in two classes is refused."""
    first: dict[int, _File] = {}
    for file in sorted(files):
        other = first.setdefault(file.id, file)
        if other.name != file.name:
            raise BadData(
                f"{other.path} and {file.path} are the same photo in two classes, "
                f"{other.name} and {file.name}; remove it from one of them."
            )
    return list(first.values())
