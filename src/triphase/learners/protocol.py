"""The Learner protocol and optional protocols. A learner inherits nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, Protocol, runtime_checkable

from torch import Tensor

from triphase.context import Context
from triphase.data.memory import Memory
from triphase.data.recipe import Recipe
from triphase.data.streams import Experience
from triphase.models import SplitClassifier
from triphase.models.inference import Ensemble


@dataclass(frozen=True)
class Step:
    """One optimiser step, as `tick` receives it."""

    phase: str
    epoch: int  # from 1, within the phase
    epochs: int
    step: int  # from 1, within the epoch
    steps: int
    loss: Tensor  # a scalar; reading it waits for the device, so read it only to show it
    lr: float
    logits: Tensor | None = None  # (n_mb, n_classes) of the minibatch before the step, if the learner gives them
    y: Tensor | None = None  # (n_mb,)


Tick = Callable[[Step], None]


def ignore(step: Step) -> None:
    """A tick that does nothing."""


class Learner(Protocol):
    """Learns one experience at a time. Implement it in one file."""

    model: SplitClassifier
    context: Context

    def learn(self, experience: Experience, recipe: Recipe, tick: Tick = ...) -> None:
        """Learn an experience; called again after `load_state_dict`, continue where the state was taken."""

    def logits(self, z: Tensor) -> Tensor:
        """Scores (n, n_classes) of latents z, for evaluation, on the host; -inf for classes never seen."""

    def state_dict(self) -> dict[str, Any]:
        """Tensors and primitives from which `learn` continues bit for bit; valid at every tick."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Load a saved state."""


class ClosedForm(Protocol):
    """Class statistics over features of a frozen network: what was counted can be removed exactly."""

    @property
    def feature_model(self) -> SplitClassifier:
        """The model whose csf computes the features."""

    @property
    def known(self) -> set[int]:
        """The classes seen so far."""

    @property
    def counts(self) -> Tensor:
        """(n_classes,): how many images of each class are counted."""

    @property
    def n_features(self) -> int:
        """D; before the first features, the most that it can be."""

    @property
    def has_covariance(self) -> bool:
        """Whether the classes share a covariance, which `reestimate` estimates again."""

    def features(self, z: Tensor) -> Tensor:
        """(n, D): features of latents z."""

    def scores(self, f: Tensor) -> Tensor:
        """(n, n_classes): scores of features; -inf for classes never seen."""

    def distances(self, f: Tensor) -> Tensor:
        """(n, k) float64: out-of-distribution scores, higher where f is more like what was taught; k may be 0."""

    def add(self, f: Tensor, y: Tensor) -> None:
        """Count features (n, D) of classes y."""

    def remove(self, f: Tensor, y: Tensor) -> None:
        """Take features (n, D) of classes y out of the statistics again; tensors are replaced, never changed."""

    def count_crops(self, z: Tensor, f: Tensor, weight: float = 1.0) -> None:
        """Count what a crop changes in features f of packed latents z, if it does; weight -1 takes it out again."""

    def drop_class(self, label: int) -> None:
        """Forget a class; later labels move down by one."""

    def reestimate(self, f: Tensor, y: Tensor) -> None:
        """Estimate the statistics that all classes share again, from samples."""


class Teachable(Learner, Protocol):
    """A learner that the app can teach and from which it can remove classes and photos."""

    @property
    def memory(self) -> Memory | None:
        """The replay memory that it fills, if it uses one."""

    @property
    def known(self) -> set[int]:
        """The classes seen so far."""

    @property
    def closed_form(self) -> ClosedForm | None:
        """The closed form of the learner, if it has one."""

    def inference(self, extra: tuple[Tensor, Tensor] | None = None) -> Ensemble:
        """A copy of everything that answers need, over the classes seen so far.

        `extra` holds features (n, D) and classes of held-out images, which a closed form counts in this copy only.
        """

    def drop_class(self, label: int) -> None:
        """Forget a class; later labels move down by one."""

    def rescale(self, z: Tensor) -> None:
        """Fit the scales of the scores again after a removal, on latents z of stored samples."""


@runtime_checkable
class QuickLearner(Protocol):
    """A learner that can predict the classes of an experience before it has learned it in full."""

    quick_experience: int  # index of the experience that is learned quickly and not yet in full; 0: none

    def learn_quick(self, experience: Experience, recipe: Recipe) -> None:
        """Learn an experience in seconds; `learn` does the rest."""


@runtime_checkable
class Consolidates(Protocol):
    """A learner that can be trained again on its memory."""

    def consolidate(self, recipe: Recipe, tick: Tick = ignore) -> None:
        """Train on the samples in memory alone; it resumes as `learn` does."""


@runtime_checkable
class UsesUnlabelled(Protocol):
    """A learner that can learn from images without a label."""

    unlabelled: Literal["ignore", "pseudo"]  # pseudo: with the classes that it predicts
    n_pseudo_labelled: int  # of the last experience, those that it was sure of


@runtime_checkable
class WeighsMembers(Protocol):
    """A learner of two members whose scores are summed; held-out images may fit the weight of the second."""

    weight: float
    constant_weight: float  # where there is nothing to fit it to


@runtime_checkable
class ChecksRecipe(Protocol):
    """A learner that does not take every recipe."""

    def check_recipe(self, recipe: Recipe) -> None:
        """Refuse a recipe that it cannot learn with; called before a run and at the start of `learn`."""


@runtime_checkable
class HasDiagnostics(Protocol):
    """A learner with figures of its own that a log should show."""

    def diagnostics(self) -> dict[str, float]:
        """Figures by name, as they are now; asked for at the end of an epoch."""
