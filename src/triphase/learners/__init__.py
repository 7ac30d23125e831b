"""One file, one learner."""

from triphase.learners.finetune import FineTune
from triphase.learners.joint import Joint
from triphase.learners.protocol import Learner, Step, Tick
from triphase.learners.tpc import TPC

__all__ = ["TPC", "FineTune", "Joint", "Learner", "Step", "Tick"]
