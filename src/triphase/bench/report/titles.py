"""What learners and benchmarks are called in tables, figures and folders, and in which order learners stand."""

from __future__ import annotations

from triphase.bench.benchmarks import Benchmark, find
from triphase.errors import InvalidValue

TITLES = {
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
    known = list(TITLES)
    return known.index(learner) if learner in known else known.index("tpc") + 0.5, learner


def learner_title(learner: str) -> str:
    """As the paper writes it; unknown names as they are."""
    return TITLES.get(learner, learner)


def title_of(learner: str, change: str, replay: bool = True) -> str:
    """The learner, and what is special about it."""
    special = ", ".join(filter(None, (change, "" if replay else "no replay")))
    return learner_title(learner) + (f" ({special})" if special else "")


def own_settings(benchmark: str) -> Benchmark | None:
    """The benchmark of that name with its own settings, if there is one."""
    try:
        return find(benchmark)
    except InvalidValue:
        return None


def benchmark_title(benchmark: str) -> str:
    """As the paper writes it; streams that are no benchmark as they are called."""
    known = own_settings(benchmark)
    return known.title if known is not None else benchmark
