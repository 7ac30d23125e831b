"""Several processes do what one does: the same minibatches, weights, memory and scores."""

import os
import signal
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path
from subprocess import Popen

import pytest
import torch

from command import Call
from shared_runs import CASES, assert_close, in_threads, learned, start
from triphase import processes, state
from triphase.errors import InvalidValue, ProcessLost
from triphase.processes import Processes

TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node"]
RUN = ["-m", "triphase", "bench", "run", "digits-5", "--epochs", "3", "--threads", "1", "--save-every", "0"]
QUICK = [
    "tpc",
    "tpc with pseudo-labels",
    "ar1 from scratch with renormalisation",
    "bic",
    "derpp on crops, logits online",
]


def ended(running: list[Popen[str]]) -> list[tuple[int, str, str]]:
    """Status, stdout and stderr of each process."""
    answers = [process.communicate(timeout=600) for process in running]
    return [(process.returncode, *answer) for process, answer in zip(running, answers, strict=True)]


@pytest.mark.parametrize("case", QUICK)
def test_two_shards_teach_what_whole_minibatches_teach(case: str) -> None:
    expected = learned(case, Processes())
    for found in in_threads(2, lambda thread: learned(case, thread)):
        assert_close(found, expected, case)


@pytest.mark.slow
@pytest.mark.parametrize("size", [2, 3, 5])  # of 5, some have no sample of a minibatch
@pytest.mark.parametrize("case", CASES)
def test_any_number_of_shards_teaches_what_whole_minibatches_teach(case: str, size: int) -> None:
    expected = learned(case, Processes())
    for found in in_threads(size, lambda thread: learned(case, thread)):
        assert_close(found, expected, f"{case} in {size} shards")


@pytest.mark.slow
def test_real_processes_end_with_what_one_process_ends_with(tmp_path: Path) -> None:
    arguments = [Path(__file__).with_name("shared_runs.py"), tmp_path, *QUICK]
    for status, _, err in ended(start([arguments, arguments])):
        assert status == 0, err
    for case in QUICK:
        expected = learned(case, Processes())
        for rank in (0, 1):
            assert_close(state.load(tmp_path / f"{case} {rank}.safetensors"), expected, f"{case} in process {rank}")


def weights(run: Path) -> dict[str, torch.Tensor]:
    saved = state.load(run / "weights.safetensors")
    return {f"{block}.{name}": tensor for block, part in saved.items() for name, tensor in part.items()}


def torchrun(size: int, out: Path) -> Popen[str]:
    command = [*TORCHRUN, str(size), *RUN, "--out", str(out)]
    return Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )


def kill_worker(agent: Popen[str], rank: int, run: Path, saves: int) -> None:
    """SIGKILL one of torchrun's processes once so many checkpoints are written."""
    index = run / "state" / "index.json"
    while not index.exists() or state.read_json(index)["serial"] < saves:
        assert agent.poll() is None, agent.communicate()[1]
        time.sleep(0.01)
    workers = Path(f"/proc/{agent.pid}/task/{agent.pid}/children").read_text().split()
    os.kill(int(workers[rank]), signal.SIGKILL)
    _, err = agent.communicate(timeout=300)
    assert agent.returncode != 0
    assert rank == 0 or "again to continue from the checkpoint" in err, err


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="finds the processes in /proc")
def test_a_killed_run_goes_on_in_as_many_processes_or_in_another_number(tmp_path: Path) -> None:
    whole, same, other, alone = (tmp_path / name for name in ("whole", "same", "other", "alone"))
    for running in (torchrun(2, whole), torchrun(1, alone)):
        assert ended([running])[0][0] == 0
    for rank, saves in ((0, 20), (1, 50)):  # either process, in two experiences
        kill_worker(torchrun(2, same), rank, same, saves)
    kill_worker(torchrun(2, other), 1, other, 30)
    for size, run in ((2, same), (1, other)):
        status, _, err = ended([torchrun(size, run)])[0]
        assert status == 0 and "continuing at experience" in err, err
    for name, tensor in weights(whole).items():
        assert torch.equal(weights(same)[name], tensor), f"{name}: a kill changed the result"
        for run in (other, alone):  # rounding differs, and training amplifies it
            gap = (weights(run)[name].double() - tensor.double()).abs().max() / tensor.double().abs().max()
            assert gap < 0.1, f"{name} of {run.name} differs by {gap}"


@pytest.mark.slow
def test_only_the_first_process_prints_and_settings_must_agree(tmp_path: Path) -> None:
    run = [*RUN, "--json", "--experiences", "1", "--out", tmp_path / "run"]
    answers = ended(start([run, run]))
    assert [status for status, _, _ in answers] == [0, 0], answers
    assert '"amca"' in answers[0][1] and answers[1][1:] == ("", "")
    answers = ended(start([run, [*run, "--seed", "1"]]))
    assert [status for status, _, _ in answers] == [1, 1]
    assert sum("seed 1 instead of 0" in err for _, _, err in answers) == 1, answers
    assert answers[0][2] == "", "the process that differs says so, and nobody else"


def test_processes_that_cannot_find_each_other_are_told_how(
    triphase: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    answer = triphase("bench", "run", "digits-5", "--learner", "finetune")
    assert answer.status == 1 and "torchrun --nproc-per-node 2" in answer.err and answer.err.count("\n") == 1
    for wrong in ("two", "0"):
        monkeypatch.setenv("WORLD_SIZE", wrong)
        with pytest.raises(InvalidValue, match=f"WORLD_SIZE must be a number .*got '{wrong}'"), processes.join():
            pass
    for name, value in {"WORLD_SIZE": "2", "RANK": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "9"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(processes, "CONNECT_TIMEOUT", timedelta(seconds=0.3))
    with pytest.raises(ProcessLost, match="did not find each other at 127.0.0.1:9"), processes.join():
        pass


def test_more_processes_than_samples_are_refused() -> None:
    with pytest.raises(InvalidValue, match="20 processes cannot share minibatches of 6 samples"):
        learned("finetune", Processes(rank=3, size=20))


def test_choices_that_need_whole_minibatches_are_refused() -> None:
    for name, options in (("tpc", {"masking": "group"}), ("bic", {"distill_axis": "batch"})):
        CASES["refused"] = (name, options, {})
        with pytest.raises(InvalidValue, match="needs whole minibatches"):
            learned("refused", Processes(size=2))
    del CASES["refused"]
