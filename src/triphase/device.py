"""The device that networks compute on: the CPU, a CUDA GPU, or MPS.

Memory, latents and closed forms stay on the host.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from triphase.errors import InvalidValue, OutOfMemory, is_out_of_memory

ACCELERATORS = ("cuda", "mps")  # in the order in which "auto" looks for them
NAMES = re.compile("cpu|mps|cuda(:(0|[1-9][0-9]*))?")  # as torch reads them


def choose(name: str | torch.device) -> torch.device:
    """The device of that name, if this machine has it; "auto" is an accelerator, or else the CPU.

    >>> choose("cpu")
    device(type='cpu')
    """
    if not isinstance(name, str | torch.device):
        raise InvalidValue(f"device is a name such as 'auto', 'cpu' or 'cuda:1', got {name!r}.")
    if name == "auto":
        return torch.device(next((kind for kind in ACCELERATORS if _count(kind)), "cpu"))
    if isinstance(name, str) and not NAMES.fullmatch(name):
        raise InvalidValue(f"No device is called {name!r}; there are auto, cpu, cuda, cuda:1 and so on, and mps.")
    kind, _, number = str(name).partition(":")
    if kind in ACCELERATORS and int(number or 0) >= (n := _count(kind)):
        there = f"has {n}, from cuda:0 to cuda:{n - 1}" if n else f"or this PyTorch ({torch.__version__}) has none"
        raise InvalidValue(f"There is no device {name}: this machine {there}; use auto or cpu.")
    return torch.device(name)


def record_name(device: torch.device) -> str:
    """What is recorded of a device: two that have the same name compute the same, bit for bit.

    >>> record_name(torch.device("cpu"))
    'cpu'
    """
    if device.type != "cuda":
        return device.type
    return f"cuda {re.sub(r'[^A-Za-z0-9_. +-]', '', torch.cuda.get_device_name(device))}"[:64]


def changed_device(begun_on: str, now: str) -> str:
    """The warning for work that continues on another device."""
    return f"Begun on {begun_on}, continued on {now}: the results will be close, not the same bit for bit."


def make_deterministic() -> None:
    """Make CUDA deterministic; torch does this for the whole process, so only commands call it."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]


@contextmanager
def explain_out_of_memory(remedy: str, needed_for: str = "a minibatch") -> Iterator[None]:
    """Turn out-of-memory errors within this block into one sentence."""
    try:
        yield
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
        raise OutOfMemory(f"The memory of the device does not suffice for {needed_for}: {remedy}.") from error


def _count(kind: str) -> int:
    return torch.cuda.device_count() if kind == "cuda" else int(torch.backends.mps.is_available())
