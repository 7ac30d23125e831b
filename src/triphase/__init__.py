"""Continual learning by three-phase consolidation."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from triphase.app.classifier import ContinualClassifier
    from triphase.app.predictor import Predictor
    from triphase.bench.run import Report, run
    from triphase.context import Context
    from triphase.data.images import Images
    from triphase.data.memory import Memory
    from triphase.data.recipe import Recipe
    from triphase.data.streams import Experience, Stream, class_incremental, joint, with_repetition
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
# Where each public name is defined: imported on demand, because torch takes a second to import.
_MODULES = {
    "AR1": "learners.ar1",
    "NCM": "learners.ncm",
    "SLDA": "learners.slda",
    "TPC": "learners.tpc",
    "Anchored": "learners.anchored",
    "BiC": "learners.bic",
    "Context": "context",
    "ContinualClassifier": "app.classifier",
    "DERpp": "learners.derpp",
    "DepthSLDA": "learners.slda_depths",
    "Experience": "data.streams",
    "FineTune": "learners.finetune",
    "Images": "data.images",
    "Joint": "learners.joint",
    "Learner": "learners.protocol",
    "Memory": "data.memory",
    "Predictor": "app.predictor",
    "RanPAC": "learners.ranpac",
    "Recipe": "data.recipe",
    "Report": "bench.run",
    "SplitClassifier": "models",
    "Stream": "data.streams",
    "class_incremental": "data.streams",
    "joint": "data.streams",
    "run": "bench.run",
    "with_repetition": "data.streams",
}
_PACKAGES = ("app", "bench", "data", "learners", "maths", "models")
__all__ = [
    "AR1",
    "NCM",
    "SLDA",
    "TPC",
    "Anchored",
    "BiC",
    "Context",
    "ContinualClassifier",
    "DERpp",
    "DepthSLDA",
    "Experience",
    "FineTune",
    "Images",
    "Joint",
    "Learner",
    "Memory",
    "Predictor",
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
    """Import a name when it is asked for."""
    if name in _PACKAGES:
        return import_module(f"triphase.{name}")
    if name not in _MODULES:
        raise AttributeError(f"module 'triphase' has no attribute {name!r}")
    value = getattr(import_module(f"triphase.{_MODULES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
