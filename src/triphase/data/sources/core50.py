"""CORe50: 164,866 video frames of 50 objects in 10 categories, in 11 sessions, and its NICv2 streams."""

import lzma
import re
import tarfile
from collections.abc import Sequence
from itertools import accumulate, pairwise
from pathlib import Path, PurePosixPath

import torch

from triphase.data.images import Images
from triphase.data.sources.listing import Listed, listdir, path_ids
from triphase.errors import BadData
from triphase.randomness import generator

PAGE = "https://vlomonaco.github.io/core50/"
IMAGES_URL = "http://bias.csr.unibo.it/maltoni/download/core50/core50_128x128.zip"
LISTS_URL = "https://vlomonaco.github.io/core50/data/batches_filelists_NICv2.zip"
IMAGES_FOLDER = "core50_128x128"
LISTS_ARCHIVE = "core50_nicv2_filelists.tar.xz"
LISTS_FOLDERS = ("sIII_v2", "NIC_v2")  # two names under which the lists go round

TRAIN_SESSIONS = (1, 2, 4, 5, 6, 8, 9, 11)
TEST_SESSIONS = (3, 7, 10)
TRAIN_FRAMES, TEST_FRAMES = 119_894, 44_972
CATEGORIES = (
    *("plug_adapter", "mobile_phone", "scissor", "light_bulb", "can"),
    *("glass", "ball", "marker", "cup", "remote_control"),
)
OBJECTS = [f"{category}{number}" for category in CATEGORIES for number in range(1, 6)]

Frames = list[tuple[str, int]]  # (path below the images folder, label = object - 1)


def core50_nicv2(
    root: Path, run: int, size: int = 128, *, n: int = 391, lists: Path | None = None
) -> tuple[list[Images], Images, list[str]]:
    """The training images of each of the n experiences, the test images and the names of the 50 objects.

    `lists` is where the NICv2 file lists are, a folder or the archive itself; by default in `root`.
    """
    folder = _images_folder(Path(root))
    lists = _lists_in(Path(root), n) if lists is None else lists
    batches, test = nicv2_lists(lists, n, run), nicv2_test(lists, n, run)
    train = [frame for batch in batches for frame in batch]
    _check_present(folder, [name for name, _ in train + test])
    every = _images(folder, train, size)
    edges = accumulate((len(batch) for batch in batches), initial=0)
    experiences = [every.select(torch.arange(start, end)) for start, end in pairwise(edges)]
    return experiences, _images(folder, test, size), list(OBJECTS)


def core50_classes(root: Path, size: int = 128, *, complete: bool = True) -> tuple[Images, Images, list[str]]:
    """All training frames (8 sessions), all test frames (3 sessions) and the names of the 50 objects.

    complete=False also takes a part of the dataset.
    """
    folder = _images_folder(Path(root))
    splits = []
    for sessions, expected in ((TRAIN_SESSIONS, TRAIN_FRAMES), (TEST_SESSIONS, TEST_FRAMES)):
        frames = [(name, obj - 1) for obj in range(1, 51) for name in _listed(folder, sessions, obj)]
        if not frames or (complete and len(frames) != expected):
            raise BadData(
                f"Sessions {', '.join(map(str, sessions))} in {folder} have {len(frames):,} frames instead "
                f"of {expected:,}; unpack {IMAGES_URL} again (see {PAGE})."
            )
        splits.append(_images(folder, frames, size))
    return splits[0], splits[1], list(OBJECTS)


def core50_41_order(seed: int) -> list[int]:
    """The 50 classes in the order of 41/10-1: first one object of each category, then the others, shuffled.

    >>> core50_41_order(0)[:10]
    [0, 5, 10, 15, 20, 25, 30, 35, 40, 45]
    """
    rest = [label for label in range(50) if label % 5]
    order = torch.randperm(len(rest), generator=generator(seed, "core50-41"))
    return [*range(0, 50, 5), *(rest[i] for i in order.tolist())]


def nicv2_lists(lists_root: Path, n: int, run: int) -> list[Frames]:
    """The training frames of each experience of NICv2-n (n = 79, 196 or 391), in order."""
    texts = _texts(Path(lists_root), n, run)
    matches = [re.fullmatch(r"train_batch_(\d+)_filelist\.txt", name) for name in texts]
    numbered = {int(match[1]): match[0] for match in matches if match}
    if sorted(numbered) != list(range(n)):
        raise _no_lists(lists_root, n, run, f"{len(numbered)} of {n} training lists")
    return [_parse(numbered[batch], texts[numbered[batch]]) for batch in range(n)]


def nicv2_test(lists_root: Path, n: int = 391, run: int = 0) -> Frames:
    """All test frames (every twentieth of them is the small test set of earlier work)."""
    texts = _texts(Path(lists_root), n, run)
    if "test_filelist.txt" not in texts:
        raise _no_lists(lists_root, n, run, "no test_filelist.txt")
    return _parse("test_filelist.txt", texts["test_filelist.txt"])


def _texts(lists: Path, n: int, run: int) -> dict[str, str]:
    """File name -> text of all lists of one run, from a folder or straight out of the archive."""
    folders = [f"{name}_{n}/run{run}" for name in LISTS_FOLDERS]
    try:
        if lists.is_file():
            return _texts_in_archive(lists, folders)
        paths = [path for folder in folders for path in (lists / folder).glob("*_filelist.txt")]
        return {path.name: path.read_text("ascii") for path in paths}
    except (OSError, EOFError, UnicodeDecodeError, tarfile.TarError, lzma.LZMAError) as error:
        raise BadData(f"The file lists in {lists} cannot be read ({error}); get {LISTS_URL}.") from error


def _texts_in_archive(archive_path: Path, folders: Sequence[str]) -> dict[str, str]:
    texts: dict[str, str] = {}
    with tarfile.open(archive_path) as archive:
        for member in archive:
            path = PurePosixPath(member.name)
            if not member.isfile() or str(path.parent) not in folders:
                continue
            content = archive.extractfile(member)
            assert content is not None  # it is a file
            texts[path.name] = content.read().decode("ascii")
    return texts


def _parse(list_name: str, content: str) -> Frames:
    """Lines such as "s1/o1/C_01_01_000.png 0"."""
    frames = re.findall(r"^(s\d+/o\d+/C_\d+_\d+_\d+\.png) ([0-9]|[1-4][0-9])\s*$", content, re.MULTILINE)
    if not frames or len(frames) != len(content.split()) / 2:
        raise BadData(f"{list_name} has lines that do not read like 's1/o1/C_01_01_000.png 0'; get {LISTS_URL}.")
    return [(name, int(label)) for name, label in frames]


def _no_lists(lists: Path, n: int, run: int, found: str) -> BadData:
    return BadData(
        f"{lists} has {found} for run {run} of NICv2-{n}; unpack {LISTS_URL} there (n is 79, 196 or 391, "
        "run is 0 to 9)."
    )


def _lists_in(root: Path, n: int) -> Path:
    """Where in the data folder the lists are."""
    for place in (root, root / "batches_filelists"):
        if any((place / f"{name}_{n}").is_dir() for name in LISTS_FOLDERS):
            return place
    return root / LISTS_ARCHIVE if (root / LISTS_ARCHIVE).is_file() else root


def _images_folder(root: Path) -> Path:
    """The folder that holds s1 to s11."""
    for folder in (root / IMAGES_FOLDER, root):
        if any((folder / f"s{session}").is_dir() for session in TRAIN_SESSIONS + TEST_SESSIONS):
            return folder
    raise BadData(f"There are no CORe50 images in {root}: unpack {IMAGES_URL} there (see {PAGE}).")


def _listed(folder: Path, sessions: Sequence[int], obj: int) -> list[str]:
    """The frames of one object that are on disk, from one listing of each session's folder."""
    places = [f"s{session}/o{obj}" for session in sessions]
    return [f"{place}/{name}" for place in places for name in listdir(folder / place) if name.endswith(".png")]


def _check_present(folder: Path, wanted: Sequence[str]) -> None:
    present = {name for obj in range(1, 51) for name in _listed(folder, range(1, 12), obj)}
    missing = [name for name in wanted if name not in present]
    if missing:
        raise BadData(
            f"{len(missing):,} of {len(wanted):,} CORe50 images are missing in {folder}, the first is "
            f"{missing[0]}; unpack {IMAGES_URL} again (see {PAGE})."
        )


def _images(folder: Path, frames: Frames, size: int) -> Images:
    names = [name for name, _ in frames]
    labels = torch.tensor([label for _, label in frames])
    return Images.from_files(Listed(folder, names), labels, path_ids(names), size)
