"""The threads of a server, each on one core: what it computes is too small to be shared among cores."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import torch
from threadpoolctl import threadpool_limits


def _one_core_each(n: int, name: str) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(n, name, initializer=_use_one_core)


@dataclass(frozen=True)
class Pools:
    """Three kinds of work that do not wait for each other."""

    answers: ThreadPoolExecutor = field(default_factory=lambda: _one_core_each(os.cpu_count() or 2, "answers"))
    reading: ThreadPoolExecutor = field(default_factory=lambda: _one_core_each(1, "reading"))  # a published version
    reviews: ThreadPoolExecutor = field(default_factory=lambda: _one_core_each(1, "reviews"))  # may take seconds

    def shutdown(self) -> None:
        """Shut all pools down; work that has not begun is dropped."""
        for pool in (self.answers, self.reading, self.reviews):
            pool.shutdown(cancel_futures=True)


def _use_one_core() -> None:
    """Limit torch and numpy to this thread: their helper threads would occupy other cores."""
    torch.set_num_threads(1)
    threadpool_limits(1, user_api="blas")
