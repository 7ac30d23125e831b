"""What else could be done with the member of the recipe that adapts, on images that the comparison does not use.

    python benchmarks/explore.py --data DIR >> benchmarks/results/explore.jsonl      # DIR holds cifar-100-binary/

The stream of benchmarks/recipe.py up to its 50th class: 21 experiences. TPC is changed in one thing at a time: the
rates of head and csf apart, s, flips, the mean of its weights over experiences, distillation of what it was before
or of the closed form. One JSON line for each: TPC alone, and beside SLDA of every depth.
"""

from __future__ import annotations

import argparse
import copy
import json
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from recipe import DEPTHS, WEIGHT, Bench, Scores, left_out, together
from torch import Tensor
from torch.nn import functional as F

from triphase import TPC, Anchored, Memory, Recipe
from triphase.data.latents import share, unpack
from triphase.learners.anchored import standardised
from triphase.models import build

EXPERIENCES = 21  # up to the 50th class
FIRST = Recipe(epochs=3, lr=0.03, n_mbe=128, augment="flip")  # as on stream 2 of the comparison
Change = dict[str, Any]
VARIANTS: dict[str, tuple[Change, Change]] = {  # of the recipe, and of TPC
    "as chosen": ({}, {}),
    "head .1, csf .03": ({"lr": 0.1, "csf_lr": 0.03}, {}),
    "head .01, csf .03": ({"lr": 0.01, "csf_lr": 0.03}, {}),
    "head .03, csf .01": ({"csf_lr": 0.01}, {}),
    "head .03, csf .1": ({"csf_lr": 0.1}, {}),
    "s .025": ({}, {"s": 0.025}),
    "s .1": ({}, {"s": 0.1}),
    "no flips": ({"augment": "none"}, {}),
    "weights averaged": ({}, {"averaged": 0.5}),
    "distilling itself": ({}, {"distill": 1.0}),
    "distilling the closed form": ({}, {"closed_form": 1.0}),
}


class FromClosedForm(TPC):
    """TPC that is drawn towards what the anchor, which has learned the experience already, says of each image."""

    weight = 1.0
    anchor: Callable[[Tensor], Tensor]

    def _distillation(self, z: Tensor, logits: Tensor) -> Tensor:
        with torch.no_grad():
            said = self.anchor(z)
        seen = torch.isfinite(said[0]).nonzero().view(-1)
        target = WEIGHT * standardised(said, set(seen.tolist()))[:, seen]
        ours = logits[:, seen].log_softmax(1)
        return self.weight * F.kl_div(ours, target.log_softmax(1), log_target=True, reduction="batchmean")


def learned(bench: Bench, recipe: Change, options: Change) -> Scores:
    """What a variant of TPC says at the points of the stream."""
    own = {name: options.pop(name, 0.0) for name in ("averaged", "closed_form")}
    model = build("efficientnet_lite0", bench.stream.n_seen[-1], image_size=96)
    learner = (FromClosedForm if own["closed_form"] else TPC)(model, Memory(1000), **options)
    helper = Anchored(copy.deepcopy(model), None)  # only its closed form learns
    if isinstance(learner, FromClosedForm):
        learner.weight, learner.anchor = own["closed_form"], helper.anchor.logits
    first = replace(FIRST, **recipe)
    mean: dict[str, Tensor] = {}
    scores = []
    for experience in bench.stream.experiences:
        now = first if experience.index == 1 else replace(first, n_mbe=43, n_mbr=213)
        if own["closed_form"]:
            helper.glance(experience, now)
        learner.learn(experience, now)
        state = {k: v.clone() for k, v in model.state_dict().items() if not k.startswith("llf.")}
        mean = {k: torch.lerp(mean[k], v, own["averaged"]) if _may(k, mean, v) else v for k, v in state.items()}
        if experience.index in bench.stream.evaluate_after:
            n = bench.stream.n_seen[experience.index - 1]
            z = bench.z_test[bench.stream.test.labels < n]
            if own["averaged"]:
                mean["head.weight"] = torch.cat([mean["head.weight"][:n], state["head.weight"][n:]])
                model.load_state_dict(mean, strict=False)
            scores.append(torch.cat([learner.logits(unpack(part)) for part in z.split(500)])[:, :n])
            model.load_state_dict(state, strict=False)
    return scores


def _may(name: str, mean: dict[str, Tensor], value: Tensor) -> bool:
    return name in mean and mean[name].shape == value.shape and value.is_floating_point()


def main() -> None:
    """Print one line for each variant."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="directory that holds cifar-100-binary/")
    parser.add_argument("--variants", default="", help="some of them, with semicolons; all if none is named")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        share(Path(folder))
        bench = Bench(left_out(arguments.data, EXPERIENCES))
        deep = bench.slda(DEPTHS)
        for name in arguments.variants.split(";") if arguments.variants else VARIANTS:
            recipe, options = VARIANTS[name]
            scores = learned(bench, recipe, dict(options))
            line: dict[str, Any] = {"variant": name}
            for who, said in (("TPC", scores), ("both", together(scores, deep, WEIGHT))):
                right = [float((s.argmax(1) == y).float().mean()) for s, y in zip(said, bench.answers, strict=True)]
                line[who] = {"amca": 100 * sum(right) / len(right), "final": 100 * right[-1]}
            print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
