"""What else could be done with the member of the recipe that adapts, on classes that its last tables do not use.

    python benchmarks/explore.py --data DIR >> benchmarks/results/explore.jsonl      # DIR holds cifar-100-binary/

The stream of benchmarks/recipe.py. TPC is changed in one thing at a time: separate rates of head and csf, s,
flips, the mean of its weights over experiences, distillation of what it was before or of the closed form, Phase I
in closed form. One JSON line for each and each class order: TPC alone, and beside SLDA of every depth.
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
from recipe import DEPTHS, FIRST, Bench, Scores, amca_and_final, left_out, reading, together
from torch import Tensor
from torch.nn import functional as F

from triphase import SLDA, TPC, Anchored, Experience, Memory, Recipe
from triphase.data.batches import Batches
from triphase.learners.anchored import standardize_seen
from triphase.learners.protocol import Tick, ignore
from triphase.learners.teacher import copy_teacher
from triphase.maths import normalize_
from triphase.models import build

WEIGHT, SHRINKAGE = 2.0, 0.1  # of the closed form, as they were when this was tried
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
    "Phase I in closed form": ({}, {"phase_1": 1.0}),
}


class FromClosedForm(TPC):
    """TPC that is drawn towards what the anchor, which has learned the experience already, says of each image."""

    weight = 1.0
    anchor: Callable[[Tensor], Tensor]

    def _prepare(self, recipe: Recipe, seen: frozenset[int]) -> None:
        super()._prepare(recipe, seen)
        self.teacher = copy_teacher(self.model)  # distils in every experience, though from the closed form

    def _distillation(self, z: Tensor, logits: Tensor) -> Tensor:
        with torch.no_grad():
            said = self.anchor(z)
        seen = torch.isfinite(said[0]).nonzero().view(-1)
        target = WEIGHT * standardize_seen(said, set(seen.tolist()))[:, seen]
        ours = logits[:, seen].log_softmax(1)
        return self.weight * F.kl_div(ours, target.log_softmax(1), log_target=True, reduction="batchmean")


class ClosedPhaseI(TPC):
    """TPC whose new rows begin as discriminant analysis of the features as they are, in place of Phase I."""

    def learn(self, experience: Experience, recipe: Recipe, tick: Tick = ignore) -> None:
        novel = set(experience.classes) - self.known
        if self.known and novel:
            assert self.memory is not None
            batches = Batches(self.model, experience, self.memory, recipe, seed=self.seed)
            images, slots = experience.images, self.memory.slots()
            self.model.eval()
            with torch.no_grad():
                f = self.model.csf(
                    torch.cat([batches.image_latents(torch.arange(len(images))), batches.memory_latents(slots)])
                )
            lda = SLDA(reading(("f",), {"f": f}), shrinkage=SHRINKAGE)
            lda.add(f, torch.cat([images.labels, self.memory["y"][slots]]))
            _, W, _ = lda.solution
            rows = sorted(novel)
            self.model.head.weight.data[rows] = (W - W.mean(0))[rows]
            normalize_(self.model.head.weight, novel, self.s)
            self.known |= novel  # so that there is no Phase I
        super().learn(experience, recipe, tick)


def learned(bench: Bench, recipe: Change, options: Change) -> Scores:
    """What a variant of TPC says at the points of the stream."""
    own = {name: options.pop(name, 0.0) for name in ("averaged", "closed_form", "phase_1")}
    model = build("efficientnet_lite0", bench.stream.n_seen[-1], image_size=96)
    kind = FromClosedForm if own["closed_form"] else ClosedPhaseI if own["phase_1"] else TPC
    learner = kind(model, Memory(bench.shape.memory), context=bench.context(), **options)
    helper = Anchored(copy.deepcopy(model), None, context=bench.context())  # only its closed form learns
    if isinstance(learner, FromClosedForm):
        learner.weight, learner.anchor = own["closed_form"], helper.closed_form.logits
    mean: dict[str, Tensor] = {}
    scores: list[Any] = []
    for experience in bench.stream.experiences:
        now = replace(FIRST if experience.index == 1 else bench.shape.rest, **recipe)
        if own["closed_form"]:
            helper.learn_quick(experience, now)
        learner.learn(experience, now)
        state = {k: v.clone() for k, v in model.state_dict().items() if not k.startswith("llf.")}
        mean = {k: torch.lerp(mean[k], v, own["averaged"]) if _may(k, mean, v) else v for k, v in state.items()}
        if experience.index in bench.stream.evaluate_after:
            if own["averaged"]:
                n = bench.stream.n_seen[experience.index - 1]
                mean["head.weight"] = torch.cat([mean["head.weight"][:n], state["head.weight"][n:]])
                model.load_state_dict(mean, strict=False)
            scores.append(bench.says(learner, len(scores)))
            model.load_state_dict(state, strict=False)
    return scores


def _may(name: str, mean: dict[str, Tensor], value: Tensor) -> bool:
    return name in mean and mean[name].shape == value.shape and value.is_floating_point()


def main() -> None:
    """Print one line for each variant."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="directory that holds cifar-100-binary/")
    parser.add_argument("--variants", default="", help="some of them, with semicolons; all if none is named")
    parser.add_argument("--orders", default="100,101,102", help="class orders, not those of the tables")
    arguments = parser.parse_args()
    for order in map(int, arguments.orders.split(",")):
        with tempfile.TemporaryDirectory() as folder:
            bench = Bench(left_out(arguments.data, order), Path(folder))
            deep = bench.slda(DEPTHS, shrinkage=SHRINKAGE)
            for name in arguments.variants.split(";") if arguments.variants else VARIANTS:
                recipe, options = VARIANTS[name]
                scores = learned(bench, recipe, dict(options))
                line: dict[str, Any] = {"variant": name, "order": order}
                for who, said in (("TPC", scores), ("both", together(scores, deep, WEIGHT))):
                    line[who] = dict(zip(("amca", "final"), amca_and_final(said, bench.answers), strict=True))
                print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
