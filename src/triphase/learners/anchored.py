"""Anchored TPC: TPC and a closed form together, the learner that `teach` uses.

Two members score every image. TPC adapts csf and head to what arrives, and forgets a little. Streaming linear
discriminant analysis on the network as it was before the first experience keeps what it has counted, and does not
adapt; it reads csf at every depth, because the last features of a pre-trained network are made for other classes.
The members' scores, each standardised over the classes seen, are summed. With few classes, an image's own scores
give no reliable standard deviation, so all images share one. Both members share llf; the second costs one more pass
through csf. benchmarks/results/recipe.md has the measurements that chose each part.

With adapted="discriminant", what TPC's csf has learned is read by discriminant analysis of the samples in memory
instead of TPC's head: it uses every depth, and needs no step of gradient descent to fit a csf that moved.
"""

from __future__ import annotations

import copy
from typing import Any, Literal

import torch
from torch import Tensor

from triphase.context import Context
from triphase.data.feature_cache import encode, features, latents, unpack
from triphase.data.images import Images
from triphase.data.memory import HELD_OUT, Memory
from triphase.data.recipe import Recipe
from triphase.data.streams import Experience
from triphase.learners.checks import check_choices
from triphase.learners.consolidation import train_on_memory
from triphase.learners.frozen import latent_features
from triphase.learners.protocol import Tick, ignore
from triphase.learners.slda import SLDA
from triphase.learners.slda_depths import SHRINKAGE
from triphase.learners.tpc import TPC
from triphase.learners.training import mask_unseen, set_trainable
from triphase.maths.bias import class_rows
from triphase.maths.sampling import evenly_spaced
from triphase.models import DepthFeatures, SplitClassifier, linear_head, placed
from triphase.models.inference import Ensemble, Member
from triphase.models.split import drop_row
from triphase.scoring import standardize

CLOSED_FORM_WEIGHT = {"head": 7.0, "discriminant": 1.0}  # of the closed form's scores beside TPC's
MAX_SOLVED = 4096  # samples in memory that the discriminant of the adapted csf is estimated from
MAX_CROPPED = 256  # of these, by which it is measured what a crop changes
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
        adapted: Literal["head", "discriminant"] = "head",  # what reads TPC's csf
        unlabelled: Literal["ignore", "pseudo"] = "ignore",  # what TPC does with unlabelled images
        confidence: float = 0.8,
        context: Context | None = None,
    ) -> None:
        check_choices(Anchored, {"adapted": adapted, "unlabelled": unlabelled})
        self.context = Context() if context is None else context
        self.model, self.memory, self.pretrained = placed(model, self.context), memory, pretrained
        options: dict[str, Any] = {"t": t, "s": s, "w_bc": w_bc, "unlabelled": unlabelled, "confidence": confidence}
        self.tpc = TPC(model, memory, **options, seed=seed, pretrained=pretrained, context=self.context)
        max_width = 2 * model.n_features
        self.depths = DepthFeatures(copy.deepcopy(model.csf), max_width=max_width)
        head = linear_head(max_width, model.n_classes).to(model.device)  # unused: SLDA scores features by itself
        self.frozen_model = SplitClassifier(model.llf, self.depths, head)  # its csf never learns after E_1
        set_trainable(self.frozen_model, llf=False, csf=False)
        crops = adapted == "discriminant"
        self.closed_form = SLDA(
            self.frozen_model, seed=seed, shrinkage=SHRINKAGE, crops=crops, context=self.context
        )
        self.quick_experience = 0  # index of the experience that the closed form has learned and TPC has not
        self.score_stds: tuple[float, float] | None = None  # of TPC's and the closed form's scores
        self.settings = {**self.tpc.settings, "learner": "anchored"}
        self.adapted, self.constant_weight = adapted, CLOSED_FORM_WEIGHT[adapted]
        self.weight = self.constant_weight
        self.solved: tuple[Tensor, Tensor] | None = None  # W and b of the discriminant over the adapted csf
        self.solved_with_held_out: tuple[Tensor, Tensor] | None = None  # the same, of held-out samples too
        self.settings |= {"weight": self.weight, "shrinkage": SHRINKAGE}
        self.settings |= {} if adapted == "head" else {"adapted": adapted}

    @property
    def known(self) -> set[int]:
        """The classes seen so far."""
        return self.closed_form.known if self.quick_experience else self.tpc.known

    @property
    def unlabelled(self) -> Literal["ignore", "pseudo"]:
        """What TPC does with unlabelled images; the closed form never counts them."""
        return self.tpc.unlabelled

    @unlabelled.setter
    def unlabelled(self, use: Literal["ignore", "pseudo"]) -> None:
        self.tpc.unlabelled = use

    @property
    def n_pseudo_labelled(self) -> int:
        """How many unlabelled images of the last experience TPC was sure of."""
        return self.tpc.n_pseudo_labelled

    def learn(self, experience: Experience, recipe: Recipe, tick: Tick = ignore) -> None:
        """TPC's three phases, then one pass for the closed form."""
        if not self.known and not self.pretrained:
            self.tpc.learn(experience, recipe, tick)
            self.depths.csf.load_state_dict(self.model.csf.state_dict())
            self.learn_quick(experience, recipe)
            self.solve_adapted()
            self._fit_score_stds_if_needed(experience.training)
        else:
            with self.context.reuse_latents():  # both members see the same latents
                self.tpc.learn(experience, recipe, tick)
                self.learn_quick(experience, recipe)
                self.solve_adapted()
                self._fit_score_stds_if_needed(experience.training)
        self.quick_experience = 0

    def consolidate(self, recipe: Recipe, tick: Tick = ignore) -> None:
        """Train csf again on the samples in memory, from the network that the closed form reads."""
        train_on_memory(self.tpc, self.depths.csf, recipe, tick)
        self.solve_adapted()

    @torch.no_grad()
    def solve_adapted(self) -> None:
        """Estimate the discriminant over TPC's csf; TPC's head answers where a class has no sample in memory."""
        memory, self.solved, self.solved_with_held_out = self.memory, None, None
        if self.adapted == "head" or memory is None or not self.tpc.known:
            return
        slots = _balanced(memory, MAX_SOLVED)
        if set(memory["y"][slots].tolist()) != self.tpc.known:
            return
        discriminant = SLDA(self._adapted_model(), shrinkage=SHRINKAGE, crops=True, context=self.context)
        z = self._stored_latents(memory, slots)
        f = features(discriminant.feature_model, z.unsqueeze(1), self.context)[:, 0]
        discriminant.add(f, memory["y"][slots])
        sample = evenly_spaced(len(slots), MAX_CROPPED)
        discriminant.count_crops(z[sample], f[sample], len(slots) / len(sample))
        self.solved = self.solved_with_held_out = discriminant.solution[1:]
        held_out = memory.slots(HELD_OUT)
        if len(held_out):
            z = self._stored_latents(memory, held_out)
            f = features(discriminant.feature_model, z.unsqueeze(1), self.context)[:, 0]
            discriminant.add(f, memory["y"][held_out])
            self.solved_with_held_out = discriminant.solution[1:]

    def _stored_latents(self, memory: Memory, slots: Tensor) -> Tensor:
        """(n, ...): packed latents of samples of the memory."""
        if memory.store == "latent":
            return memory["z"][slots]
        return encode(self.model, len(slots), memory["x"][slots].__getitem__, context=self.context)[:, 0]

    def _adapted_model(self) -> SplitClassifier:
        """TPC's network, read at every depth."""
        depths = DepthFeatures(self.model.csf, max_width=self.depths.max_width)
        head = linear_head(depths.max_width, 0).to(self.model.device)
        return SplitClassifier(self.model.llf, depths, head).eval()

    def learn_quick(self, experience: Experience, recipe: Recipe) -> None:
        """The closed form's part, in seconds; it answers alone until `learn` has done the rest."""
        if self.quick_experience != experience.index:
            self.closed_form.learn(experience, recipe)
            self.quick_experience = experience.index

    def check_recipe(self, recipe: Recipe) -> None:
        """Refuse what TPC refuses."""
        self.tpc.check_recipe(recipe)

    def diagnostics(self) -> dict[str, float]:
        """The diagnostics of TPC."""
        return self.tpc.diagnostics()

    def logits(self, z: Tensor) -> Tensor:
        """The sum of both members' standardised scores."""
        closed = self.closed_form.logits(z)
        if self.quick_experience:
            return closed
        tpc_std, closed_std = self._fixed_stds()
        closed = standardize_seen(closed, self.known, closed_std)
        return standardize_seen(self._adapted_logits(z), self.known, tpc_std) + self.weight * closed

    def inference(self, extra: tuple[Tensor, Tensor] | None = None) -> Ensemble:
        """Both members as they answer; the closed form alone after a quick lesson.

        With `extra`, the closed form also counts these features, and the discriminant also counts held-out samples.
        """
        closed = self.closed_form.inference(extra)
        if self.quick_experience:
            return closed
        solved = self.solved if extra is None else self.solved_with_held_out
        adapted = self.tpc.inference() if solved is None else self._solved_inference(*solved)
        return Ensemble([*adapted.members, *closed.members], (1.0, self.weight), self._fixed_stds())

    def _solved_inference(self, W: Tensor, b: Tensor) -> Ensemble:
        return Ensemble([Member(copy.deepcopy(self._adapted_model().csf), W.contiguous(), b.contiguous())])

    def _adapted_logits(self, z: Tensor) -> Tensor:
        """TPC's scores; those of the discriminant where it is solved."""
        if self.solved is None:
            return self.tpc.logits(z)
        W, b = self.solved
        scores = latent_features(self._adapted_model(), z, self.context) @ W.T + b
        unseen = scores.new_full((len(z), self.model.n_classes - len(W)), float("-inf"))
        return mask_unseen(torch.cat([scores, unseen], 1), self.known)

    def _fixed_stds(self) -> tuple[float | None, float | None]:
        """The standard deviations that few classes share; an image of many classes has its own."""
        few = len(self.known) < FEW_CLASSES
        return self.score_stds if few and self.score_stds else (None, None)

    def drop_class(self, label: int) -> None:
        """Forget a class; later labels move down by one. What csf learned from it stays in csf."""
        self.tpc.drop_class(label)
        self.closed_form.drop_class(label)
        self.solved = _drop_rows(self.solved, label)
        self.solved_with_held_out = _drop_rows(self.solved_with_held_out, label)

    def rescale(self, z: Tensor) -> None:
        """Fit the discriminant and the scales of the scores again, after samples were removed."""
        if self.tpc.known:
            self.solve_adapted()
            self.fit_score_stds(z)

    def fit_score_stds(self, z: Tensor) -> None:
        """Measure the mean standard deviation of each member's scores, over latents z."""
        seen = sorted(self.tpc.known)
        scores = (self._adapted_logits(z), self.closed_form.logits(z))
        stds = [member[:, seen].std(1, correction=0) for member in scores]
        self.score_stds = float(stds[0].mean()), float(stds[1].mean())

    def state_dict(self) -> dict[str, Any]:
        """Everything from which `learn` continues."""
        closed = self.closed_form.state_dict()
        own: dict[str, Any] = {f"closed_form_{name}": closed[name] for name in ("csf", "statistics")}
        own["closed_form"] = {"known": closed["known"], "score_stds": self.score_stds}
        own["closed_form"] |= {"quick_experience": self.quick_experience}
        if self.adapted == "discriminant":
            (W, b), (W_all, b_all) = self.solved or (None, None), self.solved_with_held_out or (None, None)
            own["adapted"] = {"weight": W, "bias": b, "weight_with_held_out": W_all, "bias_with_held_out": b_all}
            own["adapted"] |= {"closed_form_weight": self.weight}
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
        adapted = state.get("adapted", {})
        self.solved = _pair(adapted.get("weight"), adapted.get("bias"))
        self.solved_with_held_out = _pair(adapted.get("weight_with_held_out"), adapted.get("bias_with_held_out"))
        self.weight = adapted.get("closed_form_weight") or self.constant_weight

    def _fit_score_stds_if_needed(self, images: Images) -> None:
        """Measure on an experience where the stds are needed; otherwise `rescale` measures on stored samples."""
        if len(images) and (len(self.tpc.known) < FEW_CLASSES or self.memory is None):
            sample = images.select(evenly_spaced(len(images), N_SCALE_SAMPLES))
            self.fit_score_stds(unpack(latents(self.model, sample, context=self.context)))


def _drop_rows(solved: tuple[Tensor, Tensor] | None, label: int) -> tuple[Tensor, Tensor] | None:
    return None if solved is None else (drop_row(solved[0], label), drop_row(solved[1], label))


def _pair(W: Tensor | None, b: Tensor | None) -> tuple[Tensor, Tensor] | None:
    return None if W is None or b is None else (W, b)


def _balanced(memory: Memory, most: int) -> Tensor:
    """Slots to learn from, at most `most`, as evenly over the classes as they allow; the lowest keys first."""
    slots = memory.slots()
    y, order = memory["y"][slots], memory["key"][slots].argsort()
    per_class = max(1, most // max(1, len(y.unique())))
    kept = [order[y[order] == label][:per_class] for label in y.unique().tolist()]
    return slots[torch.cat(kept).sort().values] if kept else slots


def standardize_seen(logits: Tensor, seen: set[int], std: float | None = None) -> Tensor:
    """Mean 0 and standard deviation 1 over the classes seen, image by image; -inf stays for the others.

    With `std`, scores are divided by it in place of each image's own standard deviation.
    """
    columns = class_rows(seen, logits)
    return logits.index_copy(1, columns, standardize(logits[:, columns], std))
