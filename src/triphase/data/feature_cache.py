"""Latents computed once: z = llf(x) of whole sets of images, and where it is kept.

A frozen llf gives every image the same latent for ever, so it is computed once per distinct view. What fits into
the process's budget stays in memory; what does not goes to a memory-mapped file that has no name and vanishes with
the process, however that ends. `share` names a folder in which runs over the same images with the same llf find
each other's latents.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from math import prod
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from triphase import state as files
from triphase import stopwatch
from triphase.data import augment
from triphase.data.images import Images
from triphase.errors import CannotWrite, CorruptState, InvalidValue, TriphaseError
from triphase.models import SplitClassifier
from triphase.models.folding import folded

CHUNK = 32  # images per pass when filling a store; always full, so that a value never depends on its company
PIXELS = 1 << 18  # of a pass at most, from 4 images on: larger feature maps are paged in anew each time
COPIES = 3  # of latents in memory while they are read from the shared folder
AHEAD = 2  # minibatches prepared before they are wanted
Read = Callable[[Tensor], Tensor]
View = Callable[[Tensor, Tensor, int], Tensor]  # pixels, their rows, number of the view -> pixels
Item = TypeVar("Item")
Ready = TypeVar("Ready")


class Budget:
    """How many bytes of latents this process keeps in memory; by default a quarter of the machine's."""

    def __init__(self, limit: int) -> None:
        self.limit, self.used = limit, 0

    def allocate(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """An uninitialised tensor, in memory while the budget lasts, then in an unnamed file.

        >>> Budget(limit=10).allocate((4, 4), torch.float16).shape
        torch.Size([4, 4])
        """
        size = prod(shape) * dtype.itemsize
        if size == 0 or self.used + size <= self.limit:
            tensor = torch.empty(shape, dtype=dtype)
            self.used += size
            weakref.finalize(tensor, self._release, size)
            return tensor
        try:
            with tempfile.TemporaryFile(prefix="triphase-latents-") as file:  # TMPDIR says where
                _reserve(file.fileno(), size)
                bytes_ = np.memmap(file, dtype=np.uint8, mode="r+", shape=(size,))
        except OSError as error:
            raise TriphaseError(
                f"Latents of {size >> 20} MB fit neither into the budget of {self.limit >> 20} MB nor into "
                f"{tempfile.gettempdir()} ({error.strerror}); set TMPDIR to a larger disk or raise the budget."
            ) from error
        return torch.from_numpy(bytes_).view(dtype).view(shape)

    def _release(self, size: int) -> None:
        self.used -= size


def _reserve(descriptor: int, size: int) -> None:
    """Give the file its blocks now, where the system can: a mapped write to a full disk would kill the process."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(descriptor, 0, size)
    else:
        os.ftruncate(descriptor, size)


def _default_limit() -> int:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 4
    except (AttributeError, ValueError, OSError):  # not every system tells
        return 2 << 30


BUDGET = Budget(_default_limit())


def set_budget(megabytes: int) -> None:
    """Change how much memory latents may take in this process."""
    if megabytes < 0:
        raise InvalidValue(f"The budget for latents must not be negative, got {megabytes} MB.")
    BUDGET.limit = megabytes << 20


def mirrored(x: Tensor, rows: Tensor, view: int) -> Tensor:
    """View 0 is the image, view 1 its mirror image."""
    return augment.view(x, torch.full((len(x),), view))


@torch.no_grad()
def encode(
    model: SplitClassifier,
    n: int,
    read: Read,
    views: int = 1,
    dtype: torch.dtype = torch.float32,
    view: View = mirrored,
) -> Tensor:
    """(n, views, ...): packed llf of n images in each of their views, in chunks that are always full."""
    store: Tensor | None = None
    llf = folded(model.llf)
    chunk = min(CHUNK, max(4, PIXELS // (model.image_size or 1) ** 2))

    def prepare(start: int) -> tuple[Tensor, Tensor]:
        rows = torch.arange(start, min(start + chunk, n))
        return rows, read(rows)

    for rows, x in stopwatch.waiting("data", ahead(range(0, max(n, 1), chunk), prepare)):
        for number in range(views):
            seen = view(x, rows, number)
            seen = torch.cat([seen, seen.new_zeros(chunk - len(seen), *seen.shape[1:])])
            with stopwatch.on("llf"):
                z = pack(model.encode(seen, llf))
            if store is None:
                store = BUDGET.allocate((n, views, *z.shape[1:]), dtype)
            store[rows[0] if len(rows) else 0 :][: len(rows), number] = z[: len(rows)].to(store)
    assert store is not None
    return store


@torch.no_grad()
def features(model: SplitClassifier, z: Tensor) -> Tensor:
    """(n, views, D): csf of packed latents (n, views, ...), in chunks that are always full."""
    flat = z.flatten(0, 1)
    chunks = []
    for start in range(0, len(flat), CHUNK):
        part = flat[start : start + CHUNK].to(model.device).float()
        padded = torch.cat([part, part.new_zeros(CHUNK - len(part), *part.shape[1:])])
        chunks.append(model.features(unpack(padded))[: len(part)].cpu())
    return torch.cat(chunks).view(*z.shape[:2], -1)


def latents(model: SplitClassifier, images: Images, dtype: torch.dtype = torch.float32) -> Tensor:
    """(n, ...): packed llf of images without augmentation, as evaluation wants them."""
    return views_of(model, images, 1, dtype)[:, 0]


def views_of(model: SplitClassifier, images: Images, views: int, dtype: torch.dtype) -> Tensor:
    """(n, views, ...): packed llf of images and of their mirror images; from the shared folder if it has them."""

    def read(rows: Tensor) -> Tensor:
        x = images.read(rows)
        return augment.center_crop(x, model.image_size or int(x.shape[-1]))

    if _RECALLED is None:
        return _found_or_computed(model, images, read, views, dtype)
    for llf, ids, z in _RECALLED:  # also for a part of the images
        row_of = {id_: row for row, id_ in enumerate(ids.tolist())} if llf is model.llf and z.dtype == dtype else {}
        rows = [row_of.get(id_, -1) for id_ in images.ids.tolist()]
        if z.shape[1] >= views and min(rows, default=-1) >= 0:
            return z[torch.tensor(rows), :views]
    z = _found_or_computed(model, images, read, views, dtype)
    _RECALLED.append((model.llf, images.ids, z))
    return z


_RECALLED: list[tuple[nn.Module, Tensor, Tensor]] | None = None


@contextmanager
def recalling() -> Iterator[None]:
    """Inside, latents of the same images (by id) are computed once; llf must not change meanwhile.

    One inside another goes on with what that recalls.
    """
    global _RECALLED
    before, _RECALLED = _RECALLED, [] if _RECALLED is None else _RECALLED
    try:
        yield
    finally:
        _RECALLED = before


def _found_or_computed(
    model: SplitClassifier, images: Images, read: Read, views: int, dtype: torch.dtype
) -> Tensor:
    """From the shared folder if there is one and it has them."""
    if _FOLDER is None or len(images) == 0:
        return encode(model, len(images), read, views, dtype)
    path = _FOLDER / f"{_digest(model, images, read, views, dtype)}.safetensors"
    try:
        found = files.load(path)
        z = BUDGET.allocate(tuple(found["z"].shape), dtype).copy_(found["z"])
        stopwatch.borrow(found["seconds"])  # or whoever comes second would seem to be faster
        return z
    except CorruptState:  # missing, or left half-written: it can be computed
        before = dict(stopwatch.seconds)
        z = encode(model, len(images), read, views, dtype)
        spent = {part: stopwatch.seconds[part] - before[part] for part in ("data", "llf")}
        if COPIES * z.nbytes <= BUDGET.limit:
            with suppress(CannotWrite):  # a full disk: the others compute theirs, too
                own = path.with_name(f"{path.stem}.{os.getpid()}.safetensors")  # two may write the same at a time
                files.make_directory(_FOLDER)
                files.save(own, {"z": z, "seconds": spent})
                os.replace(own, path)
        return z


_FOLDER: Path | None = None


def share(folder: Path | None) -> None:
    """Keep latents in a folder from now on, for other runs over the same images with the same llf; None: do not."""
    global _FOLDER
    _FOLDER = folder


def _digest(model: SplitClassifier, images: Images, read: Read, views: int, dtype: torch.dtype) -> str:
    """What latents depend on: llf, which images at which size, views, precision.

    Ids stand for images: positions (CIFAR-100, digits), hashes of paths (CORe50, ImageNet) or of content (photos).
    The pixels of the first two tell the size.
    """
    digest = hashlib.sha256(f"{views} {dtype} {torch.__version__}".encode())
    probe = read(torch.arange(min(2, len(images))))
    for tensor in (*model.llf.state_dict().values(), images.ids, probe):
        digest.update(f"{tuple(tensor.shape)}".encode() + tensor.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()[:32]


def gather(store: Tensor, rows: Tensor, views: Tensor, out: Tensor) -> None:
    """out[i] = store[rows[i], views[i]], without a copy in between."""
    flat, index = store.flatten(0, 1), rows * store.shape[1] + views
    if flat.dtype == out.dtype:
        torch.index_select(flat, 0, index, out=out)
    else:
        out.copy_(flat[index])  # half precision: what is copied in between is half as large


def pack(z: Tensor) -> Tensor:
    """Feature maps with the channels last, in which they are stored: convolutions then get them as they like."""
    return z.permute(0, 2, 3, 1).contiguous() if z.dim() == 4 else z


def unpack(z: Tensor) -> Tensor:
    """NCHW again, without moving anything."""
    return z.permute(0, 3, 1, 2) if z.dim() == 4 else z


def ahead(items: Iterable[Item], prepare: Callable[[Item], Ready]) -> Iterator[Ready]:
    """What `prepare` makes of each item, in order, made by a thread before it is wanted."""
    waiting: deque[Future[Ready]] = deque()
    with ThreadPoolExecutor(1) as thread:
        for item in items:
            waiting.append(thread.submit(prepare, item))
            if len(waiting) > AHEAD:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
