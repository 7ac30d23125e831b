"""Where the time of training goes: data, llf, csf and head, and how many images pass, summed up in this process."""

from __future__ import annotations

import time
import weakref
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TypeVar, cast

from torch import Tensor, nn

PARTS = ("data", "llf", "csf", "head")
seconds: dict[str, float] = dict.fromkeys(PARTS, 0.0)
images = 0  # of all minibatches served
borrowed = 0.0  # of the seconds above, those that another process has spent
Item = TypeVar("Item")
_END = object()
_watched: weakref.WeakSet[nn.Module] = weakref.WeakSet()


def count(n: int) -> None:
    """A minibatch of n images was served."""
    global images
    images += n


def borrow(spent: Mapping[str, float]) -> None:
    """Count what another process has spent on something that this one was given."""
    global borrowed
    for part, time_spent in spent.items():
        seconds[part] += time_spent
    borrowed += sum(spent.values())


@contextmanager
def on(part: str) -> Iterator[None]:
    """Count the time inside to a part.

    >>> with on("data"):
    ...     pass
    >>> seconds["data"] > 0
    True
    """
    start = time.perf_counter()
    try:
        yield
    finally:
        seconds[part] += time.perf_counter() - start


def waiting(part: str, items: Iterator[Item]) -> Iterator[Item]:
    """The items, the time spent waiting for each counted to a part."""
    while True:
        with on(part):
            item = next(items, _END)
        if item is _END:
            return
        yield cast(Item, item)


@contextmanager
def on_backward(csf_learns: bool) -> Iterator[None]:
    """Count a backward pass and its update: what the head does not take is csf's, if it learns."""
    start, head = time.perf_counter(), seconds["head"]
    yield
    rest = time.perf_counter() - start - (seconds["head"] - head)
    seconds["csf" if csf_learns else "head"] += rest


def watch(csf: nn.Module, head: nn.Module) -> None:
    """Count the passes through csf and head, from now on."""
    for part, module in (("csf", csf), ("head", head)):
        if module not in _watched:
            _watched.add(module)
            _watch(module, part)


def _watch(module: nn.Module, part: str) -> None:
    started: list[float] = []

    def start(*_: object) -> None:
        started.append(time.perf_counter())

    def stop(*_: object) -> None:
        seconds[part] += time.perf_counter() - started.pop() if started else 0.0

    def forward(_: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        stop()
        if part == "head" and inputs[0].requires_grad and output.requires_grad:
            output.register_hook(start)
            inputs[0].register_hook(stop)

    module.register_forward_pre_hook(start)
    module.register_forward_hook(forward)
