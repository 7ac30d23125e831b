"""Minibatches of z = llf(augment(x)): n_mbe datapoints of the experience and n_mbr of the memory.

How z comes about is the batches's business alone. While llf is frozen and the augmentation has finitely many
views, each image passes llf once per view and is looked up from then on; with random crops z is computed without
gradient (or `Recipe.views` crops are drawn once and kept); while llf learns, with gradient. Pixels are read and
augmented by a thread before they are wanted. Learners cannot tell the difference, apart from the time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Literal

import torch
from torch import Tensor

from triphase.context import Context
from triphase.data import augment
from triphase.data.feature_cache import encode, features, gather, mirrored, unpack, views_of
from triphase.data.images import Images
from triphase.data.memory import Memory, Read
from triphase.data.prefetch import prefetch
from triphase.data.recipe import Recipe
from triphase.data.streams import Experience
from triphase.models import SplitClassifier
from triphase.randomness import generator

Depth = Literal["llf", "csf"]
FEWEST = 8  # images of a minibatch: statistics of fewer, as BatchNorm takes them, can destroy csf


@dataclass(frozen=True)
class Minibatch:
    """n_current datapoints of the experience, then those of the memory."""

    z: Tensor  # (n_mb, ...) latents, or (n_mb, D) features if asked for
    y: Tensor  # (n_mb,)
    n_current: int
    rows: Tensor  # positions in the experience, (n_current,)
    slots: Tensor  # positions in the memory, (n_mb - n_current,)


@dataclass(frozen=True)
class _Draw:
    """What a minibatch will be made of."""

    rows: Tensor
    slots: Tensor
    y: Tensor
    views: Tensor | None  # numbers of kept views, or
    x: Tensor | None  # augmented pixels


class Batches:
    """Serves one experience, together with what the memory held when it began."""

    def __init__(
        self,
        model: SplitClassifier,
        experience: Experience,
        memory: Memory | None,
        recipe: Recipe,
        *,
        seed: int,
        held_out: Tensor | None = None,  # (n_i,) bool: not trained on; None: as the experience says
        context: Context | None = None,
    ) -> None:
        self.context = Context() if context is None else context
        self.model, self.experience, self.memory = model, experience, memory
        self.recipe, self.seed = recipe, seed
        self._encode = partial(encode, model, context=self.context)
        apart = experience.held_out if held_out is None else held_out
        self._rows = torch.arange(len(experience.images)) if apart is None else (~apart).nonzero().view(-1)
        self._dtype = torch.float16 if recipe.latents == "float16" else torch.float32
        finite = augment.n_views(recipe.augment)
        self._kept_crops = finite is None and recipe.views > 0
        views = recipe.views if self._kept_crops else finite
        self._views = views if recipe.latents != "off" and model.is_frozen("llf") else None
        self._z: Tensor | None = None  # (n_i, views, ...)
        self._features: tuple[Tensor, Tensor | None] | None = None
        self._slots = memory.slots() if memory is not None else torch.empty(0, dtype=torch.long)
        self._permutation: tuple[tuple[str, int], Tensor] | None = None
        self._laps: dict[int, Tensor] = {}

    @property
    def n_mixed(self) -> int:
        """Iterations of an epoch over the experience: ceil(n_i / n_mbe)."""
        return -(-len(self._rows) // self.recipe.n_mbe)

    @property
    def n_balanced(self) -> int:
        """Iterations of an epoch over the memory: ceil(n_replay / n_mbe)."""
        return -(-self._n_consolidated // self.recipe.n_mb_balanced) if self.memory is not None else 0

    @property
    def _few_replayed(self) -> bool:
        """Whether an epoch draws so little of the memory that computing features of all of it would be a waste."""
        return 2 * self.n_mixed * self.recipe.n_mbr < len(self._slots)

    @property
    def _n_consolidated(self) -> int:
        n = len(self.memory.slots()) if self.memory is not None else 0
        return n if self.recipe.balanced is None else min(n, self.recipe.balanced)

    def mixed(self, steps: Iterable[tuple[int, int]], depth: Depth = "llf") -> Iterator[Minibatch]:
        """Phases I and II: each image of the experience once per epoch, beside an endless stream of replay.

        `steps` are (epoch in the experience, step in the epoch). With depth="csf" the minibatches carry the
        features of a frozen csf in place of z.
        """
        n_mbe, n_mbr, n = self.recipe.n_mbe, self.recipe.n_mbr, len(self._rows)
        beside = n_mbr if len(self._slots) else 0

        def prepare(at: tuple[int, int]) -> _Draw:
            epoch, step = at
            rows = self._rows[portion(self._shuffled("shuffle", epoch, n), step, n_mbe, beside)]
            slots = self._replayed((epoch * self.n_mixed + step) * n_mbr, n_mbr)
            return self._draw(rows, slots, epoch, step)

        return self._serve(steps, prepare, depth)

    def balanced(self, steps: Iterable[tuple[int, int]], depth: Depth = "llf") -> Iterator[Minibatch]:
        """Phase III: n_mbe datapoints of the updated memory, each once per epoch."""
        assert self.memory is not None
        n_mbe, nothing = self.recipe.n_mb_balanced, torch.empty(0, dtype=torch.long)
        slots, n = self.memory.slots(), self._n_consolidated

        def prepare(at: tuple[int, int]) -> _Draw:
            epoch, step = at
            chosen = portion(self._shuffled("consolidate", epoch, len(slots))[:n], step, n_mbe)
            return self._draw(nothing, slots[chosen], epoch, step)

        return self._serve(steps, prepare, depth)

    def plain(self, rows: Tensor) -> Tensor:
        """z of images of the experience, without augmentation."""
        return unpack(self._plain_latents(rows).to(self.model.device).float())

    def held(self, slots: Tensor) -> Tensor:
        """z of samples of the memory, without augmentation."""
        memory = self.memory
        assert memory is not None
        if memory.store == "latent":
            z = memory["z"][slots]
        elif self._views and not self._kept_crops:
            z = self._replay()[slots, 0]
        else:
            x = memory["x"][slots]
            z = self._encode(len(x), lambda rows: augment.center_crop(x[rows], self._size(x)))[:, 0]
        return unpack(z.to(self.model.device).float())

    def update_memory(self, more: Read = lambda rows: {}) -> None:
        """Offer the experience to the memory (class-balanced reservoir, end of Phase II).

        `more` gives further columns for the rows that get in.
        """
        assert self.memory is not None
        images, latent = self.experience.images, self.memory.store == "latent"

        def read(rows: Tensor) -> dict[str, Tensor]:
            columns = {name: column[rows] for name, column in self.experience.columns.items()}
            if self.experience.held_out is not None:
                columns["split"] = self.experience.held_out[rows].to(torch.int8)
            if latent:
                return {"z": self._plain_latents(rows)} | columns | more(rows)
            crops = {"views": self._current()[rows]} if self._views and self._kept_crops else {}
            return {"x": images.read(rows)} | crops | columns | more(rows)

        def read_cache(rows: Tensor) -> dict[str, Tensor]:
            return {"z": self._current()[rows]}

        if "z" in self.memory.cache and self.memory.cache["z"].shape[1] != self._views:
            self.memory.cache.clear()
        if not (self._views and self._kept_crops):
            self.memory.columns.pop("views", None)  # crops that an earlier recipe kept
        elif not latent and len(self.memory):
            self._replay()  # what is held gets its crops before what arrives brings its own
        reusable = self._views and not latent and not self._kept_crops
        cached, held_out = read_cache if reusable else None, self.experience.held_out
        self.memory.add(images.labels, images.ids, read, cached, held_out, self.context.budget)
        self._features = self._permutation = None  # both were about the memory as it was

    def _serve(
        self, steps: Iterable[tuple[int, int]], prepare: Callable[[tuple[int, int]], _Draw], depth: Depth
    ) -> Iterator[Minibatch]:
        """Minibatches of draws; where pixels are needed, a thread reads them ahead."""
        draws = map(prepare, steps) if self._views else prefetch(steps, prepare)
        for draw in self.context.stopwatch.time_waiting("data", draws):
            z = self._looked_up(draw, depth) if self._views else self._computed(draw, depth)
            self.context.stopwatch.count(len(draw.y))
            yield Minibatch(z, draw.y.to(self.model.device), len(draw.rows), draw.rows, draw.slots)

    def _draw(self, rows: Tensor, slots: Tensor, epoch: int, step: int) -> _Draw:
        """What a minibatch is made of: a pure function of its position, whoever asks and when."""
        random = generator(self.seed, "augment", self.experience.index, epoch, step)
        y = self.experience.images.labels[rows]
        if len(slots) and self.memory is not None:
            y = torch.cat([y, self.memory["y"][slots]])
        if self._kept_crops and self._views:
            return _Draw(rows, slots, y, torch.randint(self._views, (len(y),), generator=random), None)
        if self._views:
            return _Draw(rows, slots, y, augment.draw_views(self.recipe.augment, len(y), random), None)
        pixels = [self._pixels(self.experience.images, rows)] if len(rows) else []
        if len(slots) and self.memory is not None and self.memory.store == "raw":
            pixels.append(self._cropped(self.memory["x"][slots]))
        if not pixels:
            return _Draw(rows, slots, y, None, None)
        size = self._size(pixels[0])
        return _Draw(rows, slots, y, None, augment.apply(self.recipe.augment, torch.cat(pixels), random, size))

    def _looked_up(self, draw: _Draw, depth: Depth) -> Tensor:
        """z from the stores, gathered into place."""
        assert draw.views is not None
        if depth == "csf" and len(draw.slots) and self._few_replayed:
            with torch.no_grad():
                return self.model.features(self._looked_up(draw, "llf"))
        current, replay = self._all_features() if depth == "csf" else (None, None)
        n = len(draw.rows)
        stores: list[tuple[Tensor, Tensor, Tensor]] = []
        if n:
            stores.append((self._current() if current is None else current, draw.rows, draw.views[:n]))
        if len(draw.slots):
            store = self._replay() if replay is None else replay
            stores.append((store, draw.slots, draw.views[n:] % store.shape[1]))
        with self.context.stopwatch.time("data"):
            z = torch.empty((len(draw.y), *stores[0][0].shape[2:]))
            for (store, rows, views), out in zip(stores, z.split([len(r) for _, r, _ in stores]), strict=True):
                gather(store, rows, views, out)
        return unpack(z.to(self.model.device))

    def _computed(self, draw: _Draw, depth: Depth) -> Tensor:
        """z from pixels, with gradient only where llf learns."""
        parts = []
        if draw.x is not None:
            learns = not self.model.is_frozen("llf")
            with torch.set_grad_enabled(torch.is_grad_enabled() and learns), self.context.stopwatch.time("llf"):
                parts.append(self.model.encode(draw.x))
        if len(draw.slots) and self.memory is not None and self.memory.store == "latent":
            parts.append(unpack(self.memory["z"][draw.slots].to(self.model.device).float()))
        z = torch.cat(parts) if len(parts) > 1 else parts[0]
        if depth == "csf":
            with torch.no_grad():
                return self.model.features(z)
        return z

    def _current(self) -> Tensor:
        """(n_i, views, ...): the latents of the experience, one per distinct view."""
        if self._z is None:
            assert self._views
            images = self.experience.images
            if self._kept_crops:
                read = partial(self._pixels, images)
                self._z = self._encode(len(images), read, self._views, self._dtype, self._crop)
            else:
                self._z = views_of(self.model, images, self._views, self._dtype, self.context)
        return self._z

    def _crop(self, x: Tensor, rows: Tensor, view: int) -> Tensor:
        """The view-th random crop of images of the experience."""
        random = generator(self.seed, "kept crop", self.experience.index, view, int(rows[0]) if len(rows) else 0)
        return augment.apply(self.recipe.augment, x, random, self._size(x))

    def _replay(self) -> Tensor:
        """(|R|, views, ...): the latents of the memory."""
        memory, views = self.memory, self._views
        assert memory is not None and views
        if memory.store == "latent":
            return memory["z"].unsqueeze(1)
        if self._kept_crops:
            store, name, view = memory.columns, "views", self._crop
        else:
            store, name, view = memory.cache, "z", mirrored
        held = store.get(name)
        if held is None or held.shape[1] != views or held.dtype != self._dtype:  # llf learned, or another recipe
            x = memory["x"]
            held = self._encode(len(x), lambda rows: self._cropped(x[rows]), views, self._dtype, view)
            store[name] = held
        return held

    def _all_features(self) -> tuple[Tensor, Tensor | None]:
        """csf features of the experience and of the memory, computed once while csf is frozen."""
        if self._features is None:
            replay = features(self.model, self._replay()) if self.memory is not None and len(self.memory) else None
            self._features = features(self.model, self._current()), replay
        return self._features

    def _plain_latents(self, rows: Tensor) -> Tensor:
        if self._views and not self._kept_crops:
            return self._current()[rows, 0]
        images = self.experience.images
        return self._encode(len(rows), lambda some: self._pixels(images, rows[some]))[:, 0]

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
        stream = torch.cat([self._lap(lap, size) for lap in range(first, last + 1)])
        return self._slots[stream[offset - first * size :][:n]]

    def _lap(self, lap: int, size: int) -> Tensor:
        """One permutation of the memory; the newest few are kept."""
        if lap not in self._laps:
            random = generator(self.seed, "replay", self.experience.index, lap)
            self._laps = {k: v for k, v in self._laps.items() if k >= lap - 2}
            self._laps[lap] = torch.randperm(size, generator=random)
        return self._laps[lap]


def portion(order: Tensor, step: int, size: int, beside: int = 0) -> Tensor:
    """What a step takes of an epoch: `size` at a time, or equal shares where the last ones would be too few.

    >>> [portion(torch.arange(33), step, 16).numel() for step in range(3)]
    [11, 11, 11]
    >>> [portion(torch.arange(33), step, 16, beside=16).numel() for step in range(3)]
    [16, 16, 1]
    """
    n, last = len(order), len(order) % size
    if 0 < last < FEWEST - beside <= size < n:
        return order.tensor_split(-(-n // size))[step]
    return order[step * size : (step + 1) * size]
