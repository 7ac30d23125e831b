"""CORe50: 164,866 video frames of 50 objects in 10 categories, in 11 sessions, and its NICv2 streams."""

import lzma
import re
import tarfile
from collections.abc import Iterable, Sequence
from itertools import accumulate, pairwise
from pathlib import Path, PurePosixPath

import torch

from triphase.data.images import Images
from triphase.data.photo_files import listdir
from triphase.data.sources.files import LazyPaths, path_ids
from triphase.data.sources.integrity import Count, DatasetInfo, Integrity, Progress, packed_archives
from triphase.errors import BadData, few
from triphase.randomness import generator

PAGE = "https://vlomonaco.github.io/core50/"
IMAGES_URL = "http://bias.csr.unibo.it/maltoni/download/core50/core50_128x128.zip"
LISTS_URL = "https://vlomonaco.github.io/core50/data/batches_filelists_NICv2.zip"
IMAGES_FOLDER = "core50_128x128"
LISTS_ARCHIVE = "core50_nicv2_filelists.tar.xz"
LISTS_FOLDERS = ("sIII_v2", "NIC_v2")  # the two names under which the lists are published

TRAIN_SESSIONS = (1, 2, 4, 5, 6, 8, 9, 11)
TEST_SESSIONS = (3, 7, 10)
TRAIN_FRAMES, TEST_FRAMES = 119_894, 44_972
CATEGORIES = (
    *("plug_adapter", "mobile_phone", "scissor", "light_bulb", "can"),
    *("glass", "ball", "marker", "cup", "remote_control"),
)
# Frames that each object lacks of 300, session by session.
LACKING = (
    "04000100200100000001000000000000000000200000000000",
    "00000000000001000000020005102000000120000000000000",
    "10000000000000020000000000100000001002000000000100",
    "00300000001000000000000000000000000010000000000000",
    "10000000003300127011000011100000000003000020201400",
    "01002001000000010000020001000000000000000000300000",
    "00000000400000010000000000000000000010000000000000",
    "01210000010002420000000000000000000001020000000000",
    "00000000000000000000000000000000000001000013000100",
    "00000000000000020000000101000003000000020000102101",
    "00000003301000000100000000000000000000000000001000",
)
NICV2, RUNS = 391, 10
OBJECTS = [f"{category}{number}" for category in CATEGORIES for number in range(1, 6)]

INFO = DatasetInfo(
    "core50",
    "CORe50: 164,866 video frames of 50 objects in 11 sessions",
    f"the CORe50 project, {PAGE} with the images {IMAGES_URL} and the NICv2 lists {LISTS_URL}",
    f"{IMAGES_FOLDER}/s1/o1/C_01_01_000.png to s11/o50; for core50-nicv2-391 also "
    f"{LISTS_FOLDERS[1]}_{NICV2}/run0/train_batch_00_filelist.txt and so on, or {LISTS_ARCHIVE}",
)
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
    numbered = _numbered(texts)
    if sorted(numbered) != list(range(n)):
        raise _no_lists(lists_root, n, run, f"{len(numbered)} of {n} training lists")
    return [_parse(numbered[batch], texts[numbered[batch]]) for batch in range(n)]


def nicv2_test(lists_root: Path, n: int = 391, run: int = 0) -> Frames:
    """All test frames (every twentieth of them is the small test set of earlier work)."""
    texts = _texts(Path(lists_root), n, run)
    if "test_filelist.txt" not in texts:
        raise _no_lists(lists_root, n, run, "no test_filelist.txt")
    return _parse("test_filelist.txt", texts["test_filelist.txt"])


def frames_of(session: int, obj: int) -> int:
    """How many frames the dataset has of an object in a session, both counted from 1.

    >>> frames_of(1, 1), frames_of(1, 2), sum(frames_of(s, o) for s in range(1, 12) for o in range(1, 51))
    (300, 296, 164866)
    """
    return 300 - int(LACKING[session - 1][obj - 1])


def check_integrity(data: Path, progress: Progress) -> Integrity:
    """Frames of each object in each session, and the lists of NICv2-391."""
    folder = _sessions_in(data)
    found: dict[tuple[int, int], int] = {}
    for place in ((session, obj) for session in range(1, 12) for obj in range(1, 51)):
        found[place] = len(_listed(folder, place[:1], place[1])) if folder else 0
        progress(found[place])
    problems = _wrong_frames(found) if any(found.values()) else packed_archives(data, [Path(IMAGES_URL).name])
    n_lists, more = _count_lists(data)
    splits = (("training", TRAIN_SESSIONS, TRAIN_FRAMES), ("test", TEST_SESSIONS, TEST_FRAMES))
    counts = [
        Count(f"{name} frames", sum(n for (session, _), n in found.items() if session in sessions), right)
        for name, sessions, right in splits
    ]
    counts.append(Count(f"lists of NICv2-{NICV2} in {RUNS} runs", n_lists, RUNS * (NICV2 + 1)))
    own = [IMAGES_FOLDER, "batches_filelists", *(f"{name}_{n}" for name in LISTS_FOLDERS for n in (79, 196, NICV2))]
    own += [f"s{session}" for session in range(1, 12)] if folder == data and any(found.values()) else []
    return Integrity(INFO, tuple(counts), (*problems, *more), frozenset(own))


def _wrong_frames(found: dict[tuple[int, int], int]) -> list[str]:
    """Which sessions are missing, and which objects of the others have too few or too many frames."""
    absent = [s for s in range(1, 12) if not any(found[s, obj] for obj in range(1, 51))]
    problems = []
    if absent:
        lacking = sum(frames_of(s, obj) for s in absent for obj in range(1, 51))
        problems.append(f"Missing: sessions {few([f's{s}' for s in absent])} ({lacking:,} frames).")
    wrong = [
        f"s{s}/o{obj} ({n} of {frames_of(s, obj)})"
        for (s, obj), n in found.items()
        if s not in absent and n != frames_of(s, obj)
    ]
    if wrong:
        problems.append(f"Objects with another number of frames than published: {few(wrong)}.")
    return problems


def _count_lists(data: Path) -> tuple[int, list[str]]:
    """How many lists of NICv2-391 there are, and what is wrong with them."""
    lists = _lists_in(data, NICV2)
    folders = [[f"{name}_{NICV2}/run{run}" for name in LISTS_FOLDERS] for run in range(RUNS)]
    try:
        if lists.is_file():
            with tarfile.open(lists) as archive:
                paths = [PurePosixPath(name) for name in archive.getnames()]
            names = [[path.name for path in paths if str(path.parent) in places] for places in folders]
        else:
            names = [[name for place in places for name in listdir(lists / place)] for places in folders]
    except (OSError, EOFError, tarfile.TarError, lzma.LZMAError) as error:
        return 0, [_unreadable(lists, error)]
    n_lists = [len(_numbered(run)) + ("test_filelist.txt" in run) for run in names]
    short = [f"run{run} ({n} of {NICV2 + 1})" for run, n in enumerate(n_lists) if n != NICV2 + 1]
    if not any(n_lists):
        return 0, packed_archives(data, [Path(LISTS_URL).name])
    return sum(n_lists), [f"NICv2-{NICV2} lacks lists of {few(short)}."] if short else []


def _numbered(names: Iterable[str]) -> dict[int, str]:
    """The training lists among files, by number."""
    matches = [re.fullmatch(r"train_batch_(\d+)_filelist\.txt", name) for name in names]
    return {int(match[1]): match[0] for match in matches if match}


def _texts(lists: Path, n: int, run: int) -> dict[str, str]:
    """File name -> text of all lists of one run, from a folder or straight out of the archive."""
    folders = [f"{name}_{n}/run{run}" for name in LISTS_FOLDERS]
    try:
        if lists.is_file():
            return _texts_in_archive(lists, folders)
        paths = [path for folder in folders for path in (lists / folder).glob("*_filelist.txt")]
        return {path.name: path.read_text("ascii") for path in paths}
    except (OSError, EOFError, UnicodeDecodeError, tarfile.TarError, lzma.LZMAError) as error:
        raise BadData(_unreadable(lists, error)) from error


def _unreadable(lists: Path, error: Exception) -> str:
    return f"The file lists in {lists} cannot be read ({error}); get {LISTS_URL}."


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
    folder = _sessions_in(root)
    if folder is None:
        raise BadData(f"There are no CORe50 images in {root}: unpack {IMAGES_URL} there (see {PAGE}).")
    return folder


def _sessions_in(root: Path) -> Path | None:
    """Where in the data folder s1 to s11, or some of them, are."""
    places = (root / IMAGES_FOLDER, root)
    sessions = TRAIN_SESSIONS + TEST_SESSIONS
    return next((p for p in places if any((p / f"s{session}").is_dir() for session in sessions)), None)


def _listed(folder: Path, sessions: Sequence[int], obj: int) -> list[str]:
    """The frames of one object that are on disk, from one listing of each session's folder."""
    places = [f"s{session}/o{obj}" for session in sessions]
    return [f"{place}/{name}" for place in places for name in listdir(folder / place) if name.endswith(".png")]


def _check_present(folder: Path, wanted: Sequence[str]) -> None:
    present = {name for obj in range(1, 51) for name in _listed(folder, range(1, 12), obj)}
    missing = [name for name in wanted if name not in present]
    if missing:
        raise BadData(
            f"{len(missing):,} of {len(wanted):,} CORe50 images are missing in {folder}: {few(missing)}. "
            f"Unpack {IMAGES_URL} again (see {PAGE})."
        )


def _images(folder: Path, frames: Frames, size: int) -> Images:
    names = [name for name, _ in frames]
    labels = torch.tensor([label for _, label in frames])
    return Images.from_files(LazyPaths(folder, names), labels, path_ids(names), size)
