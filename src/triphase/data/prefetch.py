"""Prepare minibatches in a thread, before they are needed."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

DEPTH = 2  # items prepared in advance
Item = TypeVar("Item")
Ready = TypeVar("Ready")


def prefetch(items: Iterable[Item], prepare: Callable[[Item], Ready]) -> Iterator[Ready]:
    """prepare(item) of each item, in order, computed by a thread up to DEPTH items in advance.

    >>> list(prefetch(range(4), lambda i: i * i))
    [0, 1, 4, 9]
    """
    pending: deque[Future[Ready]] = deque()
    with ThreadPoolExecutor(1) as thread:
        for item in items:
            pending.append(thread.submit(prepare, item))
            if len(pending) > DEPTH:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
