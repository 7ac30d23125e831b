"""Recognises from its settings which ablation of its learner a run is."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

from triphase.bench.benchmarks import find_or_none
from triphase.bench.learners import LEARNER_SPECS
from triphase.bench.sweep.ablation import FULL, OPEN_CHOICES, PAPER_ABLATIONS
from triphase.learners import TPC

TPC_DEFAULTS = {name: parameter.default for name, parameter in inspect.signature(TPC).parameters.items()}
CHANGES = {name: change for name, change in (PAPER_ABLATIONS | OPEN_CHOICES).items() if name != FULL}
ABLATIONS = {frozenset(change.items()): name for name, change in CHANGES.items()}
ABLATED = sorted(
    {name for change in ABLATIONS for name, _ in change} & TPC_DEFAULTS.keys() | {"empty_phase1", "unlabelled"}
)
TRAINS_ALL = "llf learns too"


def usual_settings(benchmark: str, settings: Sequence[Mapping[str, Any]]) -> tuple[float, str]:
    """Weight decay and normalisation of a benchmark: its own, or those of its first run if no run has its own."""
    found = [_decay_and_norm(each) for each in settings]
    known = find_or_none(benchmark)
    own = (known.rest.weight_decay, "bn") if known is not None else found[0]
    return own if own in found else found[0]


def ablation_title(settings: Mapping[str, Any], usual: tuple[float, str]) -> str:
    """What makes a run an ablation of its learner, in words; empty if it is none."""
    learner = settings.get("learner")
    if learner != "tpc":
        has_gradient = learner not in LEARNER_SPECS or LEARNER_SPECS[learner].lr != "unused"
        return TRAINS_ALL if has_gradient and settings["rest"]["trainable"] == "all" else ""
    changed = {n: settings[n] for n in ABLATED if settings.get(n, TPC_DEFAULTS[n]) != TPC_DEFAULTS[n]}
    names, found = ("weight decay", "norm"), _decay_and_norm(settings)
    changed |= {name: value for name, value, own in zip(names, found, usual, strict=True) if value != own}
    described = ", ".join(f"{name} = {value}" for name, value in changed.items())
    return ABLATIONS.get(frozenset(changed.items()), described)


def _decay_and_norm(settings: Mapping[str, Any]) -> tuple[float, str]:
    return settings["rest"]["weight_decay"], settings.get("norm", "bn")
