"""Continual learning by three-phase consolidation."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from triphase.app.classifier import ContinualClassifier
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
    from triphase.learners import (
        AR1,
        NCM,
        SLDA,
        TPC,
        Anchored,
        BiC,
        DepthSLDA,
        DERpp,
        FineTune,
        Joint,
        Learner,
        RanPAC,
    )
    from triphase.models import SplitClassifier

__version__ = "0.1.0"
__all__ = [
    "AR1",
    "NCM",
    "SLDA",
    "TPC",
    "Anchored",
    "BiC",
    "ContinualClassifier",
    "DERpp",
    "DepthSLDA",
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
_ROOMS = ("app", "bench", "data", "learners", "maths", "models")
# where the names live; the last one is slow to import, for it needs scikit-learn
_HOMES = ("data", "models", "learners", "bench.run", "app.classifier")


def __getattr__(name: str) -> Any:
    """Names on demand: torch takes a second to import, and the command line wants a say in how."""
    if name in _ROOMS:
        return import_module(f"triphase.{name}")
    if name in __all__:
        for home in _HOMES:
            content = vars(import_module(f"triphase.{home}"))
            if name in content:
                globals()[name] = content[name]
                return content[name]
    raise AttributeError(f"module 'triphase' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
