"""The files that runs read: found on a node by the fingerprint of their content, or shipped through the storage."""

from __future__ import annotations

import hashlib
import os
import shutil
import tarfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from triphase import state as files
from triphase.bench.benchmarks import Benchmark
from triphase.bench.run.options import RunOptions
from triphase.bench.sweep.cluster.storage import Storage
from triphase.data.sources import core50
from triphase.data.sources.cifar100 import FILES as CIFAR_FILES
from triphase.directory_lock import locked
from triphase.errors import Busy, CorruptState

CORE50_LISTS = [f"{name}_{core50.NICV2}" for name in core50.LISTS_FOLDERS]
PARTS: dict[str, Sequence[str]] = {  # what a dataset has in the data folder; of others all that is there is taken
    "digits": (),
    "cifar100": tuple(CIFAR_FILES),
    "core50": (core50.IMAGES_FOLDER, *CORE50_LISTS, "batches_filelists", core50.LISTS_ARCHIVE),
    "imagenet": ("train", "val"),
}
POLL_SECONDS = 1.0  # seconds between two checks whether another process is done


@dataclass(frozen=True)
class Input:
    """Files and folders in a folder of the computer from which a sweep is begun."""

    root: str
    names: tuple[str, ...]
    fingerprint: str

    def ship(self, storage: Storage) -> None:
        """Write the files into the storage, as one archive, unless it is there."""
        if storage.exists(self._archive):
            return
        with storage.writing(self._archive) as file, tarfile.open(fileobj=file, mode="w|", dereference=True) as tar:
            for name in self.names:
                tar.add(Path(self.root, name), name)

    def find(self, storage: Storage, scratch: Path) -> Path | None:
        """The folder of these files on this node, from the storage if need be; None if they are nowhere."""
        with _exclusive(scratch / "data"):
            unpacked = scratch / "data" / self.fingerprint
            for folder in (unpacked, Path(self.root), Path(os.environ.get("TRIPHASE_DATA", self.root))):
                if fingerprint(folder, self.names, scratch) == self.fingerprint:
                    return folder
            return self._unpack(storage, unpacked, scratch) if storage.exists(self._archive) else None

    def _unpack(self, storage: Storage, folder: Path, scratch: Path) -> Path:
        temporary = folder.with_name(f"{folder.name}.{uuid4().hex}.part")
        try:
            with storage.reading(self._archive) as file:
                try:
                    with tarfile.open(fileobj=file, mode="r|") as tar:
                        tar.extractall(temporary, filter="data")
                except tarfile.TarError as error:
                    raise self._damaged(storage) from error
            if fingerprint(temporary, self.names, scratch) != self.fingerprint:
                raise self._damaged(storage)
            shutil.rmtree(folder, ignore_errors=True)  # whatever it held, it was not this
            os.replace(temporary, folder)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
        return folder

    def _damaged(self, storage: Storage) -> CorruptState:
        return CorruptState(f"{self._archive} in {storage.url} is damaged; delete it, and run again to continue.")

    @property
    def _archive(self) -> str:
        return f"data/{self.fingerprint}.tar"


def data_input(benchmark: Benchmark, options: RunOptions, data: Path, scratch: Path) -> Input | None:
    """What a run reads in the data folder; None for a dataset that comes with triphase."""
    parts = PARTS.get(benchmark.dataset)
    names = [name for name in parts or () if (data / name).exists()]
    if not names and parts != ():
        return _input(data, sorted(path.name for path in data.iterdir()), scratch)
    if benchmark.weights and options.weights is None and (data / benchmark.weights).is_file():
        names.append(benchmark.weights)
    return _input(data, names, scratch) if names else None


def weights_input(options: RunOptions, scratch: Path) -> Input | None:
    """The file of --weights, if it is given."""
    path = options.weights
    return None if path is None else _input(path.resolve().parent, [path.name], scratch)


def fingerprint(root: Path, names: Sequence[str], scratch: Path) -> str | None:
    """A checksum over names and contents; None if something is missing. Computed again only when a file changed."""
    if not all((root / name).exists() for name in names):
        return None
    paths = sorted(path for name in names for path in _files_below(root / name))
    stamps = hashlib.blake2b(str(root.resolve()).encode(), digest_size=16)
    for path in paths:
        found = path.stat()
        stamps.update(f"{path.relative_to(root)}\0{found.st_size}\0{found.st_mtime_ns}\0".encode())
    known = scratch / "fingerprints" / stamps.hexdigest()
    if known.exists():
        return known.read_text()
    digest = hashlib.blake2b(digest_size=16)
    for path in paths:
        digest.update(f"{path.relative_to(root).as_posix()}\0{path.stat().st_size}\0".encode())
        with open(path, "rb") as file:
            while piece := file.read(1 << 20):
                digest.update(piece)
    files.write(known, digest.hexdigest().encode())
    return digest.hexdigest()


def _input(root: Path, names: list[str], scratch: Path) -> Input:
    return Input(str(root.resolve()), tuple(names), fingerprint(root.resolve(), names, scratch) or "")


def _files_below(path: Path) -> Iterator[Path]:
    if path.is_file():
        yield path
    for folder, _, names in os.walk(path, followlinks=True):
        yield from (Path(folder, name) for name in names)


@contextmanager
def _exclusive(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder, and wait for it if need be: one process of a node fetches what all need."""
    with ExitStack() as stack:
        while True:
            try:
                stack.enter_context(locked(folder))
                break
            except Busy:
                time.sleep(POLL_SECONDS)
        yield
