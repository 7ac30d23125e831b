"""Networks cut into llf, csf and head."""

from triphase.models.split import Normalize, SplitClassifier, linear_head

__all__ = ["Normalize", "SplitClassifier", "linear_head"]
