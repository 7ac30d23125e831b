"""Minibatches of z = llf(augment(x)): n_mbe datapoints of the experience and n_mbr of the memory.

How z comes about is the feeder's business alone. While llf is frozen and the augmentation has finitely many
views, each image passes llf once per view and is looked up from then on; with random crops z is computed
without gradient; while llf learns, with gradient. Learners cannot tell the difference, apart from the time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from triphase.data import augment
from triphase.data.images import Images
from triphase.data.memory import Memory
from triphase.data.recipe import Recipe
from triphase.data.streams import Experience
from triphase.models import SplitClassifier
from triphase.randomness import generator

CHUNK = 32  # images per llf pass when filling caches; always full, so that a value never depends on its company
Depth = Literal["llf", "csf"]


@dataclass(frozen=True)
class Minibatch:
    """n_current datapoints of the experience, then those of the memory."""

    z: Tensor  # (n_mb, ...) latents, or (n_mb, D) features if asked for
    y: Tensor  # (n_mb,)
    n_current: int
    rows: Tensor  # positions in the experience, (n_current,)
    slots: Tensor  # positions in the memory, (n_mb - n_current,)


class Feeder:
    """Serves one experience, together with what the memory held when it began."""

    def __init__(
        self,
        model: SplitClassifier,
        experience: Experience,
        memory: Memory | None,
        recipe: Recipe,
        *,
        seed: int,
        cached: bool = True,
    ) -> None:
        self.model, self.experience, self.memory, self.recipe, self.seed = (
            model,
            experience,
            memory,
            recipe,
            seed,
        )
        views = augment.n_views(recipe.augment)
        self._views = views if cached and model.is_frozen("llf") else None
        self._z: Tensor | None = None  # (n_i, views, ...)
        self._features: tuple[Tensor, Tensor | None] | None = None
        self._slots = memory.slots() if memory is not None else torch.empty(0, dtype=torch.long)
        self._permutation: tuple[tuple[str, int], Tensor] | None = None

    @property
    def n_mixed(self) -> int:
        """Iterations of an epoch over the experience: ceil(n_i / n_mbe)."""
        return -(-len(self.experience.images) // self.recipe.n_mbe)

    @property
    def n_balanced(self) -> int:
        """Iterations of an epoch over the memory: ceil(n_replay / n_mbe)."""
        return -(-len(self.memory.slots()) // self.recipe.n_mbe) if self.memory is not None else 0

    def mixed(self, steps: Iterable[tuple[int, int]], depth: Depth = "llf") -> Iterator[Minibatch]:
        """Phases I and II: each image of the experience once per epoch, beside an endless stream of replay.

        `steps` are (epoch in the experience, step in the epoch). With depth="csf" the minibatches carry the
        features of a frozen csf in place of z.
        """
        n_mbe, n_mbr = self.recipe.n_mbe, self.recipe.n_mbr
        for epoch, step in steps:
            rows = self._shuffled("shuffle", epoch, len(self.experience.images))[step * n_mbe : (step + 1) * n_mbe]
            slots = self._replayed((epoch * self.n_mixed + step) * n_mbr, n_mbr)
            yield self._minibatch(rows, slots, epoch, step, depth)

    def balanced(self, steps: Iterable[tuple[int, int]], depth: Depth = "llf") -> Iterator[Minibatch]:
        """Phase III: n_mbe datapoints of the updated memory, each once per epoch."""
        assert self.memory is not None
        n_mbe, nothing = self.recipe.n_mbe, torch.empty(0, dtype=torch.long)
        slots = self.memory.slots()
        for epoch, step in steps:
            chosen = self._shuffled("consolidate", epoch, len(slots))[step * n_mbe : (step + 1) * n_mbe]
            yield self._minibatch(nothing, slots[chosen], epoch, step, depth)

    def remember(self) -> None:
        """Offer the experience to the memory (class-balanced reservoir, end of Phase II)."""
        assert self.memory is not None
        images, latent = self.experience.images, self.memory.store == "latent"

        def read(rows: Tensor) -> dict[str, Tensor]:
            if not latent:
                return {"x": images.read(rows)}
            return {"z": self._plain_latents(rows)}

        def read_cache(rows: Tensor) -> dict[str, Tensor]:
            return {"z": self._current()[rows]}

        if "z" in self.memory.cache and self.memory.cache["z"].shape[1] != self._views:
            self.memory.cache.clear()
        self.memory.add(images.labels, images.ids, read, read_cache if self._views and not latent else None)
        self._features = self._permutation = None  # both were about the memory as it was

    def _minibatch(self, rows: Tensor, slots: Tensor, epoch: int, step: int, depth: Depth) -> Minibatch:
        draw = generator(self.seed, "augment", self.experience.index, epoch, step)
        parts = [self.experience.images.labels[rows]]
        if len(slots) and self.memory is not None:
            parts.append(self.memory["y"][slots])
        y = torch.cat(parts).to(self.model.device)
        if self._views:
            z = self._looked_up(rows, slots, augment.draw_views(self.recipe.augment, len(y), draw), depth)
        else:
            z = self._computed(rows, slots, draw, depth)
        return Minibatch(z, y, len(rows), rows, slots)

    def _looked_up(self, rows: Tensor, slots: Tensor, views: Tensor, depth: Depth) -> Tensor:
        current, replay = self._all_features() if depth == "csf" else (None, None)
        parts = []
        if len(rows):
            store = self._current() if current is None else current
            parts.append(store[rows, views[: len(rows)]])
        if len(slots):
            store = self._replay() if replay is None else replay
            parts.append(store[slots, views[len(rows) :] % store.shape[1]])
        return unpack(torch.cat(parts).to(self.model.device).float())

    def _computed(self, rows: Tensor, slots: Tensor, draw: torch.Generator, depth: Depth) -> Tensor:
        stored = self.memory is not None and self.memory.store == "latent" and len(slots) > 0
        pixels = [self._pixels(self.experience.images, rows)] if len(rows) else []
        if len(slots) and self.memory is not None and not stored:
            pixels.append(self._cropped(self.memory["x"][slots]))
        parts = []
        if pixels:
            x = augment.apply(self.recipe.augment, torch.cat(pixels), draw, self._size(pixels[0]))
            with torch.set_grad_enabled(torch.is_grad_enabled() and not self.model.is_frozen("llf")):
                parts.append(self.model.encode(x))
        if stored and self.memory is not None:
            parts.append(unpack(self.memory["z"][slots].to(self.model.device).float()))
        z = torch.cat(parts)
        if depth == "csf":
            with torch.no_grad():
                return self.model.features(z)
        return z

    def _current(self) -> Tensor:
        """(n_i, views, ...): the latents of the experience, one per distinct view."""
        if self._z is None:
            assert self._views
            images = self.experience.images
            self._z = encode(self.model, len(images), lambda rows: self._pixels(images, rows), self._views)
        return self._z

    def _replay(self) -> Tensor:
        """(|R|, views, ...): the latents of the memory."""
        assert self.memory is not None and self._views
        if self.memory.store == "latent":
            return self.memory["z"].unsqueeze(1)
        if "z" not in self.memory.cache or self.memory.cache["z"].shape[1] != self._views:
            x = self.memory["x"]
            self.memory.cache["z"] = encode(self.model, len(x), lambda rows: self._cropped(x[rows]), self._views)
        return self.memory.cache["z"]

    def _all_features(self) -> tuple[Tensor, Tensor | None]:
        """csf features of the experience and of the memory, computed once while csf is frozen."""
        if self._features is None:
            replay = features(self.model, self._replay()) if self.memory is not None and len(self.memory) else None
            self._features = features(self.model, self._current()), replay
        return self._features

    def _plain_latents(self, rows: Tensor) -> Tensor:
        if self._views:
            return self._current()[rows, 0]
        images = self.experience.images
        return encode(self.model, len(rows), lambda some: self._pixels(images, rows[some]), 1)[:, 0]

    def _pixels(self, images: Images, rows: Tensor) -> Tensor:
        return self._cropped(images.read(rows))

    def _cropped(self, x: Tensor) -> Tensor:
        """Pixels for training: larger than the network's input only where random crops will cut them down."""
        return x if "rrc" in augment.parse(self.recipe.augment) else augment.center_crop(x, self._size(x))

    def _size(self, x: Tensor) -> int:
        return self.model.image_size or int(x.shape[-1])

    def _shuffled(self, purpose: str, epoch: int, n: int) -> Tensor:
        if self._permutation is None or self._permutation[0] != (purpose, epoch):
            draw = generator(self.seed, purpose, self.experience.index, epoch)
            self._permutation = (purpose, epoch), torch.randperm(n, generator=draw)
        return self._permutation[1]

    def _replayed(self, offset: int, n: int) -> Tensor:
        """Slots offset .. offset + n of an endless stream of reshuffled permutations of the memory."""
        size = len(self._slots)
        if size == 0 or n == 0:
            return torch.empty(0, dtype=torch.long)
        first, last = offset // size, (offset + n - 1) // size
        stream = torch.cat([self._replay_permutation(lap, size) for lap in range(first, last + 1)])
        return self._slots[stream[offset - first * size :][:n]]

    def _replay_permutation(self, lap: int, size: int) -> Tensor:
        return torch.randperm(size, generator=generator(self.seed, "replay", self.experience.index, lap))


@torch.no_grad()
def encode(model: SplitClassifier, n: int, read: Callable[[Tensor], Tensor], views: int = 1) -> Tensor:
    """(n, views, ...): packed llf of n images and their mirrored views, in chunks that are always full."""
    chunks = []
    for start in range(0, max(n, 1), CHUNK):
        rows = torch.arange(start, min(start + CHUNK, n))
        x = read(rows)
        x = torch.cat([x, x.new_zeros(CHUNK - len(x), *x.shape[1:])])
        latents = [model.encode(augment.view(x, torch.full((CHUNK,), view)))[: len(rows)] for view in range(views)]
        chunks.append(torch.stack([pack(z) for z in latents], dim=1).cpu())
    return torch.cat(chunks)


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


def latents(model: SplitClassifier, images: Images) -> Tensor:
    """(n, ...): packed llf of images without augmentation, as evaluation wants them."""

    def read(rows: Tensor) -> Tensor:
        x = images.read(rows)
        return augment.center_crop(x, model.image_size or int(x.shape[-1]))

    return encode(model, len(images), read)[:, 0]


def pack(z: Tensor) -> Tensor:
    """Feature maps with the channels last, in which they are stored: convolutions then get them as they like."""
    return z.permute(0, 2, 3, 1).contiguous() if z.dim() == 4 else z


def unpack(z: Tensor) -> Tensor:
    """NCHW again, without moving anything."""
    return z.permute(0, 3, 1, 2) if z.dim() == 4 else z
