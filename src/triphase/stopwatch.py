"""Where the time of training goes: data, llf, csf and head, and how many images pass."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import TypeVar, cast

from torch import Tensor, nn

PARTS = ("data", "llf", "csf", "head")
Item = TypeVar("Item")
_END = object()


class Stopwatch:
    """The seconds of each part of training, of one lesson or run.

    >>> stopwatch = Stopwatch()
    >>> with stopwatch.time("data"):
    ...     pass
    >>> stopwatch.seconds["data"] > 0
    True
    """

    def __init__(self) -> None:
        self.seconds: dict[str, float] = dict.fromkeys(PARTS, 0.0)
        self.images = 0  # in all minibatches
        self.borrowed = 0.0  # of the seconds above, those that another process has spent

    def count(self, n: int) -> None:
        """Count a minibatch of n images."""
        self.images += n

    def add_borrowed(self, spent: Mapping[str, float]) -> None:
        """Add the seconds that another process spent on latents that are used here."""
        for part, seconds in spent.items():
            self.seconds[part] += seconds
        self.borrowed += sum(spent.values())

    @contextmanager
    def time(self, part: str) -> Iterator[None]:
        """Add the time inside to a part."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[part] += time.perf_counter() - start

    def time_waiting(self, part: str, items: Iterator[Item]) -> Iterator[Item]:
        """The items; the time spent waiting for each is added to a part."""
        while True:
            with self.time(part):
                item = next(items, _END)
            if item is _END:
                return
            yield cast(Item, item)

    @contextmanager
    def time_backward(self, csf_learns: bool) -> Iterator[None]:
        """Time a backward pass and its update: what the head does not take is csf's, if it learns."""
        start, head = time.perf_counter(), self.seconds["head"]
        yield
        rest = time.perf_counter() - start - (self.seconds["head"] - head)
        self.seconds["csf" if csf_learns else "head"] += rest

    @contextmanager
    def time_forward(self, csf: nn.Module, head: nn.Module) -> Iterator[None]:
        """Inside, time the passes through csf and head; the hooks are removed at the end."""
        with ExitStack() as hooks:
            for module, before, after in ((csf, *self._hooks("csf")), (head, *self._hooks("head"))):
                hooks.callback(module.register_forward_pre_hook(before).remove)
                hooks.callback(module.register_forward_hook(after).remove)
            yield

    def _hooks(self, part: str) -> tuple[Callable[..., None], Callable[..., None]]:
        """What runs before and after a forward pass; the head's backward pass is timed as well."""
        started: list[float] = []

        def start(*_: object) -> None:
            started.append(time.perf_counter())

        def stop(*_: object) -> None:
            self.seconds[part] += time.perf_counter() - started.pop() if started else 0.0

        def forward_done(_: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
            stop()
            if part == "head" and inputs[0].requires_grad and output.requires_grad:
                output.register_hook(start)
                inputs[0].register_hook(stop)

        return start, forward_done
