"""The directory of a run: settings, log of events, checkpoint, and at the end weights and report."""

from __future__ import annotations

import io
import json
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

import torch

from triphase import state as files
from triphase.bench.run.options import upgraded
from triphase.bench.run.results import Report
from triphase.checkpoint import Checkpoint
from triphase.device import changed_device
from triphase.directory_lock import DirectoryLock
from triphase.errors import Mismatch, TriphaseWarning

DIVERGED = "diverged.json"  # why a run was refused whose weights are not finite
THEN = ", then "  # between the devices of a run that went on on another one
NOT_COMPARED = {"threads", "device", "processes"}  # of settings: may change, or are looked at by themselves
CAUSES = ("benchmark", "learner", "order", "seed")  # named before other settings that differ because of them


class RunDirectory:
    """Everything a run writes; nothing at all if the path is None."""

    def __init__(self, path: Path | str | None, lock: DirectoryLock | None = None) -> None:
        self.path = Path(path) if path is not None else None
        self._checkpoint = Checkpoint(self.path / "state", lock) if self.path is not None else None
        self._log: IO[bytes] = io.BytesIO()

    def finished_report(self, settings: Mapping[str, Any]) -> Report | None:
        """The report of a finished run with these settings; None if there is none yet."""
        if self.path is None or self._checkpoint is None or not (self.path / "report.json").exists():
            return None
        _check_same(self.path, self._saved_settings(), settings)
        self._checkpoint.delete()  # left behind by a run that was killed at the very end
        return Report.from_json(files.read_json(self.path / "report.json"))

    def load_checkpoint(self, settings: dict[str, Any]) -> dict[str, Any] | None:
        """The state of an unfinished run with these settings; without one, the settings are written.

        A run may go on on another device: its settings then name both.
        """
        if self.path is None or self._checkpoint is None:
            return None
        (self.path / DIVERGED).unlink(missing_ok=True)  # of a run whose place this one takes
        state = self._checkpoint.load()
        if state is not None:
            saved, now = self._saved_settings(), settings["device"]
            _check_same(self.path, saved, settings)
            devices = saved.get("device", "cpu")
            if devices.split(THEN)[-1] == now:
                _check_threads(self.path, saved["threads"])
                settings["device"] = devices
                return state
            warnings.warn(changed_device(devices, now), TriphaseWarning, stacklevel=2)
            settings["device"] = f"{devices}{THEN}{now}"
        files.write_json(self.path / "settings.json", settings)
        return state

    def _saved_settings(self) -> dict[str, Any]:
        assert self.path is not None
        return upgraded(files.read_json(self.path / "settings.json"))

    def open_log(self, size: int) -> None:
        """Continue the log of events at the size that it had when the checkpoint was saved."""
        if self.path is None:
            return
        path = self.path / "events.jsonl"
        try:
            self._log = open(path, "ab")
            self._log.truncate(min(size, path.stat().st_size))
            self._log.seek(0, 2)
        except OSError as error:
            raise files.cannot_write(path, error) from error

    @property
    def log_size(self) -> int:
        """Bytes in the log of events."""
        return self._log.tell()

    def log(self, event: Mapping[str, Any]) -> None:
        """Append an event to the log."""
        if self.path is None:
            return
        try:
            self._log.write((json.dumps(event) + "\n").encode())
            self._log.flush()
        except OSError as error:
            raise files.cannot_write(self.path / "events.jsonl", error) from error

    def save(self, state: Mapping[str, Any], *, wait: bool, may_skip: bool) -> None:
        """Save a checkpoint; unless `wait`, in the background, or not at all while another is written."""
        if self._checkpoint is None:
            return
        if not may_skip:
            self.finish_saving()
        self._checkpoint.save(state, wait=wait)

    def finish_saving(self) -> None:
        """Wait for a checkpoint that is being written, and raise what went wrong with it."""
        if self._checkpoint is not None:
            self._checkpoint.close()

    def finish(self, report: Report, weights: Mapping[str, Any]) -> None:
        """Write weights and report; a checkpoint is no longer needed."""
        if self.path is None or self._checkpoint is None:
            return
        self._checkpoint.close()
        files.save(self.path / "weights.safetensors", weights)
        files.write_json(self.path / "report.json", report.to_json())
        self._checkpoint.delete()

    def diverged(self, reason: str) -> None:
        """Record that the run diverged; its checkpoint is of no use."""
        if self.path is None or self._checkpoint is None:
            return
        self._checkpoint.delete()
        record_diverged(self.path, reason)

    def close(self) -> None:
        """Close the log and wait for the writer: the lock on the directory must outlast it."""
        self._log.close()
        if self._checkpoint is not None:
            self._checkpoint.wait()


def record_diverged(out: Path, reason: str) -> None:
    """Write down why the run in this directory has no result."""
    files.write_json(out / DIVERGED, {"reason": reason})


def why_diverged(out: Path) -> str | None:
    """Why the run in this directory has no result, if it diverged."""
    return str(files.read_json(out / DIVERGED)["reason"]) if (out / DIVERGED).exists() else None


def recorded_threads(out: Path) -> int | None:
    """The number of CPU threads that the unfinished run in this directory was begun with; None if there is none."""
    if (out / "report.json").exists() or not (out / "state" / "index.json").exists():
        return None
    return int(files.read_json(out / "settings.json")["threads"])


def _check_same(out: Path, saved: Mapping[str, Any], now: Mapping[str, Any], prefix: str = "") -> None:
    """Refuse to continue a run with other settings, and say which differ."""
    for name in sorted((saved.keys() | now.keys()) - NOT_COMPARED, key=lambda name: (name not in CAUSES, name)):
        old, new = saved.get(name), now.get(name)
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            _check_same(out, old, new, f"{prefix}{name}.")
        elif old != new:
            what = "another stream" if name == "stream" else f"{prefix}{name} {old!r} (now {new!r})"
            raise Mismatch(f"{out} holds a run with {what}; give another --out, or delete {out} to start again.")


def _check_threads(out: Path, begun_with: int) -> None:
    """Refuse to continue a run under another number of threads: sums would be rounded in another order."""
    now = torch.get_num_threads()
    if now != begun_with:
        raise Mismatch(
            f"The run in {out} was begun with {begun_with} CPU thread(s), and this process has {now}, which rounds "
            f"otherwise: call torch.set_num_threads({begun_with}) before run(), or delete {out} to start again."
        )
