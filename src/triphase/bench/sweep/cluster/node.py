"""What a node of a cluster does for one job: JSON in, JSON out."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from triphase.bench.sweep.backend import LATENTS, Ended, how_it_ended, shared_arguments
from triphase.bench.sweep.cluster.copies import RunCopy, restore
from triphase.bench.sweep.cluster.inputs import Input
from triphase.bench.sweep.cluster.storage import Storage
from triphase.bench.sweep.cluster.versions import PACKAGE, difference
from triphase.bench.sweep.jobs import share_done
from triphase.errors import BadData, CorruptState, InvalidValue, TriphaseError, Unreachable

CHILD = (sys.executable, "-m", "triphase.bench.sweep.cluster.child")
MARK = "sweep.json"  # a file by which a node checks that it sees the storage of the sweep
RETRY_SECONDS = 60.0  # how long the last save of a run is tried again while the storage cannot be reached
RETRY_PAUSE = 1.0  # seconds between two tries


def execute(message: str) -> str:
    """Execute the job that a message describes; returns how it ended, or null if data must be shipped first."""
    task = json.loads(message)
    try:
        reason = difference(task["versions"], platform.node())
        ended: Ended | None = Ended("stop", reason) if reason is not None else _execute(task)
    except (Unreachable, CorruptState, InvalidValue) as error:
        ended = Ended("stop", str(error))
    except TriphaseError as error:
        ended = Ended("refused", str(error))
    return json.dumps(None if ended is None else ended._asdict())


def scratch_folder() -> Path:
    """The folder of this user on this node, for data, latents and runs that are being executed."""
    folder = Path(tempfile.gettempdir()) / f"triphase-cluster-{os.getuid() if hasattr(os, 'getuid') else ''}"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if hasattr(os, "getuid") and folder.stat().st_uid != os.getuid():
        raise BadData(
            f"{folder} belongs to somebody else; set TMPDIR to a folder of your own on {platform.node()}."
        )
    return folder


def _execute(task: dict[str, Any]) -> Ended | None:
    storage, sweep, scratch = Storage(task["storage"]), task["sweep"], scratch_folder()
    _check_mark(storage, sweep)
    folders: dict[str, Path] = {}
    for name in ("data", "weights"):
        if task[name] is not None:
            wanted = Input(task[name]["root"], tuple(task[name]["names"]), task[name]["fingerprint"])
            found = wanted.find(storage, scratch)
            if found is None:
                return None
            folders[name] = found
    places = scratch / sweep / task["run"]
    shutil.rmtree(places, ignore_errors=True)  # of an attempt that was killed here
    try:
        first = places / "first"
        if task["first"] is not None and not restore(storage, f"{sweep}/{task['first']}", first):
            return Ended("crashed", f"its first experience {task['first']} is not in the storage")
        directory = places / task["attempt"]
        directory.mkdir(parents=True)
        restore(storage, f"{sweep}/{task['run']}", directory)
        words = _arguments(task, directory, first, folders, scratch / sweep / LATENTS)
        copy = RunCopy(storage, f"{sweep}/{task['run']}", task["attempt"])
        return _run(words, directory, copy, storage, task)
    finally:
        shutil.rmtree(places, ignore_errors=True)


def _arguments(
    task: dict[str, Any], directory: Path, first: Path, folders: dict[str, Path], latents: Path
) -> list[str]:
    """The arguments of `triphase` with the folders of this node."""
    workers = max(1, int((os.cpu_count() or 1) // max(1, task["cpus"])))
    words = [*task["arguments"], "--out", str(directory)]
    words += ["--first-from", str(first)] if task["first"] is not None else []
    if "weights" in folders:
        words += ["--weights", str(folders["weights"] / task["weights"]["names"][0])]
    data = folders.get("data", Path("data"))
    limits = {"threads": task["threads"], "latent_budget": task["latent_budget"], "device": task["device"]}
    return [*words, *shared_arguments(latents, data, workers=workers, **limits), "--json"]


def _run(words: list[str], directory: Path, copy: RunCopy, storage: Storage, task: dict[str, Any]) -> Ended:
    """Run in a process, saving copies now and then and at the end, whatever the end is."""

    def save() -> None:
        _check_mark(storage, task["sweep"])
        copy.save(directory, share_done(directory, task["experiences"]))

    begin = time.monotonic()
    save()
    copy.remove_others()
    # The same triphase as here, also where it was found by a path that only this process has.
    paths = filter(None, [str(PACKAGE.parent), os.environ.get("PYTHONPATH")])
    with tempfile.TemporaryFile(prefix="triphase-cluster-") as stderr:
        popen = subprocess.Popen(
            [*CHILD, str(os.getpid()), *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=stderr,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
        )
        try:
            while popen.poll() is None:
                with suppress(subprocess.TimeoutExpired):
                    popen.wait(task["save_every"])
                if popen.poll() is None:
                    with suppress(Unreachable):  # the next save may succeed
                        save()
        finally:
            popen.terminate()
            popen.wait()
            _save_with_retries(save)
        stderr.seek(0)
        text = stderr.read().decode(errors="replace")
    return how_it_ended(directory, popen.returncode, text, time.monotonic() - begin)


def _check_mark(storage: Storage, sweep: str) -> None:
    """Refuse a storage that is not the sweep's, such as the empty folder where a shared one is not mounted."""
    if not storage.exists(f"{sweep}/{MARK}"):
        raise Unreachable(
            f"Node {platform.node()} of the cluster does not see what this computer wrote to {storage.url}; bring "
            "it back, or give --storage, a folder that all nodes share or a URL such as s3://bucket/prefix."
        )


def _save_with_retries(save: Callable[[], None]) -> None:
    """Save the last copy of a run; try again for a while if the storage cannot be reached."""
    deadline = time.monotonic() + RETRY_SECONDS
    while True:
        try:
            return save()
        except Unreachable:
            if time.monotonic() > deadline:
                raise
            time.sleep(RETRY_PAUSE)
