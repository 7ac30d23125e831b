"""Results of a sweep that never took place."""

from __future__ import annotations

from pathlib import Path

from triphase.bench.sweep.ablation import Ablation
from triphase.bench.sweep.grid import Sweep
from triphase.bench.sweep.jobs import Job, Result

FOUR = ("tpc", "ar1", "bic", "derpp")
OUT = Path("out")


def results_of(schedule: Sweep | Ablation, amca: dict[str, float]) -> dict[Job, Result]:
    """Results for all cells of a schedule, as it unfolds; AMCA by a part of the directory's name."""
    results: dict[Job, Result] = {}
    while todo := [c for c in schedule.jobs(results) if c not in results]:
        for c in todo:
            value = next((value for part, value in amca.items() if part in c.directory.name), 0.5)
            results[c] = Result(value, value, 1.0)
    return results
