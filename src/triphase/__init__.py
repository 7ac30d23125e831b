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
from triphase.learners import AR1, NCM, SLDA, TPC, Anchored, BiC, DERpp, FineTune, Joint, Learner, RanPAC
from triphase.models import SplitClassifier

__all__ = [
    "AR1",
    "NCM",
    "SLDA",
    "TPC",
    "Anchored",
    "BiC",
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
