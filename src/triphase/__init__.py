"""Continual learning by three-phase consolidation."""

__version__ = "0.1.0"

from typing import TYPE_CHECKING, Any

from triphase.bench.run import Report, run
from triphase.data import (
    Experience,
    Images,
    Memory,
    Recipe,
    Stream,
    class_incremental,
    joint,
    with_repetition,
)
from triphase.learners import AR1, NCM, SLDA, TPC, Anchored, BiC, DERpp, FineTune, Joint, Learner, RanPAC
from triphase.models import SplitClassifier

if TYPE_CHECKING:
    from triphase.app.classifier import ContinualClassifier

__all__ = [
    "AR1",
    "NCM",
    "SLDA",
    "TPC",
    "Anchored",
    "BiC",
    "ContinualClassifier",
    "DERpp",
    "Experience",
    "FineTune",
    "Images",
    "Joint",
    "Learner",
    "Memory",
    "RanPAC",
    "Recipe",
    "Report",
    "SplitClassifier",
    "Stream",
    "class_incremental",
    "joint",
    "run",
    "with_repetition",
]


def __getattr__(name: str) -> Any:
    """ContinualClassifier on demand: scikit-learn takes a second to import, and few commands need it."""
    if name == "ContinualClassifier":
        from triphase.app.classifier import ContinualClassifier

        return ContinualClassifier
    raise AttributeError(f"module 'triphase' has no attribute {name!r}")
