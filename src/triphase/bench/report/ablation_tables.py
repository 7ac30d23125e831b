"""The tables of the ablation (the paper's Table 6) and of learners without replay."""

from __future__ import annotations

from typing import Any

from triphase.bench.report import paper
from triphase.bench.report.caveats import conditions
from triphase.bench.report.group import GroupedRuns, on_common_orders
from triphase.bench.report.main_tables import METRICS, best_of, cell_of, record_of
from triphase.bench.report.tables import Table, TableCell
from triphase.bench.report.titles import benchmark_title, group_title, rank

AMCA, FINAL = METRICS[:2]


def no_replay(grouped: GroupedRuns) -> Table | None:
    """Learners without their memory, beside TPC with it; None if there are none."""
    without = [group for group in grouped.groups if not group.replay and not group.change]
    benchmarks = [name for name in grouped.benchmarks if any(group.benchmark == name for group in without)]
    if not benchmarks:
        return None
    learners = sorted({group.learner for group in without}, key=rank)
    keys = dict.fromkeys([("tpc", True), *((learner, replay) for learner in learners for replay in (True, False))])
    shown = {
        name: on_common_orders([g for g in grouped.of(name) if not g.change and (g.learner, g.replay) in keys])
        for name in benchmarks
    }
    rows, records = [], []
    for learner, replay in keys:
        cells = [TableCell(group_title(learner, "", replay))]
        for benchmark in benchmarks:
            for metric in (AMCA, FINAL):
                record = record_of(shown[benchmark], metric, learner, "", benchmark, replay)
                cells.append(cell_of(metric, record, best=False))
                records.append({"metric": metric.name, **record})
        rows.append(cells)
    header = ["No replay", *(f"{benchmark_title(b)}: {m.title}" for b in benchmarks for m in (AMCA, FINAL))]
    caption = (
        "Without a memory only the head learns after the first experience. Each benchmark on the orders that all "
        "of these share; in brackets as a multiple of TPC's."
    )
    return Table("no-replay", "Without replay", caption, header, rows, records, conditions(grouped))


def ablation(grouped: GroupedRuns) -> Table | None:
    """AMCA of TPC with parts taken away, as in the paper's Table 6; None if TPC was not run."""
    ours = [group for group in grouped.groups if group.learner == "tpc"]
    if not ours:
        return None
    printed = list(paper.ABLATION["core50-41", True])
    columns = printed + sorted({group.change for group in ours} - set(printed))
    pairs = {(g.benchmark, g.replay) for g in ours} | {(g.benchmark, True) for g in ours}
    rows, records = [], []
    for benchmark, replay in sorted(pairs, key=lambda p: (grouped.benchmarks.index(p[0]), not p[1])):
        shown = on_common_orders([g for g in ours if (g.benchmark, g.replay) == (benchmark, replay)])
        row = [_record(shown, change, benchmark, replay) for change in columns]
        best = best_of(AMCA, [record["mean"] for record in row])
        cells = [cell_of(AMCA, record, record["mean"] == best) for record in row]
        if not replay:
            cells[columns.index("no Phase III")] = TableCell("–")  # it is learned on the memory alone
        rows.append([TableCell(benchmark_title(benchmark) + ("" if replay else " (no replay)")), *cells])
        records += row
    header = ["AMCA ↑", "Full algorithm", *(change[0].upper() + change[1:] for change in columns[1:])]
    caption = (
        "AMCA of TPC, whole and with parts taken away or altered. Each row is on the orders that its columns share."
    )
    return Table("ablation", "Ablation", caption, header, rows, records, conditions(grouped))


def _record(grouped: GroupedRuns, change: str, benchmark: str, replay: bool) -> dict[str, Any]:
    """One cell as numbers, without ratios: the columns are compared directly."""
    record = record_of(grouped, AMCA, "tpc", change, benchmark, replay)
    return record | {"ratio_to_tpc": None, "paper_ratio": None}
