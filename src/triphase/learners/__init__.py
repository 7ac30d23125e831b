"""One file, one learner."""

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
