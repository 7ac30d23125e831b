"""Checkpoints: the newest state of a training run, in a directory of its own."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from triphase import state as files
from triphase.directory_lock import DirectoryLock
from triphase.errors import CorruptState, Mismatch
from triphase.state import FORMAT, State


class Checkpoint:
    """A directory with the newest state; each top-level entry is a file, rewritten only when it changed.

    Snapshots are taken at once and written by a background thread, so training waits for a copy, not for the
    disk. A part is unchanged if its tensors are the same objects in memory at the same autograd version: every
    in-place operation of torch counts that version up (optimisers must not be built with `fused=True`, whose
    kernels do not). The index names the part files and is replaced last: it is always complete.
    """

    def __init__(self, directory: Path, lock: DirectoryLock | None = None) -> None:
        """`lock` is that of an enclosing directory, which may be moved or replaced at any time."""
        self.directory = directory
        self._replace = files.write if lock is None else lock.write
        self._remove = files.remove if lock is None else lock.remove
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
        saved = files.read_json(index)
        try:
            files.check_format(index, saved["format"])
            self._index, self._serial = dict(saved["parts"]), int(saved["serial"])
            if saved["crc"] != files.crc32(json.dumps([self._serial, self._index]), {}):
                raise ValueError
        except (KeyError, TypeError, ValueError) as error:
            if isinstance(error, Mismatch):
                raise
            raise CorruptState(f"{index} is damaged; delete {self.directory} to start again.") from error
        return {name: files.load(self.directory / file)["part"] for name, file in self._index.items()}

    def save(self, state: Mapping[str, Any], *, wait: bool = True) -> bool:
        """Save changes; without `wait` in the background, or not at all while a save is in progress."""
        if not wait and self._thread is not None and self._thread.is_alive():
            return False
        self.close()
        changed: dict[str, Any] = {}
        written = {}
        for name, part in state.items():
            tensors: dict[str, Tensor] = {}
            tree = json.dumps(files.split_tensors({"part": part}, tensors, ""))
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
        """Wait for a save in progress."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def close(self) -> None:
        """Wait for a save in progress and raise its error, if any."""
        self.wait()
        if self._error is not None:
            error, self._error = self._error, None
            raise error

    def delete(self) -> None:
        """Remove the directory after the work is finished."""
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
        written, self._written = self._written, {}  # stays empty if this fails: then the next save writes all
        index = {name: file for name, file in self._index.items() if name not in gone}
        serial = self._serial + 1
        for name, part in changed.items():
            index[name] = f"{name}-{serial}.safetensors"
            self._replace(self.directory / index[name], files.to_bytes({"part": part}))
        head = {"format": FORMAT, "crc": files.crc32(json.dumps([serial, index]), {})}
        content = {**head, "serial": serial, "parts": index}
        self._replace(self.directory / "index.json", json.dumps(content, indent=1).encode())
        self._index, self._serial, self._written = index, serial, written
        for file in self.directory.iterdir():
            if file.name not in {"index.json", *index.values()}:
                self._remove(file)


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
