"""How lessons are trained on: the recipe of `teach` against others, over streams of lessons on real photos.

python benchmarks/lesson_recipe.py --data DIR [--orders 0,1] [--variants chosen,flips]

Two streams of CIFAR-100 at 96 px: "mixed" is that of benchmarks/teach.py with a memory of 500 samples, 10
classes and then 20 lessons of two new classes and more of two old ones; "single" starts with 30 classes of 100
photos, all of which stay in the memory, and goes on with 20 lessons of one class with 100. It prints the
accuracy on the test images of all classes so far, the mean over lessons 5, 9, 13, 17 and 21, of both members
together and of TPC alone, and the processor's seconds for a lesson, its latents given.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import mean
from typing import Any

import torch
from teach import LESSONS, SIZE, lessons
from torch import Tensor

from triphase import Anchored, Images, Recipe
from triphase.app.hold_out import hold_out
from triphase.app.learning import learn, lesson_recipe
from triphase.app.model import Model
from triphase.app.options import ModelOptions
from triphase.context import Context
from triphase.data import sources
from triphase.data.feature_cache import latent_views, latents, unpack
from triphase.randomness import generator

MEMORY: dict[str, int | str] = {"mixed": 500, "single": "200MB"}


def replayed(recipe: Recipe, most: int) -> Recipe:
    """With so many stored samples for each new one, where the recipe has two."""
    n_mbe = max(recipe.n_mbe * 3 // (1 + most), 1) if recipe.n_mbr else recipe.n_mbe
    return replace(recipe, n_mbe=n_mbe, n_mbr=recipe.n_mbe + recipe.n_mbr - n_mbe)


VARIANTS: dict[str, Callable[[Recipe], Recipe]] = {
    "chosen": lambda recipe: recipe,
    "flips": lambda recipe: replace(recipe, augment="flip"),
    "replay of 4": lambda recipe: replayed(recipe, 4),
    "consolidation of 256": lambda recipe: replace(recipe, balanced=256),
    "longer consolidation": lambda recipe: replace(recipe, balanced=2 * (recipe.balanced or 0)),
    "3 epochs": lambda recipe: replace(recipe, epochs=max(3, recipe.epochs - 1)),
    "head rate .03": lambda recipe: replace(recipe, lr=0.03),
}


def single(train: Images, seed: int) -> list[list[Tensor]]:
    """Rows of the training images: 30 classes, then one at a time."""
    order = torch.randperm(100, generator=generator(seed, "single"))[: 30 + LESSONS].tolist()
    rows = [(train.labels == c).nonzero().view(-1)[:100] for c in order]
    return [rows[:30], *([row] for row in rows[30:])]


def taught(
    plan: list[list[Tensor]], train: Images, test: Images, stream: str, variant: str, context: Context
) -> dict[str, Any]:
    """A model lesson by lesson, and what it knows after every fourth."""
    model = Model(ModelOptions(image_size=SIZE, memory=MEMORY[stream]), context=context)
    both, alone, seconds = [], [], []
    assert isinstance(model.learner, Anchored)
    for number, parts in enumerate(plan):
        rows = torch.cat(parts)
        classes = [int(train.labels[part[0]]) for part in parts]
        local = torch.tensor([classes.index(c) for c in train.labels[rows].tolist()])
        hashes = torch.randint(1 << 62, (len(rows), 2), generator=generator(0, "unlike", number))
        names = [str(c) for c in classes]
        lesson = hold_out(model, train.select(rows, local), names, hashes)
        recipe = VARIANTS[variant](lesson_recipe(model, lesson))
        views = 2 if recipe.augment == "flip" else 1
        latent_views(model.network, lesson.experience.images, views, torch.float32, context)
        since = time.process_time()
        learn(model, lesson, recipe)
        seconds.append(time.process_time() - since)
        seen = [int(name) for name in model.names]
        if number % 4 == 0 and number:
            asked = torch.isin(test.labels, torch.tensor(seen)).nonzero().view(-1)
            y = torch.tensor([seen.index(c) for c in test.labels[asked].tolist()])
            z = latents(model.network, test, context=context)[asked]
            both.append(accuracy(model.learner.logits, z, y))
            alone.append(accuracy(model.learner.tpc.logits, z, y))
    return {"both": mean(both), "tpc": mean(alone), "seconds": mean(seconds[1:]), "after_each": both}


def accuracy(logits: Callable[[Tensor], Tensor], z: Tensor, y: Tensor) -> float:
    """Of packed latents, in per cent."""
    right = [logits(unpack(some)).argmax(1) == true for some, true in zip(z.split(256), y.split(256), strict=True)]
    return 100 * float(torch.cat(right).float().mean())


def main() -> None:
    """Print one JSON document for each stream, variant and order."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder with cifar-100-binary/")
    parser.add_argument("--orders", default="0")
    parser.add_argument("--streams", default=",".join(MEMORY))
    parser.add_argument("--variants", default=",".join(VARIANTS))
    parser.add_argument("--latents", type=Path, help="where latents are kept for further runs")
    arguments = parser.parse_args()
    train, test, _ = sources.cifar100(arguments.data)
    train, test = train.resized(SIZE), test.resized(SIZE)
    with tempfile.TemporaryDirectory() as scratch:
        folder = arguments.latents or Path(scratch)
        for stream in arguments.streams.split(","):
            for order in map(int, arguments.orders.split(",")):
                plan = lessons(train, order) if stream == "mixed" else single(train, order)
                for variant in arguments.variants.split(","):
                    result = taught(plan, train, test, stream, variant, Context(latents_folder=folder))
                    print(json.dumps({"stream": stream, "order": order, "variant": variant, **result}), flush=True)


if __name__ == "__main__":
    main()
