"""Checks that learners make before they learn."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, get_args, get_origin, get_type_hints

from triphase.context import Context
from triphase.data.memory import Memory
from triphase.data.recipe import Recipe
from triphase.errors import InvalidValue
from triphase.models import SplitClassifier


def check_choices(learner: type, settings: Mapping[str, object]) -> None:
    """Refuse an option that is not among the choices in the annotation of its argument."""
    for name, hint in get_type_hints(learner.__init__).items():  # type: ignore[misc]
        choices = get_args(hint) if get_origin(hint) is Literal else None
        if choices is not None and settings[name] not in choices:
            raise InvalidValue(f"{name} must be one of {', '.join(choices)}, got {settings[name]!r}.")


def refuse_head_bias(model: SplitClassifier, learner: str) -> None:
    """Refuse a head with bias, for a learner that deals with its weights alone."""
    if model.head.bias is not None:
        raise InvalidValue(f"{learner} deals with the weights of the head alone: use nn.Linear(..., bias=False).")


def refuse_in_several_processes(context: Context, settings: Mapping[str, object], **options: str) -> None:
    """Refuse choices that need whole minibatches, where each process has a shard of them."""
    for name, choice in options.items() if context.processes.size > 1 else ():
        if settings[name] == choice:
            raise InvalidValue(
                f"{name}={choice!r} needs whole minibatches: run it in one process, without torchrun."
            )


def check_memory(memory: Memory | None, recipe: Recipe, n_classes: int) -> None:
    """Refuse, before anything is learned, a memory that is too small or whose latents would grow stale."""
    if memory is None:
        return
    memory.check_room(n_classes)
    if memory.store == "latent" and recipe.trainable == "all":
        raise InvalidValue("Stored latents belong to one llf: train csf only, or store raw images.")
