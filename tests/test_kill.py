"""kill -9 at any instant, then the same command again: the same final weights, bit for bit (DESIGN, point 4).

Most runs here are forked by a process that has imported torch already (this file, run as a script): importing it
anew takes longer than the training. One test starts the installed command itself.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any
from unittest.mock import patch

import pytest
import torch

from triphase import state as files
from triphase.bench.run import Report
from triphase.checkpoint import Checkpoint

COMMAND = str(Path(sys.executable).with_name("triphase"))
RUN = ["bench", "run", "digits-5", "--per-class", "60", "--epochs", "3", "--threads", "1"]
EVERY_STEP = ["--save-every", "0"]
LEARNERS = {
    "tpc": [],
    "tpc with latent replay": ["--replay", "latent"],
    "replay": ["--learner", "replay"],
    "finetune": ["--learner", "finetune"],
}
QUICKLY_KILLED = ("replay",)  # beside TPC; the others only in the slow suite
SAVES = 13  # in an experience of TPC: 4 steps of each phase, and its end
PHASES = {"I": 2, "II": 6, "III": 10}  # a save in the middle of each phase


@dataclass(frozen=True)
class Death:
    """SIGKILL at the n-th time that something is done to a file whose name contains `name`."""

    deed: str  # open, half (of the bytes written), fsync, replace, replaced, unlink, or any of them
    name: str = ""
    n: int = 1


class Nursery:
    """Starts the command in forked processes, one after the other."""

    def __init__(self) -> None:
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        pipe = subprocess.PIPE
        self.process = subprocess.Popen([sys.executable, __file__], stdin=pipe, stdout=pipe, env=environment)

    def start(self, out: Path, options: Sequence[str] = (), death: Death | None = None) -> int:
        """Begin or continue the run in `out`; returns the number of its process."""
        argv = [*RUN, *options, "--out", str(out)]
        return self._ask({"argv": argv, "log": f"{out}.log", "death": vars(death) if death else None})

    def end(self) -> int:
        """Wait for what was started; its exit status, negative for a signal."""
        return self._ask("end")

    def run(self, out: Path, options: Sequence[str] = (), death: Death | None = None) -> None:
        """Start and wait: it dies as told, or ends well."""
        self.start(out, options, death)
        status = self.end()
        assert status == (-signal.SIGKILL if death else 0), f"{death}: {Path(f'{out}.log').read_text()}"

    def close(self) -> None:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait()

    def _ask(self, request: object) -> int:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write((json.dumps(request) + "\n").encode())
        self.process.stdin.flush()
        return int(self.process.stdout.readline())


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    one = Nursery()
    yield one
    one.close()


@pytest.fixture(scope="module")
def uninterrupted(nursery: Nursery, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The run of a learner that nobody interrupted, made when it is first asked for."""
    folder = tmp_path_factory.mktemp("uninterrupted")

    def find(name: str) -> Path:
        if not (folder / name).exists():
            nursery.run(folder / name, [*LEARNERS[name], *EVERY_STEP])
        return folder / name

    return find


@pytest.fixture(scope="module")
def reference(uninterrupted: Callable[[str], Path]) -> Path:
    return uninterrupted("tpc")


def wait_for_lines(out: Path, lines: int, seconds: float = 60.0) -> None:
    log, deadline = out / "events.jsonl", time.monotonic() + seconds
    while not (log.exists() and log.read_bytes().count(b"\n") >= lines):
        assert time.monotonic() < deadline, f"{log} never had {lines} lines"
        time.sleep(0.001)


def flat(state: dict[str, Any]) -> dict[str, torch.Tensor]:
    return {f"{block}.{name}": tensor for block, part in state.items() for name, tensor in part.items()}


def assert_same_end(out: Path, reference: Path) -> None:
    """Weights to the last bit, accuracies, the log line by line; and nothing left over."""
    found, expected = (flat(files.load(run / "weights.safetensors")) for run in (out, reference))
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        assert found[name].dtype == tensor.dtype and torch.equal(found[name], tensor), name
    reports = [Report.from_json(files.read_json(run / "report.json")) for run in (out, reference)]
    assert reports[0].accuracy == reports[1].accuracy
    assert reports[0].confusion == reports[1].confusion
    assert reports[0].n_seen == reports[1].n_seen
    assert (out / "events.jsonl").read_text() == (reference / "events.jsonl").read_text()
    assert {file.name for file in out.iterdir()} == {file.name for file in reference.iterdir()}


def saved(out: Path) -> tuple[int, str]:
    """Experience and section of the state on disk."""
    state = Checkpoint(out / "state").load()
    assert state is not None
    return state["run"]["experience"], state["loop"]["section"]


def test_the_reference_learned_something(reference: Path) -> None:
    report = Report.from_json(files.read_json(reference / "report.json"))
    assert report.final_accuracy > 0.5
    weights = flat(files.load(reference / "weights.safetensors"))
    assert all(torch.isfinite(tensor).all() for tensor in weights.values())
    assert weights["head.weight"].std(dim=1, correction=0) == pytest.approx(torch.full((10,), 0.05))


def test_the_log_has_each_epoch_once(reference: Path) -> None:
    events = [json.loads(line) for line in (reference / "events.jsonl").read_text().splitlines()]
    epochs = [(e["experience"], e["phase"], e["epoch"]) for e in events if e["event"] == "epoch"]
    assert epochs == [(i, phase, 1) for i in range(1, 6) for phase in ("I", "II", "III")]
    assert [e["experience"] for e in events if e["event"] == "evaluated"] == [1, 2, 3, 4, 5]
    assert events[-1]["event"] == "done"


@pytest.mark.parametrize("phase", PHASES)
def test_killed_in_any_phase_it_ends_the_same(
    phase: str, nursery: Nursery, reference: Path, tmp_path: Path
) -> None:
    out, done = tmp_path / "run", 0
    for experience in (1, 4):
        save = SAVES * (experience - 1) + PHASES[phase]
        nursery.run(out, EVERY_STEP, Death("replaced", "index.json", save - done))
        assert saved(out) == (experience, phase)
        done = save
    nursery.run(out, EVERY_STEP)
    assert_same_end(out, reference)


@pytest.mark.slow
def test_killed_at_the_first_and_last_step_of_each_phase_it_ends_the_same(
    nursery: Nursery, reference: Path, tmp_path: Path
) -> None:
    out, done = tmp_path / "run", 0
    edges = ((1, "I"), (4, "I"), (5, "II"), (8, "II"), (9, "III"), (12, "III"), (13, ""))
    for experience in (1, 2):
        for save, section in edges:
            total = SAVES * (experience - 1) + save
            nursery.run(out, EVERY_STEP, Death("replaced", "index.json", total - done))
            assert saved(out) == (experience + (section == ""), section)
            done = total
    nursery.run(out, EVERY_STEP)
    assert_same_end(out, reference)


@pytest.mark.parametrize(
    "deaths",
    [
        [
            Death("open", "settings.json"),
            Death("half", "settings.json"),
            Death("replaced", "settings.json"),
            Death("half", "loop"),
            Death("replace", "index.json"),
            Death("fsync", n=2),
            Death("half", "index.json", 3),
        ],
        [
            Death("fsync", n=43),
            Death("half", "head", 9),
            Death("replaced", "memory"),
            Death("half", "memory", 2),
            Death("replace", "csf", 5),
            Death("unlink", "loop", 4),
            Death("replaced", "momentum", 6),
            Death("replace", "index.json", 13),
        ],
        [
            Death("half", "weights"),
            Death("replaced", "weights"),
            Death("replace", "report.json"),
            Death("replaced", "report.json"),
            Death("unlink", "index.json"),
        ],
    ],
    ids=["at the start", "on the way", "at the end"],
)
def test_killed_during_a_save_it_ends_the_same(
    deaths: Sequence[Death], nursery: Nursery, reference: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    for death in deaths:
        nursery.run(out, EVERY_STEP, death)
    nursery.run(out, EVERY_STEP)
    assert_same_end(out, reference)


def test_killed_inside_a_background_save_it_ends_the_same(
    nursery: Nursery, reference: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    for death in (Death("half", "csf", 2), Death("fsync", n=20), Death("replace", "index.json", 4)):
        nursery.run(out, ["--save-every", "0.01"], death)
    nursery.run(out)  # how often it saves is not a setting of the run
    assert_same_end(out, reference)


@pytest.mark.parametrize(
    "name",
    [n if n in QUICKLY_KILLED else pytest.param(n, marks=pytest.mark.slow) for n in LEARNERS if n != "tpc"],
)
def test_every_learner_survives_kills(
    name: str, nursery: Nursery, uninterrupted: Callable[[str], Path], tmp_path: Path
) -> None:
    out, options = tmp_path / "run", [*LEARNERS[name], *EVERY_STEP]
    for death in (Death("replaced", "index.json", 17), Death("half", "head", 12), Death("replaced", "weights")):
        nursery.run(out, options, death)
    nursery.run(out, options)
    assert_same_end(out, uninterrupted(name))


def test_killed_again_and_again_at_any_operation_it_ends_the_same(
    nursery: Nursery, reference: Path, tmp_path: Path
) -> None:
    """Every kind of operation, in steps that no two experiences have in common."""
    out = tmp_path / "run"
    for n in (1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144, 233, 377):
        nursery.run(out, EVERY_STEP, Death("any", n=n))
    nursery.run(out, EVERY_STEP)
    assert_same_end(out, reference)


@pytest.mark.slow
def test_the_installed_command_survives_kills(reference: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    command = [COMMAND, *RUN, *EVERY_STEP, "--out", str(out)]
    for line in (3, 11):
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            wait_for_lines(out, line)
            process.kill()
        assert process.returncode == -signal.SIGKILL
    assert subprocess.run(command, capture_output=True).returncode == 0
    assert_same_end(out, reference)


def test_a_finished_run_is_not_run_again(nursery: Nursery, reference: Path) -> None:
    def written() -> dict[str, tuple[bytes, int]]:
        files = [file for file in reference.iterdir() if file.name != "LOCK"]  # which says who held it last
        return {file.name: (file.read_bytes(), file.stat().st_mtime_ns) for file in files}

    before = written()
    nursery.run(reference, EVERY_STEP)
    assert written() == before


# What runs in the other process


class _Mortal:
    """Does what the run does to its files, and dies as told."""

    def __init__(self, death: Death) -> None:
        self.death, self.left = death, death.n
        self.real_replace, self.real_unlink = os.replace, os.unlink
        patch.object(files, "open", self.open, create=True).start()  # the builtin, in that module alone
        patch.object(os, "replace", self.replace).start()
        patch.object(os, "fsync", self.fsync).start()
        patch.object(os, "unlink", self.unlink).start()

    def due(self, deed: str, name: str = "") -> bool:
        self.left -= self.death.deed in (deed, "any") and self.death.name in name
        return self.left == 0

    def does(self, deed: str, name: str = "") -> None:
        if self.due(deed, name):
            os.kill(os.getpid(), signal.SIGKILL)

    def open(self, path: Path, mode: str = "r", **options: Any) -> IO[Any]:
        self.does("open", path.name)
        file = open(path, mode, **options)
        if mode == "wb" and self.due("half", path.name):  # LOCK is opened, and not written this way
            whole = file.write
            patch.object(file, "write", lambda blob: self.write_half(file, whole, blob)).start()
        return file

    def write_half(self, file: IO[Any], write: Callable[[bytes], int], blob: bytes) -> None:
        write(blob[: len(blob) // 2])
        file.flush()
        os.kill(os.getpid(), signal.SIGKILL)

    def replace(self, source: Path, target: Path, **folders: Any) -> None:
        self.does("replace", target.name)
        self.real_replace(source, target, **folders)
        self.does("replaced", target.name)

    def unlink(self, path: Path | str, **folder: Any) -> None:
        self.does("unlink", Path(path).name)
        self.real_unlink(path, **folder)

    def fsync(self, descriptor: int) -> None:
        self.does("fsync")  # and no more: only a power cut needs it, and it takes most of the time


def _child(job: dict[str, Any]) -> int:
    from triphase.cli import main

    log = os.open(job["log"], os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
    os.dup2(log, 1)
    os.dup2(log, 2)
    _Mortal(Death(**job["death"]) if job["death"] else Death("never"))
    sys.argv = ["triphase", *job["argv"]]
    try:
        main()
    except SystemExit as end:
        return int(end.code or 0)
    return 0


def _nursery() -> None:
    """Import what takes long, then fork a process for each job; answer its number and, when asked, its end."""
    import sklearn.datasets  # noqa: F401
    import torch._dynamo  # noqa: F401

    import triphase.cli.bench  # noqa: F401

    while line := sys.stdin.readline():
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                status = _child(json.loads(line))
            finally:
                sys.stderr.flush()
                os._exit(status)
        print(pid, flush=True)
        assert json.loads(sys.stdin.readline()) == "end"
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)


if __name__ == "__main__":
    _nursery()
