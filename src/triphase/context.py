"""What one lesson or run uses beside its learner: a budget, caches of latents, a device, a stopwatch.

The caller makes it and passes it down, so two lessons or runs in one process do not share state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor, nn

from triphase.budget import Budget
from triphase.device import choose
from triphase.events import OnEvent, ignore_event
from triphase.processes import Processes
from triphase.stopwatch import Stopwatch

MAX_PREPARED = 6  # blocks whose fastest form is kept


class Context:
    """Belongs to one lesson or run, and to one thread at a time.

    `budget` limits the memory that latents take, `stopwatch` times the parts of training, and `latents_folder` is
    where runs over the same images with the same llf find each other's latents (None: nowhere). `engine` runs
    frozen blocks: "torch", "onnx", or "auto" for ONNX Runtime where it pays. `device` is where networks compute
    ("auto", "cpu", "cuda", "cuda:1", "mps"; None: where they are); all else stays on the host. `processes` train
    the same run together; by default this one is alone.
    """

    def __init__(
        self,
        budget: Budget | None = None,
        latents_folder: Path | None = None,
        engine: Literal["torch", "onnx", "auto"] = "torch",
        device: str | torch.device | None = None,
        processes: Processes | None = None,
    ) -> None:
        self.budget = Budget() if budget is None else budget
        self.engine = engine
        self.device = None if device is None else choose(device)
        self.processes = Processes() if processes is None else processes
        self.pass_size: int | None = None  # images in a pass through frozen parts; None: as many as are asked for
        self.graphs: dict[bytes, Tensor] = {}  # ONNX graphs of frozen blocks, by the checksums of the blocks
        self.sessions: dict[bytes, nn.Module] = {}  # the same ready to run
        self.stopwatch = Stopwatch()
        self.on_event: OnEvent = ignore_event  # told of passes over many images
        self.latents_folder = latents_folder
        self._latents: list[_Latents] | None = None  # None: not reused
        self._prepared: list[tuple[_Snapshot, nn.Module]] = []

    def __deepcopy__(self, memo: object) -> Context:
        return self  # a copy of a learner works in the same context

    @contextmanager
    def reporting(self, on_event: OnEvent) -> Iterator[None]:
        """Within this block, passes over many images are reported to `on_event`."""
        outer, self.on_event = self.on_event, on_event
        try:
            yield
        finally:
            self.on_event = outer

    @contextmanager
    def reuse_latents(self) -> Iterator[None]:
        """Within this block, latents of the same images are computed once; a nested block shares them."""
        outer = self._latents
        self._latents = [] if outer is None else outer
        try:
            yield
        finally:
            self._latents = outer

    def find_latents(self, llf: nn.Module, ids: Tensor, views: int, dtype: torch.dtype) -> Tensor | None:
        """(n, views, ...): latents of the images with these ids, if all of them were kept."""
        for kept in self._latents or ():
            if kept.z.dtype == dtype and kept.z.shape[1] >= views and kept.llf.matches(llf):
                rows = [kept.row_of.get(id_, -1) for id_ in ids.tolist()]
                if min(rows, default=-1) >= 0:
                    return kept.z[torch.tensor(rows), :views]
        return None

    def keep_latents(self, llf: nn.Module, ids: Tensor, z: Tensor) -> None:
        """Keep latents (n, views, ...) for `find_latents`, inside `reuse_latents`."""
        if self._latents is not None:
            row_of = {id_: row for row, id_ in enumerate(ids.tolist())}
            self._latents.append(_Latents(_Snapshot(llf), row_of, z))

    def prepared(self, block: nn.Module, prepare: Callable[[], nn.Module]) -> nn.Module:
        """What `prepare` makes of a frozen block, made once for as long as the block does not change."""
        found = [entry for entry in self._prepared if entry[0].matches(block)]
        entry = found[0] if found else (_Snapshot(block), prepare())
        others = [other for other in self._prepared if other is not entry]
        self._prepared = [*others[1 - MAX_PREPARED :], entry]  # the one used last is the last to go
        return entry[1]


@dataclass(frozen=True)
class _Latents:
    """Latents (n, views, ...) by the id of the image."""

    llf: _Snapshot
    row_of: dict[int, int]
    z: Tensor


class _Snapshot:
    """A network as it was: the autograd version of a tensor is counted up by every in-place operation."""

    def __init__(self, network: nn.Module) -> None:
        self._network, self._versions = network, _versions(network)

    def matches(self, network: nn.Module) -> bool:
        """Whether it is this network, and no tensor of it was replaced or written to."""
        if network is not self._network:
            return False
        before, now = self._versions, _versions(network)
        return len(now) == len(before) and all(
            a is b and state == was for (a, *state), (b, *was) in zip(now, before, strict=True)
        )


def _versions(network: nn.Module) -> list[tuple[Tensor, int, int]]:
    return [(t, t.data_ptr(), t._version) for t in (*network.parameters(), *network.buffers())]
