"""TPC and a closed form together: the recipe for practitioners.

Two members score every image. TPC adapts csf and head to what arrives, and forgets a little. Streaming linear
discriminant analysis on the network as it was before the first experience keeps what it has counted, and does not
adapt; it reads csf at every depth, because the last features of a pre-trained network are made for other classes.
The members' scores, each standardised over the classes seen, are summed. With few classes, an image's own scores
give no reliable standard deviation, so all images share one. Both members share llf; the second costs one more pass
through csf. benchmarks/results/recipe.md has the measurements that chose each part.
"""

from __future__ import annotations

import copy
from typing import Any

from torch import Tensor

from triphase.context import Context
from triphase.data.feature_cache import latents, unpack
from triphase.data.images import Images
from triphase.data.memory import Memory
from triphase.data.recipe import Recipe
from triphase.data.streams import Experience
from triphase.learners.protocol import Tick, ignore
from triphase.learners.slda import SLDA
from triphase.learners.slda_depths import SHRINKAGE
from triphase.learners.tpc import TPC
from triphase.learners.training import set_trainable
from triphase.maths.bias import class_rows
from triphase.maths.sampling import evenly_spaced
from triphase.models import DepthFeatures, SplitClassifier, linear_head
from triphase.models.inference import Ensemble, standardize

CLOSED_FORM_WEIGHT = 7.0  # of the closed form's scores beside TPC's
FEW_CLASSES = 10  # below, an image's own scores are too few for a standard deviation (of two, only the sign stays)
N_SCALE_SAMPLES = 64  # images by which the standard deviation of the scores is measured


class Anchored:
    """TPC, and SLDA on the initial network; from scratch, on the network after the first experience.

    As TPC, it refuses a head with bias and a recipe that trains llf.
    """

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
        max_width = 2 * model.n_features
        self.depths = DepthFeatures(copy.deepcopy(model.csf), max_width=max_width)
        head = linear_head(max_width, model.n_classes).to(model.device)  # unused: SLDA scores features by itself
        self.frozen_model = SplitClassifier(model.llf, self.depths, head)  # its csf never learns after E_1
        set_trainable(self.frozen_model, llf=False, csf=False)
        self.closed_form = SLDA(self.frozen_model, seed=seed, shrinkage=SHRINKAGE, context=self.context)
        self.quick_experience = 0  # index of the experience that the closed form has learned and TPC has not
        self.score_stds: tuple[float, float] | None = None  # of TPC's and the closed form's scores
        self.settings = {**self.tpc.settings, "learner": "anchored"}
        self.settings |= {"weight": CLOSED_FORM_WEIGHT, "shrinkage": SHRINKAGE}

    @property
    def known(self) -> set[int]:
        """The classes seen so far."""
        return self.closed_form.known if self.quick_experience else self.tpc.known

    def learn(self, experience: Experience, recipe: Recipe, tick: Tick = ignore) -> None:
        """TPC's three phases, then one pass for the closed form."""
        if not self.known and not self.pretrained:
            self.tpc.learn(experience, recipe, tick)
            self.depths.csf.load_state_dict(self.model.csf.state_dict())
            self.learn_quick(experience, recipe)
            self._fit_score_stds(experience.training)
        else:
            with self.context.reuse_latents():  # both members see the same latents
                self.tpc.learn(experience, recipe, tick)
                self.learn_quick(experience, recipe)
                self._fit_score_stds(experience.training)
        self.quick_experience = 0

    def learn_quick(self, experience: Experience, recipe: Recipe) -> None:
        """The closed form's part, in seconds; it answers alone until `learn` has done the rest."""
        if self.quick_experience != experience.index:
            self.closed_form.learn(experience, recipe)
            self.quick_experience = experience.index

    def check_recipe(self, recipe: Recipe) -> None:
        """Refuse what TPC refuses."""
        self.tpc.check_recipe(recipe)

    def diagnostics(self) -> dict[str, float]:
        """TPC's."""
        return self.tpc.diagnostics()

    def logits(self, z: Tensor) -> Tensor:
        """The sum of both members' standardised scores."""
        closed = self.closed_form.logits(z)
        if self.quick_experience:
            return closed
        tpc_std, closed_std = self._fixed_stds()
        closed = standardize_seen(closed, self.known, closed_std)
        return standardize_seen(self.tpc.logits(z), self.known, tpc_std) + CLOSED_FORM_WEIGHT * closed

    def inference(self) -> Ensemble:
        """Both members as they answer; the closed form alone after a quick lesson."""
        closed = self.closed_form.inference()
        if self.quick_experience:
            return closed
        members = [*self.tpc.inference().members, *closed.members]
        return Ensemble(members, (1.0, CLOSED_FORM_WEIGHT), self._fixed_stds())

    def _fixed_stds(self) -> tuple[float | None, float | None]:
        """The standard deviations that few classes share; an image of many classes has its own."""
        few = len(self.known) < FEW_CLASSES
        return self.score_stds if few and self.score_stds else (None, None)

    def drop_class(self, label: int) -> None:
        """Forget a class; later labels move down by one. What csf learned from it stays in csf."""
        self.tpc.drop_class(label)
        self.closed_form.drop_class(label)

    def rescale(self, z: Tensor) -> None:
        """Measure the standard deviation of the scores anew: it is another one when classes are gone."""
        if self.tpc.known:
            self.fit_score_stds(z)

    def fit_score_stds(self, z: Tensor) -> None:
        """Measure the mean standard deviation of each member's scores, over latents z."""
        seen = sorted(self.tpc.known)
        stds = [member.logits(z)[:, seen].std(1, correction=0) for member in (self.tpc, self.closed_form)]
        self.score_stds = float(stds[0].mean()), float(stds[1].mean())

    def state_dict(self) -> dict[str, Any]:
        """Everything from which `learn` continues."""
        closed = self.closed_form.state_dict()
        own: dict[str, Any] = {f"closed_form_{name}": closed[name] for name in ("csf", "statistics")}
        own["closed_form"] = {"known": closed["known"], "score_stds": self.score_stds}
        own["closed_form"] |= {"quick_experience": self.quick_experience}
        return {**self.tpc.state_dict(), **own, "settings": self.settings}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a saved state."""
        self.tpc.load_state_dict(state)
        now = self.closed_form.state_dict()
        saved = {name: state.get(f"closed_form_{name}", part) for name, part in now.items()}
        head = {"weight": now["head"]["weight"].new_zeros(self.model.n_classes, self.frozen_model.n_features)}
        own = state["closed_form"]
        self.closed_form.load_state_dict(saved | {"llf": state["llf"], "head": head, "known": own["known"]})
        self.quick_experience = own["quick_experience"]
        self.score_stds = tuple(own["score_stds"]) if own["score_stds"] else None

    def _fit_score_stds(self, images: Images) -> None:
        """Measure on an experience where the stds are needed; otherwise `rescale` measures on stored samples."""
        if len(images) and (len(self.tpc.known) < FEW_CLASSES or self.memory is None):
            sample = images.select(evenly_spaced(len(images), N_SCALE_SAMPLES))
            self.fit_score_stds(unpack(latents(self.model, sample, context=self.context)))


def standardize_seen(logits: Tensor, seen: set[int], std: float | None = None) -> Tensor:
    """Mean 0 and standard deviation 1 over the classes seen, image by image; -inf stays for the others.

    With `std`, scores are divided by it in place of each image's own standard deviation.
    """
    columns = class_rows(seen, logits)
    return logits.index_copy(1, columns, standardize(logits[:, columns], std))
