"""Minibatches of z = llf(augment(x)): n_mbe datapoints of the experience and n_mbr of the memory.

`Sampler` says which datapoints, and `TrainingLatents` has their latents while llf is frozen. Otherwise z is
computed from augmented pixels, which a thread reads in advance; with gradient where llf learns. Learners see no
difference.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from triphase.context import Context
from triphase.data.feature_cache import csf_features, unpack
from triphase.data.images import concatenate
from triphase.data.latent_crops import crop_maps, random_crops
from triphase.data.memory import Memory, ReadColumns
from triphase.data.prefetch import prefetch
from triphase.data.recipe import CropSize, Recipe
from triphase.data.sampler import Sampler
from triphase.data.streams import Experience
from triphase.data.training_latents import Stores, TrainingLatents
from triphase.errors import InvalidValue
from triphase.models import SplitClassifier
from triphase.models.engine import engine_of, frozen_form
from triphase.processes import Processes
from triphase.randomness import generator

Depth = Literal["llf", "csf"]
Position = tuple[int, int]  # epoch in the experience, step in the epoch


@dataclass(frozen=True)
class Minibatch:
    """n_current datapoints of the experience, then those of the memory.

    Where several processes share a minibatch, this is the shard of this process; `n_all` are in all shards.
    """

    z: Tensor  # (n_mb, ...) latents, or (n_mb, D) features if asked for
    y: Tensor  # (n_mb,)
    n_current: int
    rows: Tensor  # positions in the experience, (n_current,)
    slots: Tensor  # positions in the memory, (n_mb - n_current,)
    n_all: int
    n_all_current: int

    @property
    def share(self) -> float:
        """Of the whole minibatch: what the mean loss of this shard counts for."""
        return len(self.y) / self.n_all

    @property
    def n_all_replayed(self) -> int:
        """Datapoints of the memory in all shards."""
        return self.n_all - self.n_all_current


@dataclass(frozen=True)
class Samples:
    """What a minibatch is made from: views of images whose latents are kept, or augmented pixels."""

    rows: Tensor
    slots: Tensor
    y: Tensor
    n_all: int  # in the shards of all processes
    n_all_current: int
    position: Position
    views: Tensor | None = None
    x: Tensor | None = None

    @property
    def n_all_replayed(self) -> int:
        """Samples of the memory in the shards of all processes."""
        return self.n_all - self.n_all_current


def check_processes(processes: Processes, memory: Memory | None, recipe: Recipe) -> None:
    """Refuse more processes than a minibatch has samples."""
    n_mb = recipe.n_mbe + (recipe.n_mbr if memory is not None else 0)
    if processes.size > n_mb:
        raise InvalidValue(
            f"{processes.size} processes cannot share minibatches of {n_mb} samples: start at most {n_mb}, or "
            "raise n_mbe."
        )


class Batches:
    """The minibatches of one experience, with replay from the memory as it was when the experience began."""

    def __init__(
        self,
        model: SplitClassifier,
        experience: Experience,
        memory: Memory | None,
        recipe: Recipe,
        *,
        seed: int,
        held_out: Tensor | None = None,  # (n_i,) bool: not trained on; None: as the experience says
        pseudo: bool = False,  # also the unlabelled images of the experience, once they have pseudo-labels
        context: Context | None = None,
    ) -> None:
        self.context = Context() if context is None else context
        self.model, self.experience, self.memory = model, experience, memory
        self.recipe, self.seed = recipe, seed
        check_processes(self.context.processes, memory, recipe)
        held_out = experience.held_out if held_out is None else held_out
        rows = torch.arange(len(experience.images)) if held_out is None else (~held_out).nonzero().view(-1)
        images = concatenate([experience.images, experience.unlabelled]) if pseudo else experience.images
        self._labels = images.labels  # of the images with labels, then of those without
        self._old_slots = self._train_slots()
        self._rows, self._sampler = rows, self._sampler_of(rows)
        self._latents = TrainingLatents(
            model, images, memory, recipe, experience=experience.index, seed=seed, context=self.context
        )

    @property
    def n_mixed(self) -> int:
        """Iterations of an epoch over the experience: ceil(n_i / n_mbe)."""
        return self._sampler.n_mixed

    @property
    def n_balanced(self) -> int:
        """Iterations of an epoch over the memory: ceil(n_replay / n_mbe)."""
        return self._sampler.n_balanced(len(self._train_slots()))

    def mixed(self, positions: Iterable[Position], depth: Depth = "llf") -> Iterator[Minibatch]:
        """Phases I and II: each image of the experience once per epoch, beside replayed samples.

        With depth="csf" the minibatches carry the features of a frozen csf in place of z.
        """

        def draw(position: Position) -> Samples:
            rows, slots = self._sampler.mixed(*position)
            return self._draw(rows, slots, position)

        return self._minibatches(positions, draw, depth)

    def balanced(self, positions: Iterable[Position], depth: Depth = "llf") -> Iterator[Minibatch]:
        """Phase III: n_mbe samples of the updated memory, each once per epoch."""
        no_rows, slots = torch.empty(0, dtype=torch.long), self._train_slots()

        def draw(position: Position) -> Samples:
            return self._draw(no_rows, self._sampler.balanced(slots, *position), position)

        return self._minibatches(positions, draw, depth)

    def with_pseudo_labels(self, labels: Tensor) -> Batches:
        """The same minibatches, which also draw the unlabelled images whose pseudo-label is not -1."""
        other, n_labelled = copy.copy(self), len(self.experience.images)
        other._labels = torch.cat([self.experience.images.labels, labels])
        other._sampler = self._sampler_of(torch.cat([self._rows, n_labelled + (labels >= 0).nonzero().view(-1)]))
        return other

    def unlabelled_latents(self, rows: Tensor) -> Tensor:
        """z of unlabelled images of the experience, without augmentation."""
        return self.image_latents(len(self.experience.images) + rows)

    def image_latents(self, rows: Tensor) -> Tensor:
        """z of images of the experience, without augmentation."""
        return unpack(self._latents.image_latents(rows).to(self.model.device).float())

    def memory_latents(self, slots: Tensor) -> Tensor:
        """z of samples of the memory, without augmentation."""
        return unpack(self._latents.memory_latents(slots).to(self.model.device).float())

    def update_memory(self, extra_columns: ReadColumns = lambda rows: {}) -> None:
        """Offer the experience to the memory (class-balanced reservoir, end of Phase II).

        `extra_columns` gives further columns of the images that get in.
        """
        memory, latents, images = self.memory, self._latents, self.experience.images
        assert memory is not None
        if "z" in memory.cache and memory.cache["z"].shape[1] != latents.n_views:
            memory.cache.clear()
        if not latents.keeps_crops:
            memory.columns.pop("views", None)  # crops that an earlier recipe kept
        elif memory.store == "raw" and len(memory):
            latents.memory_views()  # the samples that are there get their crops before others bring theirs
        memory.add(
            images.labels,
            images.ids,
            lambda rows: self._memory_columns(rows) | extra_columns(rows),
            (lambda rows: {"z": latents.image_views()[rows]}) if self._caches_memory else None,
            self.experience.held_out,
            self.context.budget,
        )
        latents.forget_features()

    def _memory_columns(self, rows: Tensor) -> dict[str, Tensor]:
        """What the memory stores of images of the experience."""
        assert self.memory is not None
        columns = {name: column[rows] for name, column in self.experience.columns.items()}
        if self.experience.held_out is not None:
            columns["split"] = self.experience.held_out[rows].to(torch.int8)
        if self.memory.store == "latent":
            return {"z": self._latents.image_latents(rows)} | columns
        crops = {"views": self._latents.image_views()[rows]} if self._latents.keeps_crops else {}
        return {"x": self.experience.images.read(rows)} | crops | columns

    @property
    def _caches_memory(self) -> bool:
        """Whether latents of the experience serve as latents of the memory later."""
        assert self.memory is not None
        return self.memory.store == "raw" and self._latents.n_views > 0 and not self._latents.keeps_crops

    def _sampler_of(self, rows: Tensor) -> Sampler:
        return Sampler(rows, self._old_slots, self.recipe, experience=self.experience.index, seed=self.seed)

    def _train_slots(self) -> Tensor:
        return torch.empty(0, dtype=torch.long) if self.memory is None else self.memory.slots()

    def _minibatches(
        self, positions: Iterable[Position], draw: Callable[[Position], Samples], depth: Depth
    ) -> Iterator[Minibatch]:
        """A minibatch for each position; where pixels are needed, a thread reads them in advance."""
        stopwatch = self.context.stopwatch
        drawn = map(draw, positions) if self._latents.n_views else prefetch(positions, draw)
        for samples in stopwatch.time_waiting("data", drawn):
            z = self._lookup(samples, depth) if samples.views is not None else self._compute(samples, depth)
            if self.recipe.latent_crops is not None and depth == "llf":
                z = self._cropped(z, samples, self.recipe.latent_crops)
            stopwatch.count(samples.n_all)
            rows, slots, y = samples.rows, samples.slots, self._latents.upload(samples.y)
            yield Minibatch(z, y, len(rows), rows, slots, samples.n_all, samples.n_all_current)

    def _draw(self, all_rows: Tensor, all_slots: Tensor, position: Position) -> Samples:
        """Labels, and views or pixels, of this process's shard: a pure function of the position."""
        random, shard = (
            generator(self.seed, "augment", self.experience.index, *position),
            self.context.processes.shard,
        )
        n_rows, n = len(all_rows), len(all_rows) + len(all_slots)
        rows, slots = all_rows[shard()], all_slots[shard(before=n_rows)]
        y = self._labels[rows]
        if len(slots) and self.memory is not None:
            y = torch.cat([y, self.memory["y"][slots]])
        if self._latents.n_views:
            views = self._latents.draw_views(n, random)[shard()]
            return Samples(rows, slots, y, n, n_rows, position, views=views)
        x = self._latents.draw_pixels(all_rows, all_slots, random)
        return Samples(rows, slots, y, n, n_rows, position, x=x)

    def _cropped(self, z: Tensor, samples: Samples, size: CropSize) -> Tensor:
        """Random crops of the latents' feature maps: a pure function of the position, too."""
        random = generator(self.seed, "latent crops", self.experience.index, *samples.position)
        shard = self.context.processes.shard()
        return crop_maps(self.model.csf, z, lambda maps: random_crops(maps, random, size, samples.n_all, shard))

    def _lookup(self, samples: Samples, depth: Depth) -> Tensor:
        """z, or features, from the latents that are kept."""
        assert samples.views is not None
        wanted = (
            samples.rows,
            samples.slots,
            samples.views,
            Stores(samples.n_all_current > 0, samples.n_all_replayed > 0),
        )
        if depth == "llf":
            return self._latents.lookup(*wanted)
        if engine_of(self.context, self.model.csf) != "torch":
            return self._latents.lookup_features(*wanted)
        replayed = self.n_mixed * self.recipe.n_mbr  # in an epoch
        if samples.n_all_replayed and 2 * replayed < len(
            self._old_slots
        ):  # few of the memory's features would be used
            with torch.no_grad():
                return self.model.features(self._latents.lookup(*wanted))
        return self._latents.lookup(*wanted, through_csf=True)

    def _compute(self, samples: Samples, depth: Depth) -> Tensor:
        """z, or features, from pixels, and from stored latents."""
        parts = []
        if samples.x is not None:
            learns, x = not self.model.is_frozen("llf"), self._latents.upload(samples.x)
            onnx = not learns and engine_of(self.context, self.model.llf) != "torch"
            with torch.set_grad_enabled(torch.is_grad_enabled() and learns), self.context.stopwatch.time("llf"):
                parts.append(self.model.encode(x, frozen_form(self.model.llf, x, self.context) if onnx else None))
        if samples.n_all_replayed and self.memory is not None and self.memory.store == "latent":
            parts.append(unpack(self._latents.upload(self.memory["z"][samples.slots]).float()))
        z = torch.cat(parts) if len(parts) > 1 else parts[0]
        if depth == "llf":
            return z
        with torch.no_grad():
            return csf_features(self.model, z, self.context)
