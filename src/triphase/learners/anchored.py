"""TPC anchored in a closed form: the recipe for practitioners.

Two members look at every image. TPC adapts csf and head to what arrives, and forgets a little. Streaming linear
discriminant analysis on the network as it was before anything was taught keeps what it has counted, and does not
adapt; it reads csf at every depth, because the last features of a pre-trained network are made for other classes.
Their scores, each standardised over the classes seen, are summed; where there are few classes, whose scores say
little about their own spread, all images share one. Both members share llf; the second costs one more pass through
csf. benchmarks/results/recipe.md has the measurements that chose each part.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor

from triphase.context import Context
from triphase.data.feature_cache import latents, unpack
from triphase.data.images import Images
from triphase.data.memory import Memory
from triphase.data.recipe import Recipe
from triphase.data.streams import Experience
from triphase.learners.protocol import Tick, ignore, learn_blocks
from triphase.learners.slda import SLDA
from triphase.learners.slda_depths import SHRINKAGE, Depths
from triphase.learners.tpc import TPC
from triphase.maths.bias import class_rows
from triphase.models import SplitClassifier, linear_head

WEIGHT = 7.0  # of SLDA's scores beside TPC's
FEW = 10  # classes: below, each image's own scores are too few to be standardised by (of two, only the sign stays)
SAMPLES = 64  # of a lesson, by which the spread of scores is measured


class Anchored:
    """TPC, and SLDA on the initial network; from scratch, on the network after the first experience."""

    def __init__(
        self,
        model: SplitClassifier,
        memory: Memory | None,
        *,
        seed: int = 0,
        pretrained: bool = True,  # False: llf learns in the first experience
        t: float = 0.5,
        s: float = 0.05,
        w_bc: float = 5.0,
        context: Context | None = None,
    ) -> None:
        self.context = Context() if context is None else context
        self.model, self.memory, self.pretrained = model, memory, pretrained
        self.tpc = TPC(model, memory, t=t, s=s, w_bc=w_bc, seed=seed, pretrained=pretrained, context=self.context)
        self.depths = Depths(copy.deepcopy(model.csf), widest=2 * model.n_features)
        head = linear_head(model.n_features, model.n_classes).to(model.device)  # of no use: SLDA has its own
        self.still = SplitClassifier(model.llf, self.depths, head)  # never learns after E_1
        learn_blocks(self.still, llf=False, csf=False)
        self.anchor = SLDA(self.still, seed=seed, shrinkage=SHRINKAGE, context=self.context)
        self.glanced = 0  # index of the experience that the anchor has learned and TPC has not
        self.spreads: tuple[float, float] | None = None  # of TPC's and of the anchor's scores, in the last lesson
        self.settings = {**self.tpc.settings, "learner": "anchored", "weight": WEIGHT, "shrinkage": SHRINKAGE}

    @property
    def known(self) -> set[int]:
        """The classes seen so far."""
        return self.anchor.known if self.glanced else self.tpc.known

    def learn(self, experience: Experience, recipe: Recipe, tick: Tick = ignore) -> None:
        """TPC's three phases, then one pass for the anchor."""
        if not self.known and not self.pretrained:
            self.tpc.learn(experience, recipe, tick)
            self.depths.csf.load_state_dict(self.model.csf.state_dict())
            self.glance(experience, recipe)
            self._measure(experience.training)
        else:
            with self.context.reuse_latents():  # both members see the same latents
                self.tpc.learn(experience, recipe, tick)
                self.glance(experience, recipe)
                self._measure(experience.training)
        self.glanced = 0

    def glance(self, experience: Experience, recipe: Recipe) -> None:
        """The anchor's part alone, in seconds; it answers alone until `learn` has done the rest."""
        if self.glanced != experience.index:
            self.anchor.learn(experience, recipe)
            self.glanced = experience.index

    def logits(self, z: Tensor, f: Tensor | None = None) -> Tensor:
        """The sum of both members' standardised scores; f are the features of `still`, where they are known."""
        if self.glanced:
            return self.anchor.logits(z, f)
        ours, theirs = self.spreads if self.spreads and len(self.known) < FEW else (None, None)
        anchor = standardised(self.anchor.logits(z, f), self.known, theirs)
        return standardised(self.tpc.logits(z), self.known, ours) + WEIGHT * anchor

    def state_dict(self) -> dict[str, Any]:
        """Everything from which `learn` continues."""
        anchor = self.anchor.state_dict()
        own = {f"anchor_{name}": anchor[name] for name in ("csf", "statistics")}
        own["ahead"] = {"glanced": self.glanced, "known": sorted(self.anchor.known), "spreads": self.spreads}
        return {**self.tpc.state_dict(), **own, "settings": self.settings}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a saved state."""
        self.tpc.load_state_dict(state)
        now = self.anchor.state_dict()
        saved = {name: state.get(f"anchor_{name}", part) for name, part in now.items()}
        head = {"weight": now["head"]["weight"].new_zeros(self.model.n_classes, self.model.n_features)}
        known = state["ahead"]["known"]
        self.anchor.load_state_dict(saved | {"llf": state["llf"], "head": head, "known": known})
        self.glanced = state["ahead"]["glanced"]
        spreads = state["ahead"].get("spreads")  # older states have none
        self.spreads = tuple(spreads) if spreads else None

    def _measure(self, images: Images) -> None:
        """Measure on a lesson, where that is asked for; a model that is cut down measures on what it has stored."""
        if len(images) and (len(self.tpc.known) < FEW or self.memory is None):
            self.measure(latents(self.model, images.select(some(len(images))), context=self.context))

    def measure(self, z: Tensor) -> None:
        """How far the members' scores lie apart, by some packed latents."""
        z = unpack(z)
        seen = sorted(self.tpc.known)
        ours, theirs = (member.logits(z)[:, seen].std(1, correction=0) for member in (self.tpc, self.anchor))
        self.spreads = float(ours.mean()), float(theirs.mean())


def some(n: int) -> Tensor:
    """As many of n rows as are measured, evenly spread."""
    return torch.linspace(0, n - 1, min(SAMPLES, n)).long()


def standardised(logits: Tensor, seen: set[int], spread: float | None = None) -> Tensor:
    """Mean 0 and standard deviation 1 over the classes seen, image by image; -inf stays for the others.

    With a `spread`, scores are divided by that one in place of each image's own.
    """
    columns = class_rows(seen, logits)
    scores = logits[:, columns]
    centred = scores - scores.mean(1, keepdim=True)
    own = centred.std(1, keepdim=True, correction=0)
    divisor = (own if spread is None else torch.full_like(own, spread)).clamp(min=1e-12)
    return logits.index_copy(1, columns, centred / divisor)
