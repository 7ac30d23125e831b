"""The table of paired differences: learners and ablations minus TPC, and learners minus Anchored."""

from __future__ import annotations

from typing import Any

from triphase.bench.report.group import Group, GroupedRuns, reference_of
from triphase.bench.report.intervals import DRAWS, Difference, Interval, difference
from triphase.bench.report.tables import Table, TableCell, signed
from triphase.bench.report.titles import benchmark_title, group_title

MEASURE_TITLES = {"amca": "AMCA", "final": "Final"}
NUMBERS = ("runs", "mean", "orders_low", "orders_high", "bootstrap_low", "bootstrap_high")
CAPTION = (
    "Mean difference on the same class orders and seeds, in points, with two 95 % intervals; bold where one "
    "excludes zero. Over orders: Student's t on the differences per class order. Bootstrap: class orders and test "
    f"classes drawn anew {DRAWS} times, the same for both; with few orders it understates the spread between them."
)


def differences(grouped: GroupedRuns) -> Table:
    """Every learner and ablation minus TPC, then every learner minus Anchored, in points, with 95 % intervals."""
    rows, records = [], []
    for group, reference in (pair for benchmark in grouped.benchmarks for pair in _pairs(grouped, benchmark)):
        found = {measure: difference(group, reference, measure) for measure in MEASURE_TITLES}
        if found["final"] is None:
            continue
        under = f"minus {reference.title}" if reference.title != group_title("tpc", "") else ""
        cells = [TableCell(benchmark_title(group.benchmark)), TableCell(group.title, under)]
        cells.append(TableCell(str(found["final"].n)))
        titles = {"benchmark": group.benchmark, "learner": group.title, "minus": reference.title}
        for measure, each in found.items():
            cells += _cells(each)
            records.append(titles | {"metric": measure} | _numbers(each))
        rows.append(cells)
    header = ["Benchmark", "Learner (minus TPC)", "Runs"]
    header += [f"{title}{part}" for title in MEASURE_TITLES.values() for part in ("", " over orders", " bootstrap")]
    return Table("paired", "Paired differences", CAPTION, header, rows, records)


def _pairs(grouped: GroupedRuns, benchmark: str) -> list[tuple[Group, Group]]:
    """What is compared with what: all with TPC, and learners as they are also with Anchored, if it was run."""
    found = grouped.of(benchmark)
    pairs = [(group, reference) for group in found if (reference := reference_of(grouped, group)) is not None]
    anchored = grouped.get(benchmark, "anchored")
    if anchored is not None:
        pairs += [(group, anchored) for group in found if group.in_main_tables and group is not anchored]
    return pairs


def _cells(found: Difference | None) -> list[TableCell]:
    if found is None:
        return [TableCell("–")] * 3
    intervals = [_interval_cell(interval) for interval in (found.over_orders, found.bootstrap)]
    return [TableCell(signed(100 * found.mean)), *intervals]


def _interval_cell(interval: Interval | None) -> TableCell:
    if interval is None:
        return TableCell("–")
    low, high = (100 * end for end in interval)
    return TableCell(f"{signed(low)} to {signed(high)}", best=low > 0 or high < 0)


def _numbers(found: Difference | None) -> dict[str, Any]:
    if found is None:
        return dict.fromkeys(NUMBERS)
    bootstrap = [100 * end for end in found.bootstrap]
    orders = [None, None] if found.over_orders is None else [100 * end for end in found.over_orders]
    return dict(zip(NUMBERS, (found.n, 100 * found.mean, *orders, *bootstrap), strict=True))
