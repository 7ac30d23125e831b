"""Continual learning by three-phase consolidation."""

__version__ = "0.1.0"

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
from triphase.learners import TPC, FineTune, Joint, Learner
from triphase.models import SplitClassifier

__all__ = [
    "TPC",
    "Experience",
    "FineTune",
    "Images",
    "Joint",
    "Learner",
    "Memory",
    "Recipe",
    "Report",
    "SplitClassifier",
    "Stream",
    "class_incremental",
    "joint",
    "run",
    "with_repetition",
]
