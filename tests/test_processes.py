"""Several processes do what one does: the same minibatches, weights, memory and scores."""

from pathlib import Path

import pytest
import torch

from shared_runs import CASES, learned, start
from triphase import state as files
from triphase.processes import Processes

FAST = ("tpc", "ar1 from scratch with renormalisation", "bic", "derpp on crops, logits online")


def assert_same(size: int, cases: tuple[str, ...], folder: Path) -> None:
    """Every process ends with what one process alone ends with, to the rounding of float64."""
    errors = []
    for process in start(size, [Path(__file__).with_name("shared_runs.py"), folder, *cases]):
        _, err = process.communicate(timeout=600)
        errors += [err] if process.returncode else []
    assert not errors, "\n".join(errors)
    for case in cases:
        expected = learned(case, Processes())
        for rank in range(size):
            found = files.load(folder / f"{case} {rank}.safetensors")
            assert found.keys() == expected.keys()
            for name, tensor in expected.items():
                close = torch.allclose(found[name].double(), tensor.double(), rtol=1e-9, atol=1e-10, equal_nan=True)
                gap = (found[name].double() - tensor.double()).abs().max() if tensor.numel() else 0
                assert close, f"{case}, process {rank}: {name} differs by {gap}"


def test_two_processes_learn_what_one_learns(tmp_path: Path) -> None:
    assert_same(2, FAST, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("size", [2, 3, 5])  # of 5, some have no sample of a minibatch
def test_every_learner_learns_the_same_in_several_processes(size: int, tmp_path: Path) -> None:
    assert_same(size, tuple(CASES), tmp_path)
