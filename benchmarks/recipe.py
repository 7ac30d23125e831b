"""Chooses the recipe for practitioners on classes that its last tables do not use; says what each part is worth.

    python benchmarks/recipe.py --data DIR --out FOLDER      # DIR holds cifar-100-binary/

Classes 0 to 49 of CIFAR-100, in images that the tables of the comparison leave out, as two streams: 21 experiences
of new classes (10, then 2 at a time; 100 images a class, memory of 500), and 61 in which classes come back (10,
then 5 at a time; 50 images a class, memory of 125), tested on 50 more images a class. Each member learns once and
what it says is kept in FOLDER, so that the command can be interrupted and given again; members are then put
together in every way. The rule: the recipe is the candidate with the highest mean of AMCA and final accuracy, over
both streams and three class orders. Prints it beside candidates that differ from it in one thing;
FOLDER/candidates.jsonl has all of them, best first.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from statistics import mean
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn import functional as F

from triphase import SLDA, TPC, Images, Memory, RanPAC, Recipe, SplitClassifier
from triphase.context import Context
from triphase.data import sources
from triphase.data.feature_cache import latents, unpack
from triphase.data.images import select_classes, subsample
from triphase.data.streams import Stream, class_incremental, random_class_order, with_repetition
from triphase.learners.slda_depths import SHRINKAGE
from triphase.models import build, linear_head
from triphase.models.depth_features import DepthFeatures

IN_TABLES, TEST = 100, 50  # images a class
CLASSES = 50  # the other 50 are for the tables
DEPTHS = ("z", "block 1", "block 2", "block 3", "f")
RATES = ("0.03/0.03", "0.1/0.1", "0.01/0.01", "0.03/0.1", "0.03/0.3", "0.1/0.03", "0.1/0.3")  # of head and csf
SHRINKAGES = (0.05, 0.1, 0.2, 0.3, 0.5, 0.7)  # .5 and .7, and the weights from 10 on, when .3 and 7 had come first
WEIGHTS = (1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 7.0, 10.0, 14.0, 20.0)  # of the closed form beside the other member
Scores = list[Tensor]  # after each point of the stream: (test images, classes so far)


@dataclass(frozen=True)
class Shape:
    """A stream as in the comparison, at half its size."""

    train: int  # images a class
    memory: int
    every: int  # experiences between evaluations
    rest: Recipe


FIRST = Recipe(epochs=3, lr=0.03, n_mbe=128, augment="flip")
SHAPES = {
    "new": Shape(100, 500, 5, Recipe(epochs=3, lr=0.03, n_mbe=43, n_mbr=213, augment="flip")),
    "again": Shape(50, 125, 10, Recipe(epochs=3, lr=0.03, n_mbe=31, n_mbr=97, augment="flip")),
}


@dataclass(frozen=True)
class Candidate:
    """TPC at some rates or RanPAC, beside a closed form with some weight; or one of them alone."""

    member: str | None
    closed: str | None
    weight: float = 1.0

    def __str__(self) -> str:
        member = f"TPC, rates {self.member}" if self.member in RATES else str(self.member)
        if self.closed is None:
            return member
        return f"{member} + {self.weight:g} x {self.closed}" if self.member else self.closed


@dataclass(frozen=True)
class Row:
    """A candidate and what it reached, in percent."""

    candidate: Candidate
    amca_new: float
    final_new: float
    amca_again: float
    final_again: float

    @property
    def values(self) -> tuple[float, ...]:
        """Both measures on both streams, and what the rule looks at."""
        four = (self.amca_new, self.final_new, self.amca_again, self.final_again)
        return *four, mean(four)

    def to_json(self) -> dict[str, Any]:
        """A line of the record."""
        names = ("amca_new", "final_new", "amca_again", "final_again", "mean")
        measures = {name: round(value, 3) for name, value in zip(names, self.values, strict=True)}
        return asdict(self.candidate) | measures


def main() -> None:
    """Let all members learn, put them together and print what is chosen."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="directory that holds cifar-100-binary/")
    parser.add_argument("--out", type=Path, required=True, help="directory for what members say")
    parser.add_argument("--orders", default="100,101,102", help="class orders, not those of the tables")
    parser.add_argument("--only", choices=list(SHAPES), help="learn one stream, for two processes side by side")
    arguments = parser.parse_args()
    orders = [int(order) for order in arguments.orders.split(",")]
    found: dict[Candidate, list[tuple[float, float]]] = {}
    for kind, order in itertools.product([arguments.only] if arguments.only else SHAPES, orders):
        said, answers = learned(arguments.data, arguments.out / f"{kind}-{order}", kind, order)
        for candidate in () if arguments.only else candidates(list(said)):
            found.setdefault(candidate, []).append(amca_and_final(combined(candidate, said), answers))
        print(f"{kind} {order} done", file=sys.stderr)
    if not arguments.only:
        rows = sorted((row(who, values) for who, values in found.items()), key=lambda r: -r.values[-1])
        (arguments.out / "candidates.jsonl").write_text("".join(json.dumps(r.to_json()) + "\n" for r in rows))
        print("| | new classes: AMCA | final | classes come back: AMCA | final | mean |\n|---|---|---|---|---|---|")
        for r in rows:
            if shown(r.candidate, rows[0].candidate):
                name = f"**{r.candidate}**" if r is rows[0] else str(r.candidate)
                print(f"| {name} | " + " | ".join(f"{value:.2f}" for value in r.values) + " |")


def candidates(names: Sequence[str]) -> list[Candidate]:
    """Every member alone, and every two of them together that are not both TPC."""
    adapting, closed = [n for n in names if n in RATES], [n for n in names if n not in RATES]
    alone = [Candidate(name, None) for name in adapting] + [Candidate(None, name) for name in closed]
    pairs = itertools.product((*adapting, "RanPAC"), closed, WEIGHTS)
    return alone + [Candidate(*pair) for pair in pairs if pair[0] != pair[1]]


def shown(candidate: Candidate, best: Candidate) -> bool:
    """Whether a candidate is the best, differs from it in one thing, or is one member."""
    same = (candidate.member == best.member, candidate.closed == best.closed, candidate.weight == best.weight)
    return None in (candidate.member, candidate.closed) or sum(same) >= 2


def combined(candidate: Candidate, said: dict[str, Scores]) -> Scores:
    """What a candidate says."""
    member, closed = (said.get(name or "") for name in (candidate.member, candidate.closed))
    if member is not None and closed is not None:
        return together(member, closed, candidate.weight)
    return member or closed or []


def row(candidate: Candidate, values: Sequence[tuple[float, float]]) -> Row:
    """Means over class orders; the first half is of the stream of new classes."""
    n = len(values) // 2
    new, again = (tuple(map(mean, zip(*half, strict=True))) for half in (values[:n], values[n:]))
    return Row(candidate, *new, *again)


def amca_and_final(scores: Scores, answers: Sequence[Tensor]) -> tuple[float, float]:
    """AMCA and final accuracy in percent (classes have equally many images)."""
    right = [100 * float((s.argmax(1) == y).double().mean()) for s, y in zip(scores, answers, strict=True)]
    return mean(right), right[-1]


def learned(data: Path, folder: Path, kind: str, order: int) -> tuple[dict[str, Scores], list[Tensor]]:
    """What every member says of one stream, and the right answers; what is in the folder is not learned again."""
    folder.mkdir(parents=True, exist_ok=True)
    bench = Bench(left_out(data, order, kind), folder.parent / "latents", SHAPES[kind])
    said = {}
    for name, make in bench.members().items():
        path = folder / f"{name.replace('/', ' ')}.safetensors"
        if not path.exists():
            save_file({str(i): scores.contiguous() for i, scores in enumerate(make())}, path)
        said[name] = [scores for _, scores in sorted(load_file(path).items(), key=lambda item: int(item[0]))]
    return said, bench.answers


def left_out(data: Path, order: int, kind: str = "new") -> Stream:
    """A stream of images, and of classes, that the comparison's last tables do not use."""
    shape = SHAPES[kind]
    train, _, names = sources.cifar100(data)
    left = without(train.resized(96), subsample(train, IN_TABLES))
    lessons = subsample(left, shape.train)
    test = subsample(without(left, lessons), TEST)
    classes = [c for c in random_class_order(len(names), order) if c < CLASSES]
    if kind == "new":
        points = range(1, 22, shape.every)
        return class_incremental(
            lessons, test, names, first=10, then=2, order=classes, n_experiences=21, evaluate_after=points
        )
    lessons, test = (select_classes(images, classes) for images in (lessons, test))
    return with_repetition(
        lessons,
        test,
        names,
        n_experiences=61,
        first=10,
        per_experience=5,
        order=classes,
        seed=order,
        evaluate_after=range(1, 62, shape.every),
    )


class Bench:
    """A stream whose latents are computed once, and what each member says at its points."""

    def __init__(self, source: Stream, folder: Path, shape: Shape = SHAPES["new"]) -> None:
        self.stream, self.shape, self.folder = source, shape, folder
        context = self.context()
        labels, seen = source.test.labels, [source.n_seen[i - 1] for i in source.evaluate_after]
        everything = source.evaluation == "all"
        self.tested = [(labels < (CLASSES if everything else n)).nonzero().view(-1) for n in seen]
        self.answers = [labels[rows] for rows in self.tested]
        model = build("efficientnet_lite0", image_size=96).eval()
        self.z_test = latents(model, source.test, context=context)
        self.parts = [at_depths(model.csf, latents(model, e.images, context=context)) for e in source.experiences]
        self.test_parts = at_depths(model.csf, self.z_test)
        check = DepthFeatures(model.csf, max_width=2 * model.n_features).eval()(unpack(self.z_test[:50]))
        assert torch.allclose(check, joined(self.test_parts, DEPTHS, unit=True)[:50], atol=1e-5), "not the recipe's"

    def context(self) -> Context:
        """One for each learner; all of them find the latents in the same folder."""
        return Context(latents_folder=self.folder)

    def members(self) -> dict[str, Callable[[], Scores]]:
        """All that can be put together, TPC under its rates."""
        found: dict[str, Callable[[], Scores]] = {rates: partial(self.tpc, rates) for rates in RATES}
        for s in SHRINKAGES:
            found[f"SLDA of every depth, shrinkage {s:g}"] = partial(self.slda, DEPTHS, shrinkage=s)
            found[f"SLDA of f as it comes, shrinkage {s:g}"] = partial(self.slda, ("f",), unit=False, shrinkage=s)
        found["SLDA of every depth as it comes"] = partial(self.slda, DEPTHS, unit=False)
        found["SLDA of z and f"] = partial(self.slda, ("z", "f"))
        found["SLDA of f"] = partial(self.slda, ("f",))
        return found | {"RanPAC": self.ranpac}

    def closed(self, learner: SLDA | RanPAC, depths: Sequence[str], unit: bool) -> Scores:
        """What a closed form says that reads csf at some depths."""
        f_test, scores = joined(self.test_parts, depths, unit), list[Any]()
        for experience, parts in zip(self.stream.experiences, self.parts, strict=True):
            learner.add(joined(parts, depths, unit), experience.images.labels)
            if experience.index in self.stream.evaluate_after:
                f = f_test[self.tested[len(scores)]]
                if isinstance(learner, SLDA):
                    _, W, b = learner.solution
                    said = f @ W.T + b
                else:
                    said = F.relu(f @ learner.P) @ learner.W.T
                scores.append(said[:, : self.stream.n_seen[experience.index - 1]])
        return scores

    def slda(self, depths: Sequence[str], *, unit: bool = True, shrinkage: float = SHRINKAGE) -> Scores:
        """SLDA over some depths."""
        return self.closed(SLDA(reading(depths, self.test_parts), shrinkage=shrinkage), depths, unit)

    def ranpac(self) -> Scores:
        """RanPAC over f, as in the comparison."""
        return self.closed(RanPAC(reading(("f",), self.test_parts)), ("f",), unit=False)

    def tpc(self, rates: str) -> Scores:
        """TPC as on the streams of the comparison, with rates of head and csf."""
        lr, csf_lr = map(float, rates.split("/"))
        model = build("efficientnet_lite0", len(self.stream.names), image_size=96)
        learner = TPC(model, Memory(self.shape.memory), context=self.context())
        scores: Scores = []
        for experience in self.stream.experiences:
            recipe = FIRST if experience.index == 1 else self.shape.rest
            learner.learn(experience, replace(recipe, lr=lr, csf_lr=csf_lr))
            if experience.index in self.stream.evaluate_after:
                scores.append(self.says(learner, len(scores)))
        return scores

    def says(self, learner: TPC, point: int) -> Tensor:
        """What TPC says at a point of the stream, of the classes seen."""
        z, n = self.z_test[self.tested[point]], self.stream.n_seen[self.stream.evaluate_after[point] - 1]
        return torch.cat([learner.logits(unpack(part)) for part in z.split(500)])[:, :n]


def at_depths(csf: nn.Module, z: Tensor) -> dict[str, Tensor]:
    """Averages over the map of what enters csf and leaves its blocks, and f."""
    found: dict[str, list[Tensor]] = {name: [] for name in DEPTHS}
    with torch.no_grad():
        for part in z.split(500):
            h = unpack(part)
            found["z"].append(h.mean((2, 3)))
            for name, block in zip(DEPTHS[1:], csf.children(), strict=True):
                h = block(h)
                found[name].append(h.mean((2, 3)) if h.dim() == 4 else h)
    return {name: torch.cat(parts) for name, parts in found.items()}


def joined(parts: dict[str, Tensor], depths: Sequence[str], unit: bool) -> Tensor:
    """Some depths beside each other, each of unit length or as it comes."""
    return torch.cat([F.normalize(parts[name]) if unit else parts[name] for name in depths], 1)


def reading(depths: Sequence[str], parts: dict[str, Tensor]) -> SplitClassifier:
    """A stand-in for the network, with as many features as these depths have."""
    width = sum(parts[name].shape[1] for name in depths)
    return SplitClassifier(nn.Identity(), nn.Identity(), linear_head(width, 0))


def without(images: Images, used: Images) -> Images:
    """The images that are not among some others."""
    return images.select((~torch.isin(images.ids, used.ids)).nonzero().view(-1))


def together(a: Scores, b: Scores, weight: float) -> Scores:
    """Standardised scores of two members, summed."""
    return [standardised(x) + weight * standardised(y) for x, y in zip(a, b, strict=True)]


def standardised(scores: Tensor) -> Tensor:
    return (scores - scores.mean(1, keepdim=True)) / scores.std(1, keepdim=True, correction=0)


if __name__ == "__main__":
    main()
