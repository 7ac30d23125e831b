"""Reports of runs that never took place, for tests of tables and figures."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from triphase.bench.report.group import Group
from triphase.bench.report.load import FinishedRun
from triphase.bench.report.tables import Table, TableCell
from triphase.bench.run import Report

RECIPE: dict[str, Any] = {
    "epochs": 4,
    "lr": 0.1,
    "csf_lr": None,
    "n_mbe": 158,
    "n_mbr": 98,
    "momentum": 0.9,
    "weight_decay": 5e-4,
}


RECIPE |= {"augment": "flip", "lr_schedule": "constant", "trainable": "csf", "latents": "float32", "views": 0}


MEMORIES: dict[str, Any] = {"capacity": 1500, "store": "raw", "seed": 0, "dtype": "torch.float32"}


WITHOUT_MEMORY = ("finetune", "joint", "ncm", "slda", "ranpac")


def make(
    learner: str,
    accuracy: float,
    *,
    order: int = 1,
    benchmark: str = "core50-41",
    seconds: float = 100.0,
    names: Sequence[str] = ("cup", "can", "ball"),
    rest: dict[str, Any] | None = None,
    **settings: Any,
) -> Report:
    """A run with the same accuracy for every class and experience; the first class comes alone."""
    evaluations = 1 if learner == "joint" else 2
    memory = None if learner in WITHOUT_MEMORY else MEMORIES
    known = {"benchmark": benchmark, "learner": learner, "order": order, "seed": 0, "backbone": "mobilenet_v1"}
    known |= {"image_size": 128, "per_class": None, "epochs_scale": 1.0, "norm": "bn", "head": "fixed"}
    known |= {"memory": memory, "first": dict(RECIPE), "rest": RECIPE | (rest or {}), "stream": f"{order:08}"}
    return Report(
        settings=known | settings,
        names=list(names),
        evaluated_after=list(range(1, evaluations + 1)),
        n_seen=[1, len(names)][-evaluations:],
        accuracy=([[accuracy] + [None] * (len(names) - 1)] + [[accuracy] * len(names)])[-evaluations:],
        confusion=[[int(row == column) * 10 for column in names] for row in names],
        phase_seconds={"I": 0.25 * seconds, "II": 0.75 * seconds},
        part_seconds={"csf": seconds},
        memory_bytes=0 if memory is None else 2_500_000,
        versions={"triphase": "0", "torch": "2"},
    )


def write(folder: Path, *reports: Report) -> Path:
    """Runs in a folder of their own each, as `run` leaves them."""
    for number, report in enumerate(reports):
        run = folder / f"run{number}"
        run.mkdir(parents=True)
        (run / "report.json").write_text(json.dumps(report.to_json()))
        (run / "settings.json").write_text(json.dumps(report.settings))
    return folder


def group(*reports: Report) -> Group:
    settings = reports[0].settings
    runs = tuple(FinishedRun(Path(), report) for report in reports)
    return Group(settings["benchmark"], settings["learner"], True, "", runs)


def cell(table: Table, learner: str, column: str) -> TableCell:
    (row,) = (row for row in table.rows if row[0].text == learner)
    return row[table.header.index(column)]
