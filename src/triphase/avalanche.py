"""TPC as a strategy of Avalanche: `from triphase.avalanche import TPCStrategy`.

TPC itself learns (`triphase.learners.tpc`), with its own minibatches and optimiser; Avalanche brings the stream,
the metrics, the loggers and the evaluation.
"""

from __future__ import annotations

import re
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import functional as F

from triphase.context import Context
from triphase.data.memory import Memory
from triphase.data.recipe import Recipe
from triphase.data.sources.torch_datasets import images_from, pixels_of
from triphase.data.streams import Experience
from triphase.device import choose
from triphase.errors import InvalidValue
from triphase.learners.protocol import Step
from triphase.learners.tpc import TPC
from triphase.learners.training import predict
from triphase.models import SplitClassifier
from triphase.torchvision_operators import declare_torchvision_operators

OLDEST = (0, 6)


def _supervised_template() -> Any:
    """Avalanche's base class of strategies, if there is an Avalanche that is new enough."""
    hint = "pip install 'triphase[avalanche]'"
    try:
        found = version("avalanche-lib")
    except PackageNotFoundError as error:
        raise InvalidValue(f"Avalanche is not installed: {hint}.") from error
    if tuple(int(part) for part in re.findall(r"\d+", found)[:2]) < OLDEST:  # 0.6b1 is one of 0.6
        wanted = ".".join(map(str, OLDEST))
        raise InvalidValue(
            f"Avalanche {found} is too old for this strategy, which needs {wanted} or newer: {hint}."
        )
    declare_torchvision_operators()
    return import_module("avalanche.training.templates").SupervisedTemplate


SupervisedTemplate: Any = object if TYPE_CHECKING else _supervised_template()


class TPCStrategy(SupervisedTemplate):  # type: ignore[misc]
    """Three-Phase Consolidation for Avalanche's streams; results are those of `triphase.run` on the same data.

    The model is a `SplitClassifier`. Images are uint8 or 0 to 1, as ToTensor makes them, not normalised: that is
    done in the network. They are learned without random transforms of the dataset: augmentation is the recipe's.
    Plugins are called and see loss, logits and classes of each minibatch, but no pixels, and cannot change a step.
    """

    def __init__(
        self,
        *,
        model: SplitClassifier,
        mem_size: int | None = 1500,  # samples in the replay memory; None: no memory
        first: Recipe | None = None,  # of the first experience
        rest: Recipe | None = None,  # of the others
        t: float = 0.5,  # tolerance, standard deviation of head rows and weight of L_BC, as in TPC
        s: float = 0.05,
        w_bc: float = 5.0,
        pretrained: bool = True,  # False: llf learns in the first experience
        seed: int = 0,
        eval_mb_size: int = 128,
        device: str | torch.device = "cpu",  # or auto
        **options: Any,  # plugins, evaluator, eval_every and peval_mode of Avalanche
    ) -> None:
        if not isinstance(model, SplitClassifier):
            raise InvalidValue(
                f"TPC learns a network in three blocks, got {type(model).__name__}: take one of "
                "triphase.models.build, or put yours together as SplitClassifier(llf, csf, head)."
            )
        where = choose(device)
        self.first = Recipe() if first is None else first
        self.rest = Recipe(n_mbe=64, n_mbr=64) if rest is None else rest
        super().__init__(
            model=model,
            optimizer=None,
            train_mb_size=self.rest.n_mbe + self.rest.n_mbr,
            train_epochs=self.rest.epochs,
            eval_mb_size=eval_mb_size,
            device=where,
            **options,
        )
        memory, context = None if mem_size is None else Memory(mem_size, seed=seed), Context(device=where)
        self.learner = TPC(model, memory, t=t, s=s, w_bc=w_bc, pretrained=pretrained, seed=seed, context=context)
        self.n_learned = 0  # experiences
        self._seen: set[int] = set()  # classes, those of the experience that is being learned included

    def forward(self) -> Tensor:
        """Logits of the minibatch of an evaluation; classes that have not been seen get none."""
        if not self._seen:  # `eval_every` evaluates before anything is learned: an answer that no label has
            return F.one_hot(torch.full_like(self.mb_y, int(self.mb_y.max()) + 1)).float()
        pixels = torch.stack([pixels_of(image, self.model.image_size) for image in self.mb_x])
        return predict(self.model, self.model.encode(pixels), self._seen).to(self.device)

    def criterion(self) -> Tensor:
        """Cross-entropy of the images whose class has been seen."""
        seen = torch.tensor([int(label) in self._seen for label in self.mb_y]).to(self.mb_y.device)
        return (
            F.cross_entropy(self.mb_output[seen], self.mb_y[seen]) if bool(seen.any()) else self._make_empty_loss()
        )

    def make_train_dataloader(self, **kwargs: Any) -> None:
        """Nothing to do: TPC draws its own minibatches."""

    def check_model_and_optimizer(self, **kwargs: Any) -> None:
        """Nothing to do: TPC grows the head and makes its optimisers."""

    def model_adaptation(self, model: Any = None) -> SplitClassifier:
        """The model as it is."""
        adapted: SplitClassifier = self.model if model is None else model
        return adapted

    def _train_exp(self, experience: Any, eval_streams: Any = None, **kwargs: Any) -> None:
        images = images_from(experience.dataset.eval(), self.model.image_size)
        learned = Experience(self.n_learned + 1, images)
        self._seen = self.learner.known | set(learned.classes)

        def tick(step: Step) -> None:
            assert step.logits is not None and step.y is not None
            if step.step == 1:
                self._before_training_epoch(**kwargs)
            no_pixels, task = step.logits.new_empty(len(step.y), 0), torch.zeros_like(step.y)
            self.mbatch, self.mb_output, self.loss = [no_pixels, step.y, task], step.logits, step.loss
            self._before_training_iteration(**kwargs)
            self._after_training_iteration(**kwargs)
            if step.step == step.steps:
                self._after_training_epoch(**kwargs)

        self.learner.learn(learned, self.rest if self.n_learned else self.first, tick)
        self.n_learned += 1
