"""One file, one learner. Learners are imported on first use: a lesson needs one of them, not all."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from triphase.learners.anchored import Anchored
    from triphase.learners.ar1 import AR1
    from triphase.learners.bic import BiC
    from triphase.learners.derpp import DERpp
    from triphase.learners.finetune import FineTune
    from triphase.learners.joint import Joint
    from triphase.learners.ncm import NCM
    from triphase.learners.protocol import (
        ChecksRecipe,
        ClosedForm,
        HasDiagnostics,
        Learner,
        QuickLearner,
        Step,
        Teachable,
        Tick,
    )
    from triphase.learners.ranpac import RanPAC
    from triphase.learners.slda import SLDA
    from triphase.learners.slda_depths import DepthSLDA
    from triphase.learners.tpc import TPC

_MODULES = {
    "AR1": "ar1",
    "Anchored": "anchored",
    "BiC": "bic",
    "DERpp": "derpp",
    "DepthSLDA": "slda_depths",
    "FineTune": "finetune",
    "Joint": "joint",
    "NCM": "ncm",
    "RanPAC": "ranpac",
    "SLDA": "slda",
    "TPC": "tpc",
}
__all__ = [
    "AR1",
    "NCM",
    "SLDA",
    "TPC",
    "Anchored",
    "BiC",
    "ChecksRecipe",
    "ClosedForm",
    "DERpp",
    "DepthSLDA",
    "FineTune",
    "HasDiagnostics",
    "Joint",
    "Learner",
    "QuickLearner",
    "RanPAC",
    "Step",
    "Teachable",
    "Tick",
]


def __getattr__(name: str) -> Any:
    """A learner or a protocol by its name."""
    if name not in __all__:
        raise AttributeError(f"module 'triphase.learners' has no attribute {name!r}")
    return getattr(import_module(f"triphase.learners.{_MODULES.get(name, 'protocol')}"), name)
