"""Tensors and primitives <-> safetensors + JSON on disk, atomically. Nothing read here can execute anything.

A state is a nested dict of tensors, numbers, strings, booleans, None and lists of those. One state is one
safetensors file: its tensors, and the rest as JSON in the header. A `Checkpoint` is a directory that keeps the
newest state of something that changes all the time, and writes only the parts that changed.
"""

from __future__ import annotations

import errno
import json
import os
import struct
import sys
import threading
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor

from triphase.errors import Busy, CannotWrite, CorruptState, Mismatch

FORMAT = 1
State = dict[str, Any]


def save(path: Path, state: Mapping[str, Any]) -> None:
    """Write a state as one file: under a temporary name, synced, then renamed.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save(Path(folder) / "a.safetensors", {"known": [0, 1], "head": {"weight": torch.ones(2)}})
    ...     load(Path(folder) / "a.safetensors")
    {'known': [0, 1], 'head': {'weight': tensor([1., 1.])}}
    """
    tensors: dict[str, Tensor] = {}
    tree = json.dumps(_split(state, tensors, ""))
    tensors = _unshared({name: tensor.cpu().contiguous() for name, tensor in tensors.items()})
    meta = {"format": str(FORMAT), "tree": tree, "crc": str(_crc(tree, tensors))}
    write(path, safetensors.torch.save(tensors, meta))


def load(path: Path) -> State:
    """Read a state back; a damaged file is named, never half-used."""
    try:
        blob = path.read_bytes()
        size = struct.unpack("<Q", blob[:8])[0]
        meta = json.loads(blob[8 : 8 + size])["__metadata__"]
        tensors = safetensors.torch.load(blob)
        _check_format(path, int(meta["format"]))
        tree = meta["tree"]
        if int(meta["crc"]) != _crc(tree, tensors):
            raise ValueError("its checksum does not match")
        state: State = _join(json.loads(tree), tensors)
    except FileNotFoundError as error:
        raise CorruptState(f"{path} is missing; restore it, or delete {path.parent} to start again.") from error
    except Mismatch:
        raise
    except (SafetensorError, KeyError, ValueError, TypeError, struct.error) as error:
        raise CorruptState(
            f"{path} is damaged ({error}); restore it, or delete {path.parent} to start again."
        ) from error
    return state


def write(path: Path, blob: bytes) -> None:
    """Replace a file in one instant: whoever reads it sees the old bytes or the new ones, nothing between."""
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(temporary, "wb") as file:
            file.write(blob)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        _sync_directory(path.parent)
    except OSError as error:
        with suppress(OSError):  # whatever kept us from writing may keep us from removing, too
            temporary.unlink()
        raise cannot_write(path, error) from error


def write_json(path: Path, value: object) -> None:
    """Write one JSON document, atomically."""
    write(path, (json.dumps(value, indent=1) + "\n").encode())


def read_json(path: Path) -> Any:
    """Read one JSON document of ours."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise CorruptState(f"{path} is missing; restore it, or delete {path.parent} to start again.") from error
    except ValueError as error:
        raise CorruptState(
            f"{path} is damaged ({error}); restore it, or delete {path.parent} to start again."
        ) from error


def cannot_write(path: Path, error: OSError) -> CannotWrite:
    """The disk's refusal as a sentence."""
    remedy = "check the path and its permissions"
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        remedy = "make room and run again"
    elif error.errno in (errno.EEXIST, errno.ENOTDIR):
        remedy = "a file is where a folder should be, so give another path"
    return CannotWrite(f"Cannot write {path}: {error.strerror or error}; {remedy}. Nothing was lost.")


def make_directory(path: Path) -> None:
    """Create a directory, with those around it, where there is none."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise cannot_write(path, error) from error


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Be the only writer of a directory; the lock of a process that died is free.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder, locked(Path(folder)):
    ...     (Path(folder) / "LOCK").exists()
    True
    """
    make_directory(directory)
    try:
        file = open(directory / "LOCK", "a+b")
    except OSError as error:
        raise cannot_write(directory / "LOCK", error) from error
    with file:
        try:
            _lock(file.fileno())
            if not os.path.samestat(os.fstat(file.fileno()), os.stat(file.name)):
                raise OSError("the directory was deleted and made anew")
        except OSError as error:
            raise Busy(f"Another process is at work in {directory}; wait for it, or give another path.") from error
        yield


class Checkpoint:
    """A directory with the newest state; each top-level entry is a file, rewritten only when it changed.

    Snapshots are taken at once and written by a background thread, so training waits for a copy, not for the
    disk. A part is unchanged if its tensors are the same objects in memory at the same autograd version: every
    in-place operation of torch counts that version up (optimisers must not be built with `fused=True`, whose
    kernels do not). The index names the part files and is replaced last: it is always complete.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._index: dict[str, str] = {}
        self._written: dict[str, tuple[str, list[tuple[Tensor, int]]]] = {}
        self._serial = 0
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None

    def load(self) -> State | None:
        """The newest complete state, or None if nothing was saved yet."""
        index = self.directory / "index.json"
        if not index.exists():
            return None
        saved = read_json(index)
        try:
            _check_format(index, saved["format"])
            self._index, self._serial = dict(saved["parts"]), int(saved["serial"])
            if saved["crc"] != _crc(json.dumps([self._serial, self._index]), {}):
                raise ValueError
        except (KeyError, TypeError, ValueError) as error:
            if isinstance(error, Mismatch):
                raise
            raise CorruptState(f"{index} is damaged; delete {self.directory} to start again.") from error
        return {name: load(self.directory / file)["part"] for name, file in self._index.items()}

    def save(self, state: Mapping[str, Any], *, wait: bool = True) -> bool:
        """Save what changed; without `wait` in the background, or not at all while a save is under way."""
        if not wait and self._thread is not None and self._thread.is_alive():
            return False
        self.close()
        changed: dict[str, Any] = {}
        written = {}
        for name, part in state.items():
            tensors: dict[str, Tensor] = {}
            tree = json.dumps(_split({"part": part}, tensors, ""))
            versions = [(tensor, tensor._version) for tensor in tensors.values()]
            before = self._written.get(name)
            if before is None or before[0] != tree or not _same(before[1], versions):
                changed[name] = _snapshot(part)
            written[name] = (tree, versions)
        gone = set(self._index) - set(state)
        self._written = written
        if wait:
            self._write(changed, gone)
        else:
            self._thread = threading.Thread(target=self._try_write, args=(changed, gone), daemon=False)
            self._thread.start()
        return True

    def wait(self) -> None:
        """Wait for a save under way."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def close(self) -> None:
        """Wait for a save under way, and raise what went wrong with it."""
        self.wait()
        if self._error is not None:
            error, self._error = self._error, None
            raise error

    def delete(self) -> None:
        """Remove the directory: what it kept is finished."""
        self.close()
        self._index, self._written = {}, {}
        if self.directory.exists():
            (self.directory / "index.json").unlink(missing_ok=True)  # first: nothing then names a missing file
            for file in self.directory.iterdir():
                file.unlink()
            self.directory.rmdir()

    def _try_write(self, changed: dict[str, Any], gone: set[str]) -> None:
        try:
            self._write(changed, gone)
        except BaseException as error:  # raised again by close(), in the thread that trains
            self._error = error

    def _write(self, changed: dict[str, Any], gone: set[str]) -> None:
        written, self._written = self._written, {}  # forgotten if this fails: all is written next time
        index = {name: file for name, file in self._index.items() if name not in gone}
        serial = self._serial + 1
        for name, part in changed.items():
            index[name] = f"{name}-{serial}.safetensors"
            save(self.directory / index[name], {"part": part})
        head = {"format": FORMAT, "crc": _crc(json.dumps([serial, index]), {})}
        write_json(self.directory / "index.json", {**head, "serial": serial, "parts": index})
        self._index, self._serial, self._written = index, serial, written
        for file in self.directory.iterdir():
            if file.name not in {"index.json", *index.values()}:
                file.unlink(missing_ok=True)


def _split(value: Any, tensors: dict[str, Tensor], name: str) -> Any:
    """The JSON part of a value; its tensors go into `tensors` under their path."""
    if isinstance(value, Tensor):
        while name in tensors:  # {"a/b": ...} beside {"a": {"b": ...}}
            name += "'"
        tensors[name] = value.detach()
        return {"$tensor": name}
    if isinstance(value, Mapping):
        return {str(key): _split(item, tensors, f"{name}/{key}") for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_split(item, tensors, f"{name}/{i}") for i, item in enumerate(value)]
    return value


def _join(tree: Any, tensors: Mapping[str, Tensor]) -> Any:
    if isinstance(tree, dict):
        if set(tree) == {"$tensor"}:
            return tensors[tree["$tensor"]]
        return {key: _join(item, tensors) for key, item in tree.items()}
    if isinstance(tree, list):
        return [_join(item, tensors) for item in tree]
    return tree


def _unshared(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The same values, none of them twice in the same memory: safetensors refuses tied weights."""
    seen: set[int] = set()
    for name, tensor in tensors.items():
        storage = tensor.untyped_storage().data_ptr()
        tensors[name] = tensor.clone() if storage in seen else tensor
        seen.add(storage)
    return tensors


def _snapshot(value: Any) -> Any:
    """A copy that later training steps do not touch, contiguous and on the CPU."""
    if isinstance(value, Tensor):
        return value.detach().to("cpu", copy=True).contiguous()
    if isinstance(value, Mapping):
        return {key: _snapshot(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_snapshot(item) for item in value]
    return value


def _same(before: list[tuple[Tensor, int]], now: list[tuple[Tensor, int]]) -> bool:
    return len(before) == len(now) and all(
        (a.data_ptr(), a.dtype, a.shape, a.stride(), va) == (b.data_ptr(), b.dtype, b.shape, b.stride(), vb)
        for (a, va), (b, vb) in zip(before, now, strict=True)
    )


def _crc(tree: str, tensors: Mapping[str, Tensor]) -> int:
    crc = zlib.crc32(tree.encode())
    for name in sorted(tensors):
        crc = zlib.crc32(f"{name} {tensors[name].dtype} {list(tensors[name].shape)}".encode(), crc)
        if tensors[name].numel():
            crc = zlib.crc32(tensors[name].reshape(-1).view(torch.uint8).numpy().data, crc)
    return crc


def _check_format(path: Path, found: int) -> None:
    if found > FORMAT:
        raise Mismatch(
            f"{path} was written by a newer triphase (format {found}, this one reads {FORMAT}); upgrade."
        )


def _lock(descriptor: int) -> None:
    """Take the lock that ends with the process, or raise OSError."""
    if sys.platform == "win32":
        import msvcrt

        os.lseek(descriptor, 0, os.SEEK_SET)  # the byte that is locked is the one at hand
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
    else:
        import fcntl

        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _sync_directory(path: Path) -> None:
    if sys.platform == "win32":
        return  # directories cannot be opened there
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
