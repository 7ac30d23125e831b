"""What each part of the recipe for practitioners is worth, on classes that its last tables do not use.

    python benchmarks/recipe.py --data DIR > benchmarks/results/recipe.md      # DIR holds cifar-100-binary/

Classes 0 to 49 of CIFAR-100 in 21 experiences (10 classes, then 2 at a time), from 100 training images a class that
the tables of the comparison leave out, tested on 50 more of those. Each member learns once; what they say is then
put together in different ways, so that rows differ in one thing only. Prints a table: AMCA over 5 points of the
stream and final accuracy, means over class orders.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import mean

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from triphase import SLDA, TPC, Images, Memory, RanPAC, Recipe, SplitClassifier
from triphase.data import sources
from triphase.data.latents import latents, share, unpack
from triphase.data.streams import Stream, class_incremental, per_class, seeded_order
from triphase.learners.anchored import WEIGHT
from triphase.learners.depths import SHRINKAGE, Depths
from triphase.models import build, linear_head

IN_TABLES, TRAIN, TEST, EVERY, MEMORY = 100, 100, 50, 5, 500
CLASSES, EXPERIENCES = 50, 21  # the other 50 are for the tables
DEPTHS = ("z", "block 1", "block 2", "block 3", "f")
Scores = list[Tensor]  # after each point of the stream: (test images of the classes so far, classes so far)


def main() -> None:
    parser = argparse.ArgumentParser(description="Ablation of the recipe for practitioners.")
    parser.add_argument("--data", type=Path, required=True, help="directory that holds cifar-100-binary/")
    parser.add_argument("--rates", default="0.03,0.1,0.01", help="of TPC; the first one where rows do not say")
    parser.add_argument("--orders", default="100,101,102", help="class orders, not those of the tables")
    arguments = parser.parse_args()
    rates = arguments.rates.split(",")
    found: dict[str, list[tuple[float, float]]] = {}
    for order in arguments.orders.split(","):
        with tempfile.TemporaryDirectory() as folder:
            share(Path(folder))
            bench = Bench(left_out(arguments.data, int(order)))
            for name, scores in combinations(bench, rates).items():
                found.setdefault(name, []).append(measured(bench, scores))
        print(f"order {order} done", file=sys.stderr)
    print(f"lr {rates[0]}, weight {WEIGHT:g}, shrinkage {SHRINKAGE:g} where a row does not say otherwise.\n")
    print("| | AMCA | final |\n|---|---|---|")
    for name, values in found.items():
        print(f"| {name} | " + " | ".join(f"{mean(column):.1f}" for column in zip(*values, strict=True)) + " |")


def combinations(bench: Bench, rates: Sequence[str]) -> dict[str, Scores]:
    """The rows of the table."""
    tpc = {rate: bench.tpc(float(rate)) for rate in rates}
    rate = rates[0]
    slda = {"f as it comes": bench.slda(("f",), unit=False), "f": bench.slda(("f",))}
    slda |= {"z and f": bench.slda(("z", "f")), "every depth": bench.slda(DEPTHS)}
    slda |= {"every depth as it comes": bench.slda(DEPTHS, unit=False)}
    deep, ranpac = slda["every depth"], bench.ranpac()
    rows = {f"TPC, lr {name}": scores for name, scores in tpc.items()}
    rows |= {"RanPAC": ranpac} | {f"SLDA of {name}": scores for name, scores in slda.items()}
    rows |= {"RanPAC + SLDA of every depth": together(ranpac, deep, WEIGHT)}
    rows |= {"TPC + RanPAC": together(tpc[rate], ranpac, WEIGHT)}
    rows |= {f"TPC + SLDA of {name}": together(tpc[rate], scores, WEIGHT) for name, scores in slda.items()}
    recipe = "TPC + SLDA of every depth"
    rows |= {f"{recipe}, lr {name}": together(tpc[name], deep, WEIGHT) for name in tpc if name != rate}
    rows |= {f"{recipe}, weight {w:g}": together(tpc[rate], deep, w) for w in (1.0, 1.5, 3.0)}
    for shrinkage in (0.05, 0.2, 0.3):
        other = bench.slda(DEPTHS, shrinkage=shrinkage)
        rows[f"{recipe}, shrinkage {shrinkage:g}"] = together(tpc[rate], other, WEIGHT)
    return rows


def measured(bench: Bench, scores: Scores) -> tuple[float, float]:
    """AMCA and final accuracy in percent."""
    right = [100 * float((s.argmax(1) == y).float().mean()) for s, y in zip(scores, bench.answers, strict=True)]
    return mean(right), right[-1]


def left_out(data: Path, order: int) -> Stream:
    """A stream of images, and of classes, that the comparison's last tables do not use: 10 classes, then 2."""
    train, _, names = sources.cifar100(data)
    left = without(train.resized(96), per_class(train, IN_TABLES))
    lessons = per_class(left, TRAIN)
    return class_incremental(
        lessons,
        per_class(without(left, lessons), TEST),
        names,
        first=10,
        then=2,
        order=[c for c in seeded_order(len(names), order) if c < CLASSES],
        n_experiences=EXPERIENCES,
        evaluate_after=range(1, EXPERIENCES + 1, EVERY),
    )


class Bench:
    """A stream whose latents are computed once, and what each member says at its points."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self.points = [(index, stream.n_seen[index - 1]) for index in stream.evaluate_after]
        self.answers = [stream.test.labels[stream.test.labels < n] for _, n in self.points]
        model = build("efficientnet_lite0", image_size=96).eval()
        self.z_test = latents(model, stream.test)
        self.parts = [at_depths(model.csf, latents(model, e.images)) for e in stream.experiences]
        self.test_parts = at_depths(model.csf, self.z_test)
        check = Depths(model.csf, widest=2 * model.n_features).eval()(unpack(self.z_test[:50]))
        assert torch.allclose(check, joined(self.test_parts, DEPTHS, unit=True)[:50], atol=1e-5), "not the recipe's"

    def closed(self, learner: SLDA | RanPAC, depths: Sequence[str], unit: bool) -> Scores:
        """What a closed form says that reads csf at some depths."""
        f_test, y_test, scores = joined(self.test_parts, depths, unit), self.stream.test.labels, []
        for experience, parts in zip(self.stream.experiences, self.parts, strict=True):
            learner.add(joined(parts, depths, unit), experience.images.labels)
            if experience.index in self.stream.evaluate_after:
                f = f_test[y_test < self.stream.n_seen[experience.index - 1]]
                if isinstance(learner, SLDA):
                    _, W, b = learner.solution
                    scores.append(f @ W.T + b)
                else:
                    scores.append(F.relu(f @ learner.P) @ learner.W.T)
        return [s[:, :n] for s, (_, n) in zip(scores, self.points, strict=True)]

    def slda(self, depths: Sequence[str], *, unit: bool = True, shrinkage: float = SHRINKAGE) -> Scores:
        """SLDA over some depths."""
        return self.closed(SLDA(reading(depths, self.test_parts), shrinkage=shrinkage), depths, unit)

    def ranpac(self) -> Scores:
        """RanPAC over f, as in the comparison."""
        return self.closed(RanPAC(reading(("f",), self.test_parts)), ("f",), unit=False)

    def tpc(self, lr: float) -> Scores:
        """TPC as on the stream of the comparison."""
        model = build("efficientnet_lite0", len(self.stream.names), image_size=96)
        learner = TPC(model, Memory(MEMORY))
        first = Recipe(epochs=3, lr=lr, n_mbe=128, augment="flip")
        rest = replace(first, n_mbe=43, n_mbr=213)
        scores = []
        for experience in self.stream.experiences:
            learner.learn(experience, first if experience.index == 1 else rest)
            if experience.index in self.stream.evaluate_after:
                n = self.stream.n_seen[experience.index - 1]
                z = self.z_test[self.stream.test.labels < n]
                scores.append(torch.cat([learner.logits(unpack(part)) for part in z.split(500)])[:, :n])
        return scores


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
