"""The table of the settings behind every number."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from triphase.bench.learners import LEARNER_SPECS
from triphase.bench.report.ablated import TPC_DEFAULTS
from triphase.bench.report.group import Group, GroupedRuns
from triphase.bench.report.tables import Table, TableCell
from triphase.bench.report.titles import benchmark_title
from triphase.bench.run.options import recorded

COLUMNS = ("benchmark", "learner", "orders", "seeds", "lr", "csf_lr", "epochs", "minibatch", "memory", "options")
ALWAYS_SHOWN = ("t", "s", "w_bc")  # TPC's other options are shown where they are not the default
NOT_OF_THE_LEARNER = {name.partition(".")[0] for name in recorded()}
NOT_OF_THE_LEARNER |= {"benchmark", "pretrained", "stream", "threads"}


def what_was_run(grouped: GroupedRuns) -> Table:
    """The settings behind every number."""
    found = [group for benchmark in grouped.benchmarks for group in grouped.of(benchmark)]
    records = [_record(group) for group in found]
    rows = [[TableCell(str(record[name])) for name in COLUMNS] for record in records]
    header = [name.replace("csf_lr", "lr of csf").capitalize() for name in COLUMNS]
    caption = (
        "The settings behind every number; epochs and minibatches (current:replayed) after the first experience, "
        "of joint training in the one that it has."
    )
    return Table("runs", "What was run", caption, header, rows, records)


def _record(group: Group) -> dict[str, Any]:
    memory = group.settings.get("memory")
    recipe = group.settings["first" if group.is_joint else "rest"]
    schedule = [
        recipe["lr"],
        recipe["lr"] if recipe["csf_lr"] is None else recipe["csf_lr"],
        recipe["epochs"],
        f"{recipe['n_mbe']}:{recipe['n_mbr']}",
    ]
    if group.learner in LEARNER_SPECS and LEARNER_SPECS[group.learner].lr == "unused":
        schedule = ["–"] * len(schedule)
    values = [
        benchmark_title(group.benchmark),
        group.title,
        _list(group.orders),
        _list(sorted({run.order_and_seed[1] for run in group.runs})),
        *schedule,
        memory["capacity"] if memory else 0,
        _learner_options(group),
    ]
    return dict(zip(COLUMNS, values, strict=True))


def _list(values: Iterable[int]) -> str:
    return ", ".join(map(str, values))


def _learner_options(group: Group) -> str:
    """The learner's own options; of TPC's many, those that the paper names and those that were changed."""
    own = {name: value for name, value in group.settings.items() if name not in NOT_OF_THE_LEARNER}
    if group.learner in ("tpc", "anchored"):
        own = {n: v for n, v in own.items() if n in ALWAYS_SHOWN or v != TPC_DEFAULTS.get(n)}
    return ", ".join(f"{name} = {value}" for name, value in own.items())
