"""One run of a learner over a stream: options, set-up, training and evaluation, results."""

from triphase.bench.run.results import Report
from triphase.bench.run.runner import run

__all__ = ["Report", "run"]
