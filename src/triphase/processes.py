"""Several processes that train one run together, started by torchrun.

Every process draws the same minibatches and handles its shard of each; sums over all processes make the rest equal.
torch.distributed is imported only where there is more than one process.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import torch
from torch import Tensor

from triphase.errors import InvalidValue, ProcessFailed, ProcessLost, TriphaseError

RENDEZVOUS = ("RANK", "MASTER_ADDR", "MASTER_PORT")  # what torchrun sets beside WORLD_SIZE
CONNECT_TIMEOUT = timedelta(seconds=60)  # to reach the first process
COLLECTIVE_TIMEOUT = timedelta(minutes=30)  # to wait for the slowest process, which may be reading its data


class Processes:
    """This process among those that train the run: number `rank` of `size`. Alone, nothing is communicated.

    >>> alone = Processes()
    >>> torch.arange(5)[alone.shard()].tolist(), alone.sum_(torch.ones(2)).tolist()
    ([0, 1, 2, 3, 4], [1.0, 1.0])
    >>> [torch.arange(5)[Processes(rank, 2).shard()].tolist() for rank in (0, 1)]
    [[0, 2, 4], [1, 3]]
    """

    def __init__(self, rank: int = 0, size: int = 1, on_machine: int = 1) -> None:
        self.rank, self.size = rank, size
        self.on_machine = on_machine  # how many of them share this machine and its memory
        self.local_rank = rank % on_machine  # among those

    def __deepcopy__(self, memo: object) -> Processes:
        return self  # a copy of a network belongs to the same processes

    @property
    def is_first(self) -> bool:
        """Whether this process is the one that writes and prints."""
        return self.rank == 0

    def shard(self, before: int = 0) -> slice:
        """The samples of a minibatch that this process handles, the only place that decides it.

        `before` samples of the same minibatch come before those that the slice is applied to.
        """
        return slice((self.rank - before) % self.size, None, self.size)

    def blocks(self, n: int, unit: int) -> list[range]:
        """n rows in whole units, a block of neighbours for each process; nothing to split gives no blocks."""
        n_units = -(-n // unit)
        if self.size == 1 or n_units < self.size:
            return []
        ends = [min(n, n_units * rank // self.size * unit) for rank in range(self.size + 1)]
        return [range(start, end) for start, end in zip(ends, ends[1:], strict=False)]

    def sum_(self, tensor: Tensor) -> Tensor:
        """Add a tensor up over all processes, in place; each of them gets the same bits."""
        if self.size > 1:
            import torch.distributed as dist

            with _other_processes():
                dist.all_reduce(tensor)
        return tensor

    def part(self, mean: Tensor, n: int | Tensor, n_all: int | Tensor) -> Tensor:
        """What the mean over n samples of this process contributes to the mean over the n_all samples of all."""
        if self.size == 1:
            return mean
        if not n:  # a zero that autograd can follow, as in the other processes
            return mean.nan_to_num() * 0
        return mean * (int(n) / int(n_all))

    def mean(self, value: Tensor, share: float) -> Tensor:
        """The mean over a whole minibatch, from the mean over this process's `share` of it, which may be empty."""
        if self.size == 1:
            return value
        return self.sum_(value.detach() * share if share else torch.zeros_like(value))

    def exchange_(self, rows: Tensor, blocks: list[range]) -> None:
        """Fill the blocks that other processes have computed, in place."""
        if blocks:
            import torch.distributed as dist

            with _other_processes():
                for rank, block in enumerate(blocks):
                    dist.broadcast(rows[block.start : block.stop], rank)

    def gather(self, rows: Tensor) -> Tensor:
        """The rows of all processes, those of the first one first."""
        if self.size == 1:
            return rows
        counts = torch.zeros(self.size, dtype=torch.long)
        counts[self.rank] = len(rows)
        ends = self.sum_(counts).cumsum(0).tolist()
        blocks = [range(start, end) for start, end in zip([0, *ends], ends, strict=False)]
        gathered = rows.new_empty(ends[-1], *rows.shape[1:])
        gathered[blocks[self.rank].start : blocks[self.rank].stop] = rows
        self.exchange_(gathered, blocks)
        return gathered

    def from_first(self, message: bytes) -> bytes:
        """The message of the first process, whatever the others give."""
        if self.size == 1:
            return message
        import torch.distributed as dist

        size = torch.tensor([len(message)])
        with _other_processes():
            dist.broadcast(size, 0)
            content = torch.empty(int(size), dtype=torch.uint8)
            if len(content):
                if self.is_first:
                    content = torch.frombuffer(bytearray(message), dtype=torch.uint8)
                dist.broadcast(content, 0)
        return content.numpy().tobytes()


@contextmanager
def join() -> Iterator[Processes]:
    """Join the processes that torchrun has started, within this block; without torchrun this process is alone.

    An error is reported once: by the first process that fails; the others only end.
    """
    size = _number("WORLD_SIZE", 1)
    if size == 1:
        yield Processes()
        return
    missing = [name for name in RENDEZVOUS if not os.environ.get(name)]
    if missing:
        raise InvalidValue(
            f"WORLD_SIZE is {size}, but not {', '.join(missing)}, by which the processes find each other: "
            f"start them by `torchrun --nproc-per-node {size} -m triphase ...`, or unset WORLD_SIZE."
        )
    store, rank = _rendezvous(size)
    if rank == 0:
        _announce_end()
    try:
        yield Processes(rank, size, on_machine=_number("LOCAL_WORLD_SIZE", 1))
    except TriphaseError as error:
        if _failed_before(store):
            raise SystemExit(1) from error
        if rank == 0:
            raise
        raise ProcessFailed(f"Process {rank} of {size}: {error}") from error
    import torch.distributed as dist

    dist.destroy_process_group()


def _announce_end() -> None:
    """Print what to do when torchrun sends SIGTERM, as it does once another process has failed."""

    def on_sigterm(number: int, frame: object) -> None:
        os.write(2, b"error: torchrun ends this run; start it again to continue from the checkpoint.\n")
        signal.signal(number, signal.SIG_DFL)
        signal.raise_signal(number)

    if threading.current_thread() is threading.main_thread():  # Python allows signal handlers there only
        signal.signal(signal.SIGTERM, on_sigterm)


def _failed_before(store: Any) -> bool:
    """Whether another process has failed already and reported its error."""
    try:
        return bool(store.add("failed", 1) > 1)
    except RuntimeError:  # the process that hosts the store has ended
        return False


def refuse_several(command: str) -> None:
    """Refuse torchrun for a command whose work is many runs, each with processes of its own."""
    if _number("WORLD_SIZE", 1) > 1:
        raise InvalidValue(
            f"{command} starts processes for its runs itself: start it without torchrun, with --workers for "
            "several runs at a time; torchrun shares out a single `bench run`."
        )


def _rendezvous(size: int) -> tuple[Any, int]:
    """Connect to the other processes; returns the store that all of them share, and the rank of this one."""
    import torch.distributed as dist
    from torch._C._distributed_c10d import PrefixStore
    from torch.distributed.rendezvous import rendezvous

    address = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
    try:
        store, rank, _ = next(rendezvous("env://", timeout=CONNECT_TIMEOUT))
        store = PrefixStore(f"triphase {os.environ.get('TORCHELASTIC_RESTART_COUNT', 0)}", store)
        backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
        dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=COLLECTIVE_TIMEOUT)
    except (RuntimeError, ValueError) as error:
        raise ProcessLost(
            f"The {size} processes of this run did not find each other at {address} (WORLD_SIZE, MASTER_ADDR and "
            "MASTER_PORT say so): start all of them by torchrun, or unset WORLD_SIZE."
        ) from error
    return store, rank


@contextmanager
def _other_processes() -> Iterator[None]:
    """Report that another process is gone."""
    try:
        yield
    except RuntimeError as error:
        raise ProcessLost(
            "Another process of this run has ended; start the same command again to continue from the checkpoint."
        ) from error


def _number(name: str, default: int) -> int:
    text = os.environ.get(name, "")
    if text and not (text.isdecimal() and int(text) > 0):
        raise InvalidValue(f"The environment variable {name} must be a number of processes from 1, got {text!r}.")
    return int(text or default)
