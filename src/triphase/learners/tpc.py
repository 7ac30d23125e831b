"""Three-Phase Consolidation: Algorithm 1 of the paper, phase by phase.

Maltoni and Pellegrini, "Continual Learning by Three-Phase Consolidation", Sec. IV. Equation numbers are the printed
ones. docs/deviations.md explains every option that the paper does not name.
"""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Callable
from typing import Any, Literal

from torch import Tensor, nn
from torch.nn import functional as F

from triphase.context import Context
from triphase.data.batches import Batches, Depth, Minibatch
from triphase.data.memory import Memory
from triphase.data.recipe import Recipe
from triphase.data.streams import Experience
from triphase.errors import InvalidValue, TriphaseWarning
from triphase.learners.checks import check_choices, refuse_head_bias, refuse_in_several_processes
from triphase.learners.protocol import ClosedForm, Tick, ignore
from triphase.learners.pseudo_labels import check_confidence, pseudo_labels
from triphase.learners.sgd import SGD
from triphase.learners.teacher import copy_teacher, distillation, load_teacher
from triphase.learners.training import (
    TrainingLoop,
    drop_label,
    learner_state,
    load_learner_state,
    predict,
    set_trainable,
    sgd_step,
    zero_unknown_rows_,
)
from triphase.maths import bias_correction_loss, block_gradient, normalize_, outside, stable_lr
from triphase.maths.bias import check_std, class_rows
from triphase.maths.masking import check_tolerance, gradient_masks
from triphase.models import SplitClassifier, placed
from triphase.models.inference import Ensemble, Member

SGDStep = Callable[[SGD, Tensor, Minibatch, Tensor], Tensor]  # optimizer, cross-entropy, mb, logits -> whole loss


class TPC:
    """Learns each experience in three phases; without memory, only the head learns after the first one.

    Phase I bootstraps the novel classes with everything else protected, Phase II updates all classes under online
    bias correction and gradient masking, Phase III consolidates on the class-balanced memory.

    >>> from triphase.models import linear_head
    >>> model = SplitClassifier(nn.Identity(), nn.Flatten(), linear_head(64, 2))
    >>> TPC(model, Memory(20, seed=0), t=0.5, s=0.05, w_bc=5.0, seed=0).epochs(35, novel=True)
    (4, 27, 4)
    """

    closed_form: ClosedForm | None = None

    def __init__(
        self,
        model: SplitClassifier,
        memory: Memory | None,
        *,
        t: float = 0.5,  # tolerance: a wrong class below t times the true one is left alone (Sec. IV-B)
        s: float = 0.05,  # standard deviation of every head row (Eq. 9)
        w_bc: float = 5.0,  # weight of L_BC (Eq. 11)
        seed: int = 0,
        pretrained: bool = True,  # False: llf learns in the first experience
        share_1: float = 0.1,  # of the epochs that are Phase I
        share_3: float = 0.1,  # of the epochs that are Phase III; 0 leaves the phase out
        bc: Literal["loss", "explicit", "loss_only", "final_only", "none"] = "loss",
        bc_scope: Literal["seen", "all"] = "seen",
        eps: float = 1e-4,
        w_bc_scale: Literal["fixed", "n"] = "fixed",
        masking: Literal["tpc", "none", "single", "group"] = "tpc",
        empty_phase1: Literal["skip", "to_phase2"] = "skip",
        reset_momentum: Literal["phase", "experience", "never"] = "phase",
        predict_over: Literal["seen", "all"] = "seen",
        distill: float = 0.0,  # weight of naive distillation (a footnote of the paper's Sec. VI)
        unlabelled: Literal["ignore", "pseudo"] = "ignore",  # pseudo: they enter Phase II with pseudo-labels
        confidence: float = 0.8,  # probability from which a pseudo-label is used
        context: Context | None = None,
    ) -> None:
        settings = {k: v for k, v in locals().items() if k not in ("self", "model", "memory", "context")}
        check_tolerance(t)
        check_std(s)
        check_confidence(confidence)
        check_choices(TPC, settings)
        refuse_head_bias(model, "TPC")
        for name in ("w_bc", "share_1", "share_3", "distill"):
            if settings[name] < 0:
                raise InvalidValue(f"{name} must not be negative, got {settings[name]}.")
        if not eps > 0:
            raise InvalidValue(f"eps must be above 0, for the logarithm of rows that are zero, got {eps}.")
        self.context = Context() if context is None else context
        refuse_in_several_processes(self.context, settings, masking="group")
        self.model, self.memory, self.seed = placed(model, self.context), memory, seed
        self.t, self.s, self.w_bc, self.eps = t, s, w_bc, eps
        self.bc, self.bc_scope, self.w_bc_scale, self.masking = bc, bc_scope, w_bc_scale, masking
        self.share_1, self.share_3, self.empty_phase1 = share_1, share_3, empty_phase1
        self.pretrained, self.predict_over, self.distill = pretrained, predict_over, distill
        self.unlabelled, self.confidence, self.n_pseudo_labelled = unlabelled, confidence, 0
        unused = ("unlabelled", "confidence") if unlabelled == "ignore" else ()
        self.settings = {"learner": "tpc", **{k: v for k, v in settings.items() if k not in unused}}
        self.known: set[int] = set()
        self.loop = TrainingLoop(reset_momentum, context=self.context)
        self.teacher: nn.Sequential | None = None  # csf and head before the experience, if distilling
        self.pseudo_labels: Tensor | None = None  # of the unlabelled images, from Phase II on

    def learn(self, experience: Experience, recipe: Recipe, tick: Tick = ignore) -> None:
        """One pass of Algorithm 1's outer loop: the experience E_i."""
        model, memory, loop = self.model, self.memory, self.loop
        current = frozenset(experience.classes)  # E_i^y
        novel, seen = current - self.known, current | self.known  # y_novel = E_i^y - known
        first = not self.known
        llf_learns = first and not self.pretrained
        csf_learns = first or memory is not None  # without replay, a free csf would forget (Sec. IV-C)
        epochs_1, epochs_2, epochs_3 = self.epochs(recipe.epochs, novel=bool(novel))

        if loop.begin("start"):
            self._prepare(recipe, seen)
            zero_unknown_rows_(model, self.known)  # Theta_c_j = 0 for each class j that is not known
        model.train()
        set_trainable(model, llf=llf_learns, csf=csf_learns)
        pseudo = self.unlabelled == "pseudo" and len(experience.unlabelled) > 0
        batches = Batches(model, experience, memory, recipe, seed=self.seed, pseudo=pseudo, context=self.context)
        (depth_1, tail_1), (depth_2, tail_2) = self._tail(first), self._tail(csf_learns)
        mask_1, mask_2 = gradient_masks(self.masking, novel, current, self.t)
        step_1, step_2 = self._sgd_step(seen, novel), self._sgd_step(seen)  # on L = L_CE + w_bc L_BC (Eq. 11)

        # Phase I: bootstrap the novel classes; nothing else moves (there is nothing else in the first experience)
        if loop.begin("I") and epochs_1:
            set_trainable(model, llf=llf_learns, csf=first)
            optimizer = loop.optimizer(model, recipe, fresh=not first)
            for mb in batches.mixed(loop.steps(epochs_1, batches.n_mixed), depth_1):
                logits = tail_1(mb.z)
                ce = F.cross_entropy(block_gradient(logits, mask_1(logits, mb.y)), mb.y)
                loss = step_1(optimizer, ce, mb, logits)
                tick(loop.step_done(loss, ce, mb.share, logits=logits.detach(), y=mb.y))

        # Phase II: all classes learn; corrections that no wrong class needs are blocked
        if loop.begin("II"):
            if pseudo and self.pseudo_labels is None:
                self.pseudo_labels = pseudo_labels(batches, seen, self.confidence, self.s)
            if self.pseudo_labels is not None:
                batches = batches.with_pseudo_labels(self.pseudo_labels)
            set_trainable(model, llf=llf_learns, csf=csf_learns)
            optimizer = loop.optimizer(model, recipe)
            for mb in batches.mixed(loop.steps(epochs_2, batches.n_mixed), depth_2):
                logits = tail_2(mb.z)
                ce = F.cross_entropy(block_gradient(logits, mask_2(logits, mb.y)), mb.y)
                loss = step_2(optimizer, ce, mb, logits)
                tick(loop.step_done(loss, ce, mb.share, logits=logits.detach(), y=mb.y))

        # Phase III: consolidate on the class-balanced memory, without masks
        if memory is not None:
            llf_learns = llf_learns and memory.store == "raw"  # stored latents must stay those of this llf
            set_trainable(model, llf=llf_learns, csf=True)
            if loop.begin("memory"):
                batches.update_memory()  # class-balanced reservoir sampling
            if loop.begin("III") and epochs_3:
                optimizer = loop.optimizer(model, recipe)
                depth_3, tail_3 = self._tail(True)
                for mb in batches.balanced(loop.steps(epochs_3, batches.n_balanced), depth_3):
                    logits = tail_3(mb.z)
                    ce = F.cross_entropy(logits, mb.y)
                    loss = step_2(optimizer, ce, mb, logits)
                    tick(loop.step_done(loss, ce, mb.share, logits=logits.detach(), y=mb.y))

        if self.bc not in ("loss_only", "none"):
            normalize_(model.head.weight, seen, self.s)  # remove any residual class bias (Eq. 9)
        self.n_pseudo_labelled = 0 if self.pseudo_labels is None else int((self.pseudo_labels >= 0).sum())
        self.known, self.teacher, self.pseudo_labels = set(seen), None, None
        set_trainable(model, llf=False, csf=csf_learns)
        loop.finish()

    def epochs(self, total: int, *, novel: bool) -> tuple[int, int, int]:
        """Epochs of Phases I, II and III; what a phase that is left out would have had goes to Phase II."""
        epochs_1 = math.ceil(round(self.share_1 * total, 9))
        epochs_3 = math.ceil(round(self.share_3 * total, 9)) if self.memory is not None else 0
        epochs_2 = total - epochs_1 - epochs_3
        if epochs_2 < 1:
            least = 1 + (epochs_1 > 0) + (epochs_3 > 0)
            reason = f"Phases I and III would take all {total} epochs:"
            if total < least:
                reason = f"{total} epochs cannot be split into {least} phases: give at least {least}, or"
            raise InvalidValue(f"{reason} lower share_1 or share_3.")
        if novel:
            return epochs_1, epochs_2, epochs_3
        # Without novel classes Phase I has nothing to move: Algorithm 1 makes it a no-op.
        return 0, epochs_2 + (epochs_1 if self.empty_phase1 == "to_phase2" else 0), epochs_3

    def check_recipe(self, recipe: Recipe) -> None:
        """Refuse a recipe that would train llf, or with too few epochs for three phases."""
        if recipe.trainable == "all":
            raise InvalidValue("TPC freezes llf (Algorithm 1), got trainable='all': use trainable='csf'.")
        self.epochs(recipe.epochs, novel=True)

    def diagnostics(self) -> dict[str, float]:
        """How far the standard deviation of a head row overshoots its target s."""
        if self.model.n_classes == 0:
            return {}
        sigma = self.model.head.weight.detach().std(1, correction=0)
        return {"peak_sigma_over_s": float(sigma.max() / self.s)}

    def logits(self, z: Tensor) -> Tensor:
        """Scores over the classes seen so far."""
        return predict(self.model, z, self.known if self.predict_over == "seen" else range(self.model.n_classes))

    def drop_class(self, label: int) -> None:
        """Forget a class; later labels move down by one. What csf learned from it stays in csf."""
        self.model.drop_class(label)
        self.loop.drop_class(label)
        self.known = drop_label(self.known, label)

    def rescale(self, z: Tensor) -> None:
        """Nothing to do: the scores have no scale that was fitted."""

    def inference(self, extra: tuple[Tensor, Tensor] | None = None) -> Ensemble:
        """csf and head as they answer; `extra` changes nothing, because TPC has no class statistics."""
        rows = self.model.head.weight.detach()[: max(self.known) + 1].clone()
        return Ensemble([Member(copy.deepcopy(self.model.csf), rows)])

    def state_dict(self) -> dict[str, Any]:
        """Everything from which `learn` continues."""
        state = learner_state(self.settings, self.model, self.memory, self.known, self.loop)
        state |= {} if self.pseudo_labels is None else {"pseudo_labels": {"labels": self.pseudo_labels}}
        return state if self.teacher is None else state | {"teacher": dict(self.teacher.state_dict())}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a saved state."""
        self.known = load_learner_state(state, self.model, self.memory, self.loop)
        self.teacher = load_teacher(self.model, state)
        self.pseudo_labels = state.get("pseudo_labels", {}).get("labels")

    def _prepare(self, recipe: Recipe, seen: frozenset[int]) -> None:
        """Refuse what cannot be learned, give the head its rows, and copy the teacher if there is distillation."""
        self.check_recipe(recipe)
        if self.memory is not None:
            self.memory.check_room(len(seen))
        self._warn(recipe, seen)
        self.model.grow(max(seen) + 1)
        if self.distill and self.known:
            self.teacher = copy_teacher(self.model)

    def _tail(self, csf_learns: bool) -> tuple[Depth, Callable[[Tensor], Tensor]]:
        """How deep minibatches are computed beforehand, and what is left: a linear problem where csf is frozen."""
        if not csf_learns:
            return "csf", self.model.head
        return "llf", self.model.tail

    def _sgd_step(self, seen: frozenset[int], novel: frozenset[int] | None = None) -> SGDStep:
        """An SGD step on L = L_CE + w_bc L_BC (Eq. 11), or with distillation; in Phase I only `novel` rows move."""
        free = novel if self.masking == "tpc" else None
        explicit, rows = self.bc == "explicit", seen if free is None else free
        terms: list[Callable[[Tensor, Tensor], Tensor]] = []
        if self.bc in ("loss", "loss_only"):
            terms.append(lambda z, logits: self._bias_correction(seen, free))
        if self.teacher is not None and novel is None:
            # without memory, mb.z are features, so the head alone is the teacher
            teacher = self.teacher if self.memory is not None else self.teacher[1]
            terms.append(distillation(teacher, self.known, self.distill))

        def step(optimizer: SGD, loss: Tensor, mb: Minibatch, logits: Tensor) -> Tensor:
            for term in terms:
                loss = loss + term(mb.z, logits)
            loss = sgd_step(optimizer, loss, mb.share)  # all shares add up to 1, so L_BC counts once
            if explicit:
                normalize_(self.model.head.weight, rows, self.s)
            return loss

        return step

    def _bias_correction(self, seen: frozenset[int], free: frozenset[int] | None = None) -> Tensor:
        """w_bc L_BC over the classes seen; rows outside `free` are constants (Eq. 10, 11)."""
        W = self.model.head.weight
        if free is not None:
            W = block_gradient(W, outside(free, W.T).T)
        rows = W if self.bc_scope == "all" else W[class_rows(seen, W)]
        return self._w_bc(len(rows)) * bias_correction_loss(rows, self.s, self.eps)

    def _w_bc(self, n_rows: int) -> float:
        return self.w_bc * (n_rows * self.model.n_features * self.s**2 if self.w_bc_scale == "n" else 1.0)

    def _warn(self, recipe: Recipe, seen: frozenset[int]) -> None:
        """Warn of settings that will probably give poor results."""
        n_rows = len(seen) if self.bc_scope == "seen" else max(self.model.n_classes, max(seen) + 1)
        bound = stable_lr(n_rows, self.model.n_features, self.s, self._w_bc(n_rows), recipe.momentum)
        if self.bc in ("loss", "loss_only") and recipe.lr >= bound:
            sentence = (
                f"lr {recipe.lr:g} is above {bound:.3g}, where L_BC over {n_rows} classes makes training diverge"
            )
            warnings.warn(f"{sentence}; lower lr or w_bc.", TriphaseWarning, stacklevel=4)
        if self.memory is None and not self.pretrained:
            sentence = "Neither pre-training nor replay: the paper does not recommend TPC for this case."
            warnings.warn(sentence, TriphaseWarning, stacklevel=4)
