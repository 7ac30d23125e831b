"""Titles of learners and benchmarks in tables and figures, and the order of learners."""

from __future__ import annotations

from triphase.bench.benchmarks import find_or_none

LEARNER_TITLES = {  # in the order of rows
    "ar1": "AR1",
    "bic": "BiC",
    "derpp": "DER++",
    "tpc": "TPC",
    "anchored": "Anchored TPC",
    "replay": "Replay",
    "finetune": "Fine-tuning",
    "ncm": "NCM",
    "slda": "SLDA",
    "slda_depths": "SLDA of every depth",
    "ranpac": "RanPAC",
    "joint": "Joint training",
}


def rank(learner: str) -> tuple[float, str]:
    """The place of a learner: the paper's as it lists them, new ones after TPC, baselines, joint training last."""
    known = list(LEARNER_TITLES)
    return known.index(learner) if learner in known else known.index("tpc") + 0.5, learner


def learner_title(learner: str) -> str:
    """As the paper writes it; unknown names as they are."""
    return LEARNER_TITLES.get(learner, learner)


def group_title(learner: str, change: str, replay: bool = True) -> str:
    """The learner, and what is special about it.

    >>> group_title("tpc", "no Phase III")
    'TPC (no Phase III)'
    """
    special = ", ".join(filter(None, (change, "" if replay else "no replay")))
    return learner_title(learner) + (f" ({special})" if special else "")


def benchmark_title(benchmark: str) -> str:
    """As the paper writes it; streams that are no benchmark as they are called."""
    known = find_or_none(benchmark)
    return known.title if known is not None else benchmark
