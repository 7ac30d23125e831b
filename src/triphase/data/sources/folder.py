"""A person's photos: one folder for each class, files of any kind that Pillow reads."""

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import NamedTuple

import torch

from triphase.data import UNLABELLED_FOLDER
from triphase.data.decoding import decode, in_threads
from triphase.data.images import Images, check_size
from triphase.data.photo_files import ClassFolder, files_below, is_image, listdir
from triphase.data.sources.files import file_id
from triphase.data.sources.integrity import Count, DatasetInfo, Integrity, Progress
from triphase.errors import BadData, few

INFO = DatasetInfo(
    "folder",
    "Your own photos",
    "yourself",
    "one folder for each class, such as cat/1.jpg and dog/2.jpg, and nothing else",
)
CHUNK = 1024  # files handed to the threads together, so that a huge folder does not fill the memory


class Folder(NamedTuple):
    """The images of a folder and what was left out of it."""

    images: Images  # labels count the names
    names: list[str]  # classes that have images
    skipped: list[Path]  # images that cannot be read (only with skip_bad)
    empty: list[str]  # class folders without a usable image


def folder(root: Path, size: int, *, skip_bad: bool = False) -> Folder:
    """The images in the class folders of `root`, decoded on demand as size x size RGB.

    Every file is decoded once now, so that a broken one is found before learning starts; it is refused by
    name, or left out and listed with skip_bad. An image's id is a hash of its file's content.
    """
    root, size = Path(root), check_size(size)
    classes = class_folders(root)
    listed = [(path, place.path.name) for place in classes for path in place.images]
    ids = _checked_ids([path for path, _ in listed], size, skip_bad)
    good = [(path, owner, id_) for (path, owner), id_ in zip(listed, ids, strict=True) if id_ is not None]
    if not good:
        raise BadData(f"No folder in {root} holds an image that can be read; {layout(root)}.")
    names = sorted({owner for _, owner, _ in good})
    number = {name: label for label, name in enumerate(names)}
    images = Images.from_files(
        [path for path, _, _ in good],
        torch.tensor([number[owner] for _, owner, _ in good]),
        torch.tensor([id_ for _, _, id_ in good]),
        size,
    )
    skipped = [path for (path, _), id_ in zip(listed, ids, strict=True) if id_ is None]
    return Folder(images, names, skipped, [c.path.name for c in classes if c.path.name not in number])


def check_integrity(data: Path, progress: Progress, taken: Collection[str] = ()) -> Integrity:
    """Classes and photos, found as `folder` finds them but not decoded; names that are taken belong to others."""
    names = [name for name in listdir(data) if name not in taken and name != UNLABELLED_FOLDER]
    loose = [name for name in names if is_image(data / name)]
    photos: dict[str, int] = {}
    for name in names:
        if (data / name).is_dir():
            photos[name] = len(files_below(data / name).images)
            progress(photos[name])
    problems = []
    if any(photos.values()):
        beside = sorted(name for name in taken if (data / name).is_dir())
        single = [name for name, n in photos.items() if n == 1]
        if single:
            problems.append(f"Classes with one photo only, which need another one for testing: {few(single)}.")
        if beside:
            problems.append(f"Other datasets lie beside them ({few(beside)}); give photos a folder of their own.")
    if loose:
        problems.append(f"{len(loose):,} photos are in no class folder: {few(loose)}; {layout(data)}.")
    classes = sum(n > 0 for n in photos.values())
    counts = (Count("classes", classes, None), Count("photos in them", sum(photos.values()), None))
    return Integrity(INFO, counts, tuple(problems))


def layout(root: Path) -> str:
    """What to do with photos that lie elsewhere."""
    return f"put the images of each class into a folder of its own, such as {root}/cat/1.jpg"


def class_folders(root: Path) -> list[ClassFolder]:
    """The class folders with their files, sorted by name; hidden ones and `_unlabelled` do not count."""
    if not root.exists():
        raise BadData(f"There is no folder {root}; check the spelling.")
    if not root.is_dir():
        raise BadData(f"{root} is a file; give the folder that contains the class folders.")
    names = listdir(root)
    loose = [root / name for name in names if is_image(root / name)]
    if loose:
        raise BadData(f"{loose[0]} ({len(loose)} in all) is not in a class folder; {layout(root)}.")
    folders = [name for name in names if (root / name).is_dir()]
    if folders == [UNLABELLED_FOLDER]:
        raise BadData(f"{root} holds nothing but {UNLABELLED_FOLDER}, and classes need labels; {layout(root)}.")
    classes = [files_below(root / name) for name in folders if name != UNLABELLED_FOLDER]
    if not classes:
        raise BadData(f"{root} has no class folders; {layout(root)}.")
    return classes


def nested_classes(classes: Sequence[ClassFolder]) -> str:
    """A sentence if the classes are probably one level deeper: each folder has its photos in several subfolders."""
    inside = [{path.relative_to(place.path).parts[:-1] for path in place.images} for place in classes]
    tops = [{parts[:1] for parts in below} for below in inside]
    if any(() in below or len(top) < 2 for below, top in zip(inside, tops, strict=True)):
        return ""
    place, names = classes[0].path, few(sorted(parts[0] for parts in tops[0]))
    return (
        f"The photos in all subfolders of {place.name} ({names}) count as class {place.name}. "
        f"If those are the classes, give {place} instead."
    )


def unlabelled_files(root: Path) -> list[Path]:
    """The images in the folder of unlabelled photos, if there is one, sorted."""
    place = root / UNLABELLED_FOLDER
    return files_below(place).images if place.is_dir() else []


def _checked_ids(paths: Sequence[Path], size: int, skip_bad: bool) -> list[int | None]:
    """The id of each file, once it has been decoded to its end; None for one to skip."""

    def check(path: Path) -> int | None:
        try:
            decode(path, size)
            return file_id(path)
        except BadData:
            if skip_bad:
                return None
            raise

    ids: list[int | None] = []
    for first in range(0, len(paths), CHUNK):
        ids += in_threads(check, paths[first : first + CHUNK])
    return ids
