"""The latents of all that one experience is trained on: its images and the samples of the memory.

While llf is frozen and the augmentation has finitely many views, each image passes llf once per view, and its
latents are looked up from then on. Of random crops, `Recipe.views` are drawn once and kept, or none: then every
minibatch starts from pixels.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import torch
from torch import Generator, Tensor

from triphase.context import Context
from triphase.data import augment
from triphase.data.feature_cache import (
    Read,
    csf_features,
    encode,
    features,
    gather,
    latent_views,
    mirror_view,
    unpack,
)
from triphase.data.images import Images
from triphase.data.memory import Memory
from triphase.data.recipe import Recipe
from triphase.data.transfer import Upload
from triphase.models import SplitClassifier
from triphase.randomness import generator


@dataclass(frozen=True)
class Stores:
    """Which latents a minibatch needs in any process: all processes compute them together."""

    images: bool
    memory: bool


class TrainingLatents:
    """Latents of the views of images, computed once; `n_views` is 0 where z has to be computed from pixels."""

    def __init__(
        self,
        model: SplitClassifier,
        images: Images,
        memory: Memory | None,
        recipe: Recipe,
        *,
        experience: int,  # its index
        seed: int,
        context: Context,
    ) -> None:
        self._model, self._images, self._memory, self._experience = model, images, memory, experience
        self._augment, self._seed, self._context = recipe.augment, seed, context
        self._dtype = torch.float16 if recipe.latents == "float16" else torch.float32
        self._encode = partial(encode, model, context=context)
        self.upload = Upload(model.device)
        n_views, kept = augment.n_views(recipe.augment), recipe.latents != "off" and model.is_frozen("llf")
        self.keeps_crops = kept and n_views is None and recipe.views > 0
        self.n_views = (recipe.views if self.keeps_crops else n_views or 0) if kept else 0
        self._image_views: Tensor | None = None
        self._image_features: Tensor | None = None
        self._memory_features: Tensor | None = None

    def draw_views(self, n: int, random: Generator) -> Tensor:
        """(n,): a random view for each of n images."""
        if self.keeps_crops:
            return torch.randint(self.n_views, (n,), generator=random)
        return augment.draw_views(self._augment, n, random)

    def draw_pixels(self, rows: Tensor, slots: Tensor, random: Generator) -> Tensor | None:
        """Augmented pixels of images of the experience and of samples of the memory, where there are pixels.

        Of the minibatch that is given, they are those of this process.
        """
        shard, n = self._context.processes.shard, len(rows)
        parts = [_read_shard(self._image_pixels, rows, shard())] if n else []
        if len(slots) and self._memory is not None and self._memory.store == "raw":
            parts.append(_read_shard(self._memory_pixels, slots, shard(before=n)))
            n += len(slots)
        return self.upload.pinned(self._augmented(torch.cat(parts), random, n, shard())) if parts else None

    def lookup(
        self, rows: Tensor, slots: Tensor, views: Tensor, use: Stores, *, through_csf: bool = False
    ) -> Tensor:
        """z (n_mb, ...) of views of images and of samples of the memory; or csf(z), (n_mb, D)."""
        n, parts = len(rows), []
        if use.images:
            parts.append((self.image_features() if through_csf else self.image_views(), rows, views[:n]))
        if use.memory:
            store = self.memory_features() if through_csf else self.memory_views()
            parts.append((store, slots, views[n:] % store.shape[1]))
        return self._gather(parts)

    def lookup_features(self, rows: Tensor, slots: Tensor, views: Tensor, use: Stores) -> Tensor:
        """Features of a minibatch while csf is frozen; kept for the images of the experience."""
        n, parts = len(rows), []
        if use.images:
            parts.append(self._gather([(self.image_features(), rows, views[:n])]))
        if use.memory:
            store = self.memory_views()
            z = self._gather([(store, slots, views[n:] % store.shape[1])])
            parts.append(csf_features(self._model, z, self._context))
        return torch.cat(parts)

    def _gather(self, parts: list[tuple[Tensor, Tensor, Tensor]]) -> Tensor:
        """One row of a store for each index and view, on the device: stores, indices and views."""
        with self._context.stopwatch.time("data"):
            n = [len(index) for _, index, _ in parts]
            z = self.upload.empty((sum(n), *parts[0][0].shape[2:]))
            for (store, index, view), out in zip(parts, z.split(n), strict=True):
                gather(store, index, view, out)
        return unpack(self.upload(z))

    def image_views(self) -> Tensor:
        """(n_i, n_views, ...): packed latents of the experience."""
        if self._image_views is None:
            images = self._images
            if self.keeps_crops:
                self._image_views = self._encode(
                    len(images), self._image_pixels, self.n_views, self._dtype, self._random_crop
                )
            else:
                self._image_views = latent_views(self._model, images, self.n_views, self._dtype, self._context)
        return self._image_views

    def memory_views(self) -> Tensor:
        """(|R|, n_views, ...): packed latents of the memory; stored latents have one view."""
        memory = self._memory
        assert memory is not None and self.n_views
        if memory.store == "latent":
            return memory["z"].unsqueeze(1)
        if self.keeps_crops:
            columns, name, view = memory.columns, "views", self._random_crop
        else:
            columns, name, view = memory.cache, "z", mirror_view
        z = columns.get(name)
        if z is None or z.shape[1] != self.n_views or z.dtype != self._dtype:  # llf learned, or another recipe
            z = self._encode(len(memory), self._memory_pixels, self.n_views, self._dtype, view)
            columns[name] = z
        return z

    def image_features(self) -> Tensor:
        """(n_i, n_views, D): csf of `image_views`, computed once while csf is frozen."""
        if self._image_features is None:
            self._image_features = features(self._model, self.image_views(), self._context)
        return self._image_features

    def memory_features(self) -> Tensor:
        """(|R|, n_views, D): csf of `memory_views`, computed once while csf is frozen."""
        if self._memory_features is None:
            self._memory_features = features(self._model, self.memory_views(), self._context)
        return self._memory_features

    def forget_features(self) -> None:
        """Drop all features, because the memory has changed."""
        self._image_features = self._memory_features = None

    def image_latents(self, rows: Tensor) -> Tensor:
        """(n, ...): packed latents of images of the experience, without augmentation."""
        if self.n_views and not self.keeps_crops:
            return self.image_views()[rows, 0]
        images = self._images
        return self._encode(len(rows), lambda part: self._center_crop(images.read(rows[part])))[:, 0]

    def memory_latents(self, slots: Tensor) -> Tensor:
        """(n, ...): packed latents of samples of the memory, without augmentation."""
        assert self._memory is not None
        if self._memory.store == "latent":
            return self._memory["z"][slots]
        if self.n_views and not self.keeps_crops:
            return self.memory_views()[slots, 0]
        x = self._memory["x"][slots]
        return self._encode(len(x), lambda part: self._center_crop(x[part]))[:, 0]

    def _image_pixels(self, rows: Tensor) -> Tensor:
        return self._before_augmentation(self._images.read(rows))

    def _memory_pixels(self, slots: Tensor) -> Tensor:
        assert self._memory is not None
        return self._before_augmentation(self._memory["x"][slots])

    def _before_augmentation(self, x: Tensor) -> Tensor:
        """Pixels at the size of the network's input, or larger where random crops of them will be scaled."""
        return x if "rrc" in augment.parse(self._augment) else self._center_crop(x)

    def _center_crop(self, x: Tensor) -> Tensor:
        return augment.center_crop(x, self._size(x))

    def _augmented(self, x: Tensor, random: Generator, n: int, shard: slice = augment.EVERYTHING) -> Tensor:
        return augment.apply(self._augment, x, random, self._size(x), n=n, shard=shard)

    def _random_crop(self, x: Tensor, rows: Tensor, view: int) -> Tensor:
        """The view-th random crop of each image."""
        start = int(rows[0]) if len(rows) else 0
        random = generator(self._seed, "kept crop", self._experience, view, start)
        return self._augmented(x, random, len(x))

    def _size(self, x: Tensor) -> int:
        return self._model.image_size or int(x.shape[-1])


def _read_shard(read: Read, index: Tensor, shard: slice) -> Tensor:
    """The pixels of a shard; where it is empty, none of their size."""
    mine = index[shard]
    return read(mine) if len(mine) else read(index[:1])[:0]
