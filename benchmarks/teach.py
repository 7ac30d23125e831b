"""A model that is taught 21 lessons of real photos, beside models that are trained on everything each time.

python benchmarks/teach.py --data DIR --figure benchmarks/results/teach.png [--memory 500,1500,5000]

CIFAR-100 is written out as PNG folders: first 10 classes with 50 photos each, then 20 lessons with 60 photos of
each of two new classes and 30 new photos of each of two old ones. After each lesson the test photos (50 a class) of
all classes so far are shown to the model taught lesson by lesson, to csf and head retrained on everything seen, and
to SLDA and RanPAC.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from matplotlib.figure import Figure
from PIL import Image
from torch import Tensor

from triphase import SLDA, Experience, Images, Joint, RanPAC, Recipe
from triphase.app.learning import recipe_for
from triphase.app.options import ModelOptions
from triphase.app.plan import LessonSettings
from triphase.app.predictor import Predictor
from triphase.app.scan import scan
from triphase.app.teach import teach
from triphase.budget import Budget
from triphase.context import Context
from triphase.data import sources
from triphase.data.feature_cache import latent_views, latents, unpack
from triphase.data.images import concatenate
from triphase.models import build
from triphase.randomness import generator

SIZE, LESSONS = 96, 20
COLOURS = {"500": "#cab2d6", "1500": "#9a6fc0", "5000": "#6a3d9a", "retrained": "black"}
COLOURS |= {"slda": "#33a02c", "ranpac": "#b2df8a"}


def lessons(train: Images, seed: int = 0) -> list[list[Tensor]]:
    """Rows of the training images: lesson by lesson, class by class."""
    order = torch.randperm(100, generator=generator(seed, "teach"))[: 10 + 2 * LESSONS].tolist()
    rows = {c: (train.labels == c).nonzero().view(-1) for c in order}
    taken = dict.fromkeys(order, 0)

    def take(c: int, n: int) -> Tensor:
        taken[c] += n
        drawn: Tensor = rows[c][taken[c] - n : taken[c]]
        return drawn

    plan = [[take(c, 50) for c in order[:10]]]
    for k in range(LESSONS):
        new = order[10 + 2 * k : 12 + 2 * k]
        old = [order[i] for i in torch.randperm(10 + 2 * k, generator=generator(seed, "old", k))[:2].tolist()]
        plan.append([take(c, 60) for c in new] + [take(c, 30) for c in old])
    return plan


def write(images: Images, rows: Tensor, folder: Path, names: list[str]) -> None:
    """PNG files in class folders."""
    for row, pixels in zip(rows.tolist(), images.read(rows), strict=True):
        place = folder / names[int(images.labels[row])]
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels.permute(1, 2, 0).numpy()).save(place / f"{row}.png")


def taught(folders: list[Path], test: Path, memory: int, learner: str, place: Path) -> dict[str, Any]:
    """The command `triphase teach`, lesson by lesson, and what the model knows after each."""
    accuracy, seconds = [], []
    for folder in folders:
        start = time.perf_counter()
        options = ModelOptions(image_size=SIZE, memory=memory, learner=learner)
        outcome = teach(place, folder, options, LessonSettings(force=True))
        seconds.append(time.perf_counter() - start)
        accuracy.append(accuracy_of(Predictor.open(place), test))
    return {"accuracy": accuracy, "seconds": seconds, "refused": outcome.verdict.refused}


def accuracy_of(predictor: Predictor, test: Path) -> float:
    """Accuracy on the test photos of the classes that the model knows."""
    photos = scan(test, predictor.size, Budget())
    y = torch.tensor([predictor.names.index(n) if n in predictor.names else -1 for n in photos.names])[
        photos.labels
    ]
    rows = (y >= 0).nonzero().view(-1)
    probabilities, _ = predictor.predict(photos.images.select(rows))
    return float((probabilities.argmax(1) == y[rows]).float().mean())


def everything(folders: list[Path], test: Path, every: int) -> dict[str, Any]:
    """Retraining csf and head on all that was seen, and the closed forms, which see everything once."""
    seen: list[Images] = []
    names: list[str] = []
    results: dict[str, Any] = {
        n: {"lesson": [], "accuracy": [], "seconds": []} for n in ("retrained", "slda", "ranpac")
    }
    closed: dict[str, SLDA | RanPAC] = {"slda": SLDA(model_of()), "ranpac": RanPAC(model_of())}
    recipe = Recipe(epochs=4, lr=0.01, csf_lr=0.03, n_mbe=128, augment="flip")
    for index, folder in enumerate(folders, start=1):
        photos = scan(folder, SIZE, Budget())
        names += [n for n in photos.names if n not in names]
        labels = torch.tensor([names.index(n) for n in photos.names])[photos.labels]
        images = photos.images.select(torch.arange(len(photos)), labels)
        seen.append(images)
        for name, learner in closed.items():
            start = time.perf_counter()
            learner.learn(Experience(index, images), recipe)
            results[name]["seconds"].append(time.perf_counter() - start)
        if (index - 1) % every == 0:
            joint = Joint(model_of(len(names)))
            start = time.perf_counter()
            joint.learn(Experience(1, concatenate(seen)), recipe)
            results["retrained"]["seconds"].append(time.perf_counter() - start)
            for name, tried in {"retrained": joint, **closed}.items():
                results[name]["lesson"].append(index)
                results[name]["accuracy"].append(tested(tried, test, names))
    everything = Experience(1, concatenate(seen))
    with tempfile.TemporaryDirectory() as kept:  # once more with latents that were kept from lesson to lesson
        context = Context(latents_folder=Path(kept))
        latent_views(model_of(), everything.images, 2, torch.float32, context)
        results["retrained"]["seconds_with_latents"] = retraining(everything, recipe, len(names), context)
    # and as most programs would do it: every pass from the pixels on
    slow = replace(recipe, latents="off")
    results["retrained"]["seconds_without_latents"] = retraining(everything, slow, len(names))
    return results


def retraining(experience: Experience, recipe: Recipe, n_classes: int, context: Context | None = None) -> float:
    """Seconds of training csf and head anew."""
    joint = Joint(model_of(n_classes), context=context)
    start = time.perf_counter()
    joint.learn(experience, recipe)
    return time.perf_counter() - start


def model_of(n_classes: int = 0) -> Any:
    """The network that all of them use."""
    return build("efficientnet_lite0", n_classes, image_size=SIZE)


def tested(learner: Any, test: Path, names: list[str]) -> float:
    """Accuracy of a bare learner."""
    photos = scan(test, SIZE, Budget())
    y = torch.tensor([names.index(n) if n in names else -1 for n in photos.names])[photos.labels]
    rows = (y >= 0).nonzero().view(-1)
    context = Context(latents_folder=test.with_name("latents"))
    z = latents(learner.model, photos.images.select(rows), context=context)
    guess = torch.cat([learner.logits(unpack(part)).argmax(1) for part in z.split(256)])
    return float((guess == y[rows]).float().mean())


def draw(results: dict[str, Any], figure_file: Path) -> None:
    """Accuracy and seconds, lesson by lesson."""
    figure = Figure(figsize=(9, 3.4), layout="constrained")
    left, right = figure.subplots(1, 2)
    for name, entry in results.items():
        at = entry.get("lesson") or list(range(1, len(entry["accuracy"]) + 1))
        label = f"taught, memory {name}" if name.isdigit() else name
        style = ("o--" if name == "retrained" else "o-") if "lesson" in entry else "-"
        left.plot(at, [100 * a for a in entry["accuracy"]], style, color=COLOURS.get(name), label=label)
        if name.isdigit() or name == "retrained":
            right.plot(at, entry["seconds"], style, color=COLOURS.get(name), label=label)
    left.set(xlabel="lesson", ylabel="accuracy on all classes so far, %")
    right.set(xlabel="lesson", ylabel="seconds per lesson", ylim=(0, None))
    for panel in (left, right):
        panel.grid(alpha=0.3)
        panel.legend(frameon=False, fontsize=8)
    figure.savefig(figure_file, dpi=150)


def main() -> None:
    """Measure, draw, print one JSON document."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder with cifar-100-binary/")
    parser.add_argument("--figure", type=Path, required=True)
    parser.add_argument("--memory", default="500,1500,5000", help="samples, several with commas")
    parser.add_argument("--learner", default="anchored")
    parser.add_argument("--every", type=int, default=1, help="retrain on everything after every so many lessons")
    arguments = parser.parse_args()
    train, test, names = sources.cifar100(arguments.data)
    plan = lessons(train)
    known = {int(train.labels[rows[0]]) for lesson in plan for rows in lesson}
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch)
        folders = [root / f"lesson{i:02d}" for i in range(len(plan))]
        for lesson, folder in zip(plan, folders, strict=True):
            write(train, torch.cat(lesson), folder, names)
        for c in sorted(known):
            write(test, (test.labels == c).nonzero().view(-1)[:50], root / "test", names)
        for memory in (int(word) for word in arguments.memory.split(",")):
            place = root / f"model{memory}"
            results[str(memory)] = taught(folders, root / "test", memory, arguments.learner, place)
            print(memory, results[str(memory)]["accuracy"][-1], file=sys.stderr, flush=True)
        results |= everything(folders, root / "test", arguments.every)
    draw(results, arguments.figure)
    images = sum(len(rows) for lesson in plan for rows in lesson)
    print(
        json.dumps({"images": images, "classes": len(known), "recipe": recipe_for(180, 1500).to_json(), **results})
    )


if __name__ == "__main__":
    main()
