"""Latents stay within a budget, and what does not fit leaves nothing behind."""

import gc
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
import torch

from triphase.budget import Budget
from triphase.errors import InvalidValue, TriphaseError


def test_what_fits_the_budget_is_in_memory_and_given_back() -> None:
    budget = Budget(limit=1000)
    one = budget.allocate((10, 10), torch.float32)
    assert budget.used == 400
    view = one[2:5]
    del one
    gc.collect()
    assert budget.used == 400 and view.shape == (3, 10)  # a view keeps the whole
    del view
    gc.collect()
    assert budget.used == 0


def test_a_killed_process_leaves_no_file_behind(tmp_path: Path) -> None:
    script = (
        "import torch, sys; from triphase.budget import Budget\n"
        "t = Budget(limit=0).allocate((1000, 1000), torch.float32); t.fill_(3)\n"
        "print(float(t.mean()), flush=True); sys.stdin.read()"
    )
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    pipe = subprocess.PIPE
    process = subprocess.Popen([sys.executable, "-c", script], stdin=pipe, stdout=pipe, env=environment, text=True)
    assert process.stdout is not None and process.stdout.readline() == "3.0\n"
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_beyond_the_budget_gets_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(**_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tempfile, "TemporaryFile", refuse)
    with pytest.raises(TriphaseError, match="set TMPDIR to a larger disk or raise the budget"):
        Budget(limit=0).allocate((4,), torch.float32)


def test_a_budget_is_given_in_megabytes_and_must_make_sense() -> None:
    assert Budget.megabytes(3).limit == 3 << 20
    with pytest.raises(InvalidValue, match="must not be negative"):
        Budget.megabytes(-1)


def test_two_budgets_do_not_mix() -> None:
    one, two = Budget(limit=1000), Budget(limit=1000)
    kept = one.allocate((10, 10), torch.float32)
    assert (one.used, two.used) == (kept.nbytes, 0)


def test_by_default_a_budget_is_a_quarter_of_the_memory() -> None:
    assert 0 < Budget().limit * 4 <= os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
