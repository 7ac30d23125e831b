"""Copies of run directories in the storage: saved while a run goes on, restored where it goes on next.

Every attempt at a run saves into a folder of its own, so an attempt that was given up but still runs somewhere
overwrites nothing. Files are named by their checksum; an index names those that belong together and is written
last.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from triphase import state as files
from triphase.bench.sweep.cluster.storage import Storage

INDEX = "index.json"
CHECKPOINT = "state"  # the folder of a run's checkpoint
WITH_CHECKPOINT = ("settings.json", "events.jsonl")
WHEN_FINISHED = ("settings.json", "events.jsonl", "weights.safetensors", "profile.json", "report.json")
RUN_FILE = re.compile(rf"({CHECKPOINT}/)?\w[\w.-]*")
MAX_TRIES = 20  # to read a directory whose checkpoint is being replaced
Stamp = tuple[str, int, int]  # name, size and time of change of a file


class RunCopy:
    """The copy that one attempt at a run saves."""

    def __init__(self, storage: Storage, run: str, attempt: str) -> None:
        self._storage, self._run, self._attempt = storage, run, attempt
        self._saved: dict[Stamp, str] = {}  # with their checksums

    def save(self, directory: Path, share: float) -> None:
        """Save a run directory, also while the run writes into it; `share` is how much of it is done."""
        index, saved = self._save_files(directory)
        self._storage.write(self._path(INDEX), json.dumps(index | {"share": share}).encode())
        obsolete, self._saved = set(self._saved.values()) - set(saved.values()), saved
        for checksum in obsolete:
            self._storage.remove(self._path(checksum))

    def remove_others(self) -> None:
        """Remove the copies of other attempts, once this one is as far as they were."""
        for other in set(self._storage.names(self._run)) - {self._attempt}:
            self._storage.remove(f"{self._run}/{other}")

    def _save_files(self, directory: Path) -> tuple[dict[str, Any], dict[Stamp, str]]:
        """Save the files of a finished run, or of one checkpoint; returns their index."""
        for tried in range(MAX_TRIES):
            saved: dict[Stamp, str] = {}
            index: dict[str, Any] = {"finished": (directory / "report.json").exists(), "serial": 0, "files": {}}
            try:
                if not index["finished"]:
                    self._save_checkpoint(directory, index, saved)
                # the log after the checkpoint: it may then be longer than the checkpoint says, never shorter
                for name in WHEN_FINISHED if index["finished"] else WITH_CHECKPOINT:
                    if (directory / name).exists():
                        index["files"][name] = self._save_file(directory / name, saved)
                if index["finished"] or not (directory / "report.json").exists():
                    return index, saved  # else the run has ended meanwhile, and its checkpoint is gone
            except FileNotFoundError:  # the next checkpoint took its place
                if tried == MAX_TRIES - 1:
                    raise
        raise AssertionError("unreachable")

    def _save_checkpoint(self, directory: Path, index: dict[str, Any], saved: dict[Stamp, str]) -> None:
        path = directory / CHECKPOINT / INDEX
        if not path.exists():
            return
        content = path.read_bytes()
        checkpoint = json.loads(content)
        for name in checkpoint["parts"].values():
            index["files"][f"{CHECKPOINT}/{name}"] = self._save_file(path.with_name(name), saved)
        index["serial"] = checkpoint["serial"]
        index["files"][f"{CHECKPOINT}/{INDEX}"] = self._save_bytes(content)
        saved[(INDEX, len(content), checkpoint["serial"])] = index["files"][f"{CHECKPOINT}/{INDEX}"]

    def _save_file(self, path: Path, saved: dict[Stamp, str]) -> str:
        found = path.stat()
        stamp = (path.name, found.st_size, found.st_mtime_ns)
        saved[stamp] = self._saved.get(stamp) or self._save_bytes(path.read_bytes())
        return saved[stamp]

    def _save_bytes(self, content: bytes) -> str:
        checksum = _checksum(content)
        if checksum not in self._saved.values():
            self._storage.write(self._path(checksum), content)
        return checksum

    def _path(self, name: str) -> str:
        return f"{self._run}/{self._attempt}/{name}"


def restore(storage: Storage, run: str, directory: Path) -> bool:
    """Write the most advanced complete copy of a run into a directory; False if there is none."""
    indices = {attempt: read_index(storage, run, attempt) for attempt in storage.names(run)}
    found = [(index["finished"], index["serial"], attempt) for attempt, index in indices.items() if index]
    for finished, _, attempt in sorted(found, reverse=True):
        index = indices[attempt] or {}
        contents = _read_files(storage, f"{run}/{attempt}", index["files"])
        if contents:
            if finished:
                shutil.rmtree(directory / CHECKPOINT, ignore_errors=True)
            for name, content in contents.items():  # an index and a report come after the files that they describe
                files.write(directory / name, content)
            return True
    return False


def read_index(storage: Storage, run: str, attempt: str) -> dict[str, Any] | None:
    """What an attempt at a run has saved; None if it has not begun, or its index cannot be read."""
    content = storage.read(f"{run}/{attempt}/{INDEX}")
    try:
        index = json.loads(content or b"null")
        keys = {"finished": bool, "serial": int, "share": float, "files": dict}
        whole = isinstance(index, dict) and all(isinstance(index.get(key), kind) for key, kind in keys.items())
        return index if whole and all(map(RUN_FILE.fullmatch, index["files"])) else None
    except ValueError:
        return None


def _read_files(storage: Storage, folder: str, checksums: Mapping[str, str]) -> dict[str, bytes]:
    """The contents by name; none at all if any of them is missing or damaged."""
    contents: dict[str, bytes] = {}
    for name, checksum in checksums.items():
        content = storage.read(f"{folder}/{checksum}")
        if content is None or _checksum(content) != checksum:
            return {}
        contents[name] = content
    return contents


def _checksum(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=16).hexdigest()
