"""Photos on a disk: which there are, which are alike, and which are kept apart for measuring."""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from triphase.app.names import class_name
from triphase.data.images import Images, decode, decode_pool, printable
from triphase.data.sources.folder import class_folders, images_below, layout
from triphase.data.sources.listing import file_digest, ids_from
from triphase.errors import BadData, InvalidValue

SIDE = 96  # pixels: photos are compared at this size
ALIKE = 12  # of the 128 bits of two hashes may differ in one burst; see `near_duplicates`
AT_ONCE = 32  # files handed to the threads together, so that a huge folder does not fill the memory
ROWS = 1024  # hashes compared with all others together
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


def dhash(pixels: Tensor) -> Tensor:
    """128 bits that change little when a picture does, as two int64: where it gets brighter to the right and down.

    >>> dark = torch.arange(96, dtype=torch.uint8).expand(1, 3, 96, 96)
    >>> torch.equal(dhash(dark), dhash(dark + 40))
    True
    """
    grey = pixels.sum(1, keepdim=True, dtype=torch.float) / 3
    return torch.stack([_brighter(grey), _brighter(grey.mT)], 1)  # (n, 2)


def _brighter(grey: Tensor) -> Tensor:
    """Where an image of 8 rows and 9 columns gets brighter to the right, 64 bits."""
    small = F.interpolate(grey, size=(8, 9), mode="bilinear", antialias=True)
    bits = (small[..., 1:] > small[..., :-1] + 0.5).flatten(1)  # plain areas are no noise
    return (bits.long() << torch.arange(64)).sum(1)


def near_duplicates(hashes: Tensor, labels: Tensor, alike: int = ALIKE) -> Tensor:
    """The group of each photo, as the row of its first member: bursts and other near-copies within a class.

    Photos are linked if their hashes differ by at most `alike` bits; linked photos form a group. Measured with 12
    bits on CIFAR-100: of pairs from two classes one in 1.2 million is linked, of pairs from one class (true copies
    among them) one in 9,000; of altered copies those brightened 97 to 100 %, compressed to JPEG 20 99.6 %, with 2 %
    cut off at two sides 97 %, with 4 % 47 %. 3 % of the training images are in groups; plain scenes that look alike
    join too, and the largest group has 44 of the 500 images of the sea.

    >>> hashes = torch.tensor([[0b1, 0], [0b11, 0], [0, 0xFFFF], [0b1, 0]])
    >>> near_duplicates(hashes, torch.tensor([0, 0, 0, 1]), alike=1).tolist()
    [0, 0, 2, 3]
    """
    group = torch.arange(len(hashes))
    for label in labels.unique().tolist():
        rows = (labels == label).nonzero().view(-1)
        distinct, which = hashes[rows].unique(dim=0, return_inverse=True)
        group[rows] = rows[_first_of_each(_linked(distinct, alike)[which])]
    return group


def _linked(hashes: Tensor, alike: int) -> Tensor:
    """Connected components of hashes that differ little: for each the smallest row of its component."""
    root = torch.arange(len(hashes))
    for first in range(0, len(hashes), ROWS):
        a, b = (_distances(hashes[first : first + ROWS], hashes) <= alike).nonzero().unbind(1)
        a = a + first
        while bool((root[a] != root[b]).any()):
            low, high = torch.minimum(root[a], root[b]), torch.maximum(root[a], root[b])
            root = root.scatter_reduce(0, high, low, "amin")
            while not torch.equal(root, root[root]):
                root = root[root]
    return root


def _first_of_each(groups: Tensor) -> Tensor:
    """For each row the first row that has its value."""
    first = torch.full((int(groups.max()) + 1,), len(groups)).scatter_reduce(
        0, groups, torch.arange(len(groups)), "amin"
    )
    return first[groups]


def _distances(a: Tensor, b: Tensor) -> Tensor:
    """The number of bits that differ between each hash of `a` and each of `b`."""
    signs = [((hashes[..., None] >> torch.arange(64)) & 1).flatten(1).float() * 2 - 1 for hashes in (a, b)]
    return (128 - signs[0] @ signs[1].T) / 2


def near_stored(
    hashes: Tensor, labels: Tensor, stored: Tensor, stored_labels: Tensor, alike: int = ALIKE
) -> Tensor:
    """Which photos are near-duplicates of a stored one (its hash is given) of their class, bool.

    >>> hashes, labels = torch.tensor([[1, 0], [1, 0], [255, 0]]), torch.tensor([0, 1, 0])
    >>> near_stored(hashes, labels, torch.tensor([[3, 0]]), torch.tensor([0]), alike=1).tolist()
    [True, False, False]
    """
    near = torch.zeros(len(hashes), dtype=torch.bool)
    for label in stored_labels.unique().tolist():
        rows = (labels == label).nonzero().view(-1)
        others = stored[stored_labels == label]
        for part in rows.split(ROWS):
            near[part] = (_distances(hashes[part], others) <= alike).any(1)
    return near


def whole_groups(mask: Tensor, groups: Tensor) -> Tensor:
    """A mask extended to all members of the groups that it touches.

    >>> whole_groups(torch.tensor([True, False, False]), torch.tensor([0, 1, 0])).tolist()
    [True, False, True]
    """
    return torch.isin(groups, groups[mask])


def split_exemplars(
    groups: Tensor,
    labels: Tensor,
    keys: Tensor,
    limit: int,
    share: float = 0.2,
    kept: Sequence[int] = (),  # the classes of photos that were kept before; the limit counts them, too
) -> Tensor:
    """Which photos are kept for measuring, bool: of each class about `share`, at most `limit`, in whole groups.

    Groups are drawn by their members' random keys, so the same photos are always split the same way. A class of
    one group has nothing to spare; of any other at least one group is kept, if it is within the limit and half
    the class.
    """
    if not 0 < share <= 0.5:
        raise InvalidValue(f"The share kept for measuring must be above 0 and at most 0.5, got {share}.")
    held = torch.zeros(len(groups), dtype=torch.bool)
    for label in labels.unique().tolist():
        rows = (labels == label).nonzero().view(-1)
        _, member, sizes = groups[rows].unique(return_inverse=True, return_counts=True)
        # The largest of k uniform keys, to the power of k, is uniform again: large groups are drawn no more often.
        uniform = keys[rows].double() / 2**63
        top = torch.zeros(len(sizes), dtype=torch.double).scatter_reduce(0, member, uniform, "amax") ** sizes
        order = top.argsort(descending=True)
        room = limit - kept.count(label)
        target = min(room, max(1, round(share * len(rows))))
        chosen = _drawn(sizes[order].tolist(), target, most=min(room, len(rows) // 2))
        held[rows] = torch.isin(member, order[chosen])
    return held


def _drawn(sizes: list[int], target: int, most: int) -> list[int]:
    """The first groups that fit into the target together; if none does, the smallest, but no more than `most`."""
    drawn: list[int] = []
    if len(sizes) < 2:
        return drawn
    for i, size in enumerate(sizes):
        if size <= target:
            drawn.append(i)
            target -= size
    smallest = min(range(len(sizes)), key=sizes.__getitem__)
    return drawn or ([smallest] if sizes[smallest] <= most else [])
