"""Do images without labels help TPC? Pseudo-labels in Phase II against leaving these images out.

    python benchmarks/pseudo_labels.py --data DIR --out runs/pseudo --choose    # the confidence: a minute
    python benchmarks/pseudo_labels.py --data DIR --out runs/pseudo             # the comparison: 4 minutes

CIFAR-100 with the pre-trained EfficientNet-Lite0 at 64 px, 10 classes and then 5 at a time, 60 images a class of
which a part is labelled, memory of 300, 4 epochs, rate .03, evaluated after experiences 1, 3 and 5. The confidence
is chosen on classes 0 to 29, order 0, a quarter labelled, by AMCA; the comparison is over classes 50 to 79, orders
0 to 2. Finished runs are not run again, and an interrupted one goes on. Prints a table of paired differences, in
points, with 95 % intervals by Student's t.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import torch

from triphase import TPC
from triphase.bench.benchmarks import find
from triphase.bench.report.intervals import t_interval
from triphase.bench.run.benchmark_stream import make_stream
from triphase.bench.run.options import RunOptions
from triphase.bench.run.results import Report
from triphase.bench.run.setup import prepare
from triphase.context import Context

STREAM, SHARES, ORDERS = find("cifar100:5/10-5"), (0.1, 0.25, 0.5), (0, 1, 2)
LONGER = "left out, 8 epochs"  # about as many steps of Phase II as with pseudo-labels
MEASURES = {"AMCA": "amca", "final": "final_accuracy"}
CONFIDENCES = (0.8, 0.95, 0.99)
BASE = RunOptions(learner="tpc", per_class=60, memory=300, epochs=4, lr=0.03, image_size=64, evaluate_every=2)


@cache
def true_labels(options: RunOptions, data: Path) -> dict[int, int]:
    """Id of each image -> its class in the stream."""
    experiences = make_stream(STREAM, options, data).experiences
    pairs = [zip(e.images.ids.tolist(), e.images.labels.tolist(), strict=True) for e in experiences]
    return {id_: label for pair in pairs for id_, label in pair}


def run(options: RunOptions, out: Path, data: Path) -> Report:
    """One run; beside it, how many pseudo-labels each experience had and how many were right."""
    setup = prepare(STREAM, options, data, Context(latents_folder=out / "latents"))
    own = "".join(f"-{name}={value}" for name, value in options.own.items())
    own += "" if options.epochs == BASE.epochs else f"-epochs{options.epochs}"
    place = out / f"classes{options.classes}-labelled{options.labelled}-order{options.order}{own}"
    truth = true_labels(replace(options, labelled=None, learner_options=()), data)
    counted: dict[int, dict[str, int]] = {}

    def on_event(event: dict[str, Any]) -> None:
        learner = setup.learner
        assert isinstance(learner, TPC)
        if event["event"] == "epoch" and event["phase"] == "II" and learner.pseudo_labels is not None:
            images, guessed = setup.stream.experiences[event["experience"] - 1].unlabelled, learner.pseudo_labels
            true = torch.tensor([truth[id_] for id_ in images.ids.tolist()])
            used, right = int((guessed >= 0).sum()), int((guessed == true).sum())
            counted[event["experience"]] = {"unlabelled": len(images), "used": used, "right": right}
            (place / "pseudo_labels.json").write_text(json.dumps(counted))

    return setup.run(place, on_event=on_event, save_every=30.0)


def quality(out: Path, pattern: str) -> str:
    """The share of unlabelled images that got a pseudo-label, and of pseudo-labels that were right."""
    rows = [row for path in out.glob(pattern) for row in json.loads(path.read_text()).values()]
    unlabelled, used, right = (sum(row[name] for row in rows) for name in ("unlabelled", "used", "right"))
    return f"{100 * used / max(1, unlabelled):.0f} % used, {100 * right / max(1, used):.0f} % right"


def choose(out: Path, data: Path) -> None:
    """Try each confidence where nothing is compared."""
    base = replace(BASE, classes="0-29", labelled=0.25)
    report = run(base, out, data)
    print(f"left out: AMCA {100 * report.amca:.2f}, final {100 * report.final_accuracy:.2f}", flush=True)
    for confidence in CONFIDENCES:
        own = (("unlabelled", "pseudo"), ("confidence", confidence))
        report = run(replace(base, learner_options=own), out, data)
        said = quality(out, f"classes0-29-*confidence={confidence}/pseudo_labels.json")
        accuracy = f"AMCA {100 * report.amca:.2f}, final {100 * report.final_accuracy:.2f}"
        print(f"confidence {confidence}: {accuracy}, {said}", flush=True)


def compare(out: Path, data: Path) -> None:
    """Run what is left, order by order, then print the table."""
    found: dict[tuple[str, float, int], Report] = {}
    for order, share, arm in product(ORDERS, SHARES, ("left out", "pseudo-labels", LONGER)):
        own = (("unlabelled", "pseudo"),) if arm == "pseudo-labels" else ()
        base = replace(BASE, classes="50-79", labelled=share, order=order, learner_options=own)
        found[arm, share, order] = run(replace(base, epochs=8) if arm == LONGER else base, out, data)
    print(f"| labelled | | left out | {LONGER} | pseudo-labels | gain | gain over {LONGER} | pseudo-labels |")
    print("|---|---|---|---|---|---|---|---|")
    for share, (name, measure) in product(SHARES, MEASURES.items()):
        said = quality(out, f"classes50-79-labelled{share}-*/pseudo_labels.json")
        without, longer, using = (
            values(found, arm, share, measure) for arm in ("left out", LONGER, "pseudo-labels")
        )
        means = " | ".join(f"{float(each.mean()):.2f}" for each in (without, longer, using))
        gains = f"{with_interval(using - without)} | {with_interval(using - longer)}"
        print(f"| {share:.0%} | {name} | {means} | {gains} | {said} |")


def values(found: dict[tuple[str, float, int], Report], arm: str, share: float, measure: str) -> torch.Tensor:
    """One number for each class order, in percent."""
    return torch.tensor([100 * getattr(found[arm, share, order], measure) for order in ORDERS])


def with_interval(differences: torch.Tensor) -> str:
    """The mean difference and its 95 % interval over class orders."""
    low, high = t_interval(differences) or (float("nan"), float("nan"))
    return f"{float(differences.mean()):+.2f} ({low:+.2f} to {high:+.2f})"


def main() -> None:
    """Choose, or compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="directory that holds cifar-100-binary/")
    parser.add_argument("--out", type=Path, required=True, help="folder of the runs")
    parser.add_argument("--choose", action="store_true", help="choose the confidence on other classes")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    (choose if arguments.choose else compare)(arguments.out, arguments.data)


if __name__ == "__main__":
    main()
