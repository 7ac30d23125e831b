"""Latents computed once: z = llf(x) of whole sets of images.

A frozen llf gives an image the same latent every time, so it is computed once per distinct view. The context says
how many latents stay in memory, whether they are reused, and in which folder runs over the same images with the
same llf find each other's.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from triphase import state as files
from triphase.context import Context
from triphase.data import augment
from triphase.data.images import Images
from triphase.data.passes import in_passes
from triphase.data.prefetch import prefetch
from triphase.device import record_name
from triphase.errors import CannotWrite, CorruptState
from triphase.models import SplitClassifier
from triphase.models.engine import engine_of, frozen_form

CHUNK = 32  # images per pass, always full: a latent must not depend on the images beside it
PIXELS = 1 << 18  # per pass at most, but a few images: larger feature maps leave the processor's cache
COPIES = 3  # of latents in memory while they are read from the shared folder
Read = Callable[[Tensor], Tensor]  # rows -> pixels
View = Callable[[Tensor, Tensor, int], Tensor]  # pixels, their rows, number of a view -> pixels of that view


def mirror_view(x: Tensor, rows: Tensor, view: int) -> Tensor:
    """View 0 is the image, view 1 its mirror image."""
    return augment.view(x, torch.full((len(x),), view))


@torch.no_grad()
def encode(
    model: SplitClassifier,
    n: int,
    read: Read,
    views: int = 1,
    dtype: torch.dtype = torch.float32,
    view: View = mirror_view,
    context: Context | None = None,
) -> Tensor:
    """(n, views, ...): packed llf of n images in each of their views, in chunks that are always full."""
    context = Context() if context is None else context
    store: Tensor | None = None
    least = 4 if engine_of(context, model.llf) == "torch" else 8  # which ONNX Runtime's threads share evenly
    chunk = min(CHUNK, max(least, PIXELS // (model.image_size or 1) ** 2))
    blocks = context.processes.blocks(n, chunk)  # each process computes one, and gets the others
    mine = blocks[context.processes.rank] if blocks else range(max(n, 1))
    done, total = 0, min(len(mine), n)

    def prepare(start: int) -> tuple[Tensor, Tensor]:
        rows = torch.arange(start, min(start + chunk, n))
        return rows, read(rows)

    for rows, x in context.stopwatch.time_waiting("data", prefetch(mine[::chunk], prepare)):
        context.on_event({"event": "encode", "done": done, "total": total})
        for number in range(views):
            pixels = _padded(view(x, rows, number), chunk)
            with context.stopwatch.time("llf"):
                form = frozen_form(model.llf, pixels, context)
                z = pack(in_passes(partial(model.encode, llf=form), pixels, context))
            if store is None:
                store = context.budget.allocate((n, views, *z.shape[1:]), dtype)
            store[rows, number] = z[: len(rows)].to(store)
        done += len(rows)
    assert store is not None
    context.on_event({"event": "encode", "done": done, "total": total})
    context.processes.exchange_(store, blocks)
    return store


@torch.no_grad()
def features(model: SplitClassifier, z: Tensor, context: Context) -> Tensor:
    """(n, views, D): csf of packed latents (n, views, ...), in chunks that are always full.

    Several processes share the work.
    """
    flat = z.flatten(0, 1)
    store: Tensor | None = None
    blocks = context.processes.blocks(len(flat), CHUNK)
    mine = blocks[context.processes.rank] if blocks else range(len(flat))
    for start in mine[::CHUNK]:
        rows = slice(start, min(start + CHUNK, mine.stop))
        part = flat[rows].to(model.device).float()
        computed = csf_features(model, unpack(_padded(part, CHUNK)), context)[: len(part)]
        if store is None:
            store = torch.empty((*z.shape[:2], *computed.shape[1:]))
        store.flatten(0, 1)[rows] = computed.to(store)
    assert store is not None
    context.processes.exchange_(store.flatten(0, 1), blocks)
    return store


def csf_features(model: SplitClassifier, z: Tensor, context: Context) -> Tensor:
    """(n, D): csf of latents by the engine of the context; csf is in evaluation mode."""
    if engine_of(context, model.csf) == "torch":
        return in_passes(model.features, z, context)
    return in_passes(frozen_form(model.csf, z, context), z, context)


def _padded(x: Tensor, n: int) -> Tensor:
    """x (m, ...) with zeros after it, (n, ...)."""
    return torch.cat([x, x.new_zeros(n - len(x), *x.shape[1:])])


def latents(
    model: SplitClassifier, images: Images, dtype: torch.dtype = torch.float32, context: Context | None = None
) -> Tensor:
    """(n, ...): packed llf of images without augmentation."""
    return latent_views(model, images, 1, dtype, context)[:, 0]


def latent_views(
    model: SplitClassifier, images: Images, views: int, dtype: torch.dtype, context: Context | None = None
) -> Tensor:
    """(n, views, ...): packed llf of images, and with 2 views of their mirror images, reused if possible."""
    context = Context() if context is None else context

    def read(rows: Tensor) -> Tensor:
        x = images.read(rows)
        return augment.center_crop(x, model.image_size or int(x.shape[-1]))

    z = context.find_latents(model.llf, images.ids, views, dtype)
    if z is None:
        z = _shared_latents(model, images, read, views, dtype, context)
        context.keep_latents(model.llf, images.ids, z)
    return z


def _shared_latents(
    model: SplitClassifier, images: Images, read: Read, views: int, dtype: torch.dtype, context: Context
) -> Tensor:
    """Latents from the shared folder, if there is one and it has them; otherwise computed and written there."""
    folder, stopwatch = context.latents_folder, context.stopwatch
    if folder is None or len(images) == 0:
        return encode(model, len(images), read, views, dtype, context=context)
    path = folder / f"{_digest(model, images, read, views, dtype, engine_of(context, model.llf))}.safetensors"
    try:
        found = _in_all_processes(path, context)
        z = context.budget.allocate(tuple(found["z"].shape), dtype).copy_(found["z"])
        stopwatch.add_borrowed(found["seconds"])  # or the second run would seem to be faster
        return z
    except CorruptState:  # missing or damaged
        before = dict(stopwatch.seconds)
        z = encode(model, len(images), read, views, dtype, context=context)
        spent = {part: stopwatch.seconds[part] - before[part] for part in ("data", "llf")}
        if COPIES * z.nbytes <= context.budget.limit and context.processes.is_first:
            with suppress(CannotWrite):  # a full disk: other runs compute their own
                _publish(path, {"z": z, "seconds": spent})
        return z


def _in_all_processes(path: Path, context: Context) -> files.State:
    """A file of latents, or CorruptState if any process lacks it: then all of them compute."""
    try:
        found = files.load(path)
    except CorruptState:
        context.processes.sum_(torch.zeros(1))
        raise
    if int(context.processes.sum_(torch.ones(1))) < context.processes.size:
        raise CorruptState(f"{path} is missing in another process.")
    return found


def _publish(path: Path, latents: files.State) -> None:
    """Write a file atomically; several runs may write the same one at a time."""
    own = path.with_name(f"{path.stem}.{os.getpid()}-{threading.get_ident()}.safetensors")
    files.make_directory(path.parent)
    files.save(own, latents)
    os.replace(own, path)


def _digest(model: SplitClassifier, images: Images, read: Read, views: int, dtype: torch.dtype, engine: str) -> str:
    """A checksum of what latents depend on: llf, the images and their size, views, precision, engine, device.

    Ids stand for images: positions (CIFAR-100, digits), hashes of paths (CORe50, ImageNet) or of content (photos).
    The pixels of two images stand for the size.
    """
    digest = hashlib.sha256(f"{views} {dtype} {torch.__version__} {engine} {model.llf}".encode())
    if model.device.type != "cpu":  # where it is another kind of arithmetic
        digest.update(f"{record_name(model.device)} {model.precision}".encode())
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
        out.copy_(flat[index])  # from half precision


def pack(z: Tensor) -> Tensor:
    """Feature maps with the channels last: the memory layout in which convolutions are fastest."""
    return z.permute(0, 2, 3, 1).contiguous() if z.dim() == 4 else z


def unpack(z: Tensor) -> Tensor:
    """NCHW again, without a copy."""
    return z.permute(0, 3, 1, 2) if z.dim() == 4 else z
