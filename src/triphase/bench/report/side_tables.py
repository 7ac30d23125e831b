"""The other tables of a report: paired differences, the ablation, without replay, and the settings behind all."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from statistics import fmean
from typing import Any

from triphase.bench import metrics
from triphase.bench.learners import LEARNERS
from triphase.bench.report import paper
from triphase.bench.report.caveats import conditions
from triphase.bench.report.group import DEFAULTS, Entry, Gathered
from triphase.bench.report.intervals import Difference, Interval, difference
from triphase.bench.report.tables import (
    METRICS,
    Cell,
    Table,
    best_of,
    cell_of,
    compared,
    record_of,
    signed,
)
from triphase.bench.report.titles import benchmark_title, rank, title_of

IN_WHAT_WAS_RUN = ("t", "s", "w_bc")  # TPC's own options are shown where they are altered, and these always
NOT_OPTIONS = {"benchmark", "order", "backbone", "image_size", "per_class", "classes", "epochs_scale"}
NOT_OPTIONS |= {"norm", "bfloat16", "compiled", "head", "weights", "learner", "seed", "pretrained", "memory"}
NOT_OPTIONS |= {"first", "rest", "stream", "threads"}


def all_tables(gathered: Gathered) -> list[Table]:
    """Every table of a report, in its order."""
    main, more = METRICS[:3], METRICS[3:]
    optional = [table for table in (ablation(gathered), no_replay(gathered)) if table is not None]
    tables = [compared(gathered, metric) for metric in main] + [differences(gathered), *optional]
    return tables + [compared(gathered, metric) for metric in more] + [what_was_run(gathered)]


def no_replay(gathered: Gathered) -> Table | None:
    """Learners without their memory, beside TPC with it; None if there are none."""
    benchmarks = [b for b in gathered.benchmarks if any(not e.replay and not e.change for e in gathered.of(b))]
    if not benchmarks:
        return None
    learners = sorted({e.learner for e in gathered.entries if not e.replay and not e.change}, key=rank)
    keys = [("tpc", True), *((learner, replay) for learner in learners for replay in (True, False))]
    rows, records, shown = [], [], METRICS[:2]
    alike = {
        b: _on_common_orders([e for e in gathered.of(b) if not e.change and (e.learner, e.replay) in keys])
        for b in benchmarks
    }
    for learner, replay in dict.fromkeys(keys):
        cells = [Cell(title_of(learner, "", replay))]
        for benchmark in benchmarks:
            for metric in shown:
                record = record_of(alike[benchmark], metric, learner, "", benchmark, replay)
                cells.append(cell_of(metric, record, best=False))
                records.append({"metric": metric.name, **record})
        rows.append(cells)
    header = ["No replay", *(f"{benchmark_title(b)}: {metric.title}" for b in benchmarks for metric in shown)]
    caption = (
        "Without a memory only the head learns after the first experience. Each benchmark on the orders that all "
        "of these share; in brackets as a multiple of TPC's."
    )
    return Table("no-replay", "Without replay", caption, header, rows, records, conditions(gathered))


def ablation(gathered: Gathered) -> Table | None:
    """AMCA of TPC with parts taken away, as in the paper's Table 6; None if TPC was not run."""
    ours = [entry for entry in gathered.entries if entry.learner == "tpc"]
    if not ours:
        return None
    printed = list(paper.ABLATION["core50-41", True])
    columns = printed + sorted({e.change for e in ours} - set(printed))
    pairs = {(e.benchmark, e.replay) for e in ours} | {(e.benchmark, True) for e in ours}
    rows, records, metric = [], [], METRICS[0]
    for benchmark, replay in sorted(pairs, key=lambda p: (gathered.benchmarks.index(p[0]), not p[1])):
        alike = _on_common_orders([e for e in ours if (e.benchmark, e.replay) == (benchmark, replay)])
        row = [record_of(alike, metric, "tpc", change, benchmark, replay) for change in columns]
        for record in row:
            record["ratio_to_tpc"] = record["paper_ratio"] = None  # the columns speak for themselves
        best = best_of(metric, [record["mean"] for record in row])
        cells = [cell_of(metric, record, record["mean"] == best) for record in row]
        if not replay:
            cells[columns.index("no Phase III")] = Cell("–")  # it is learned on the memory alone
        rows.append([Cell(benchmark_title(benchmark) + ("" if replay else " (no replay)")), *cells])
        records += row
    header = ["AMCA ↑", "Full algorithm", *(change[0].upper() + change[1:] for change in columns[1:])]
    caption = (
        "AMCA of TPC, whole and with parts taken away or altered. Each row is on the orders that its columns share."
    )
    return Table("ablation", "Ablation", caption, header, rows, records, conditions(gathered))


def _on_common_orders(entries: list[Entry]) -> Gathered:
    """Entries with the class orders and seeds that all of them have; as they are if they share none."""
    occasions = [{run.occasion for run in entry.runs} for entry in entries]
    common = set.intersection(*occasions) if occasions else set()
    if not common:
        return Gathered(entries, [])
    return Gathered([replace(e, runs=tuple(r for r in e.runs if r.occasion in common)) for e in entries], [])


def differences(gathered: Gathered) -> Table:
    """Every learner and ablation minus TPC, then every learner minus Anchored, in points, with 95 % intervals."""
    rows, records = [], []
    for benchmark in gathered.benchmarks:
        for entry, reference in _pairs(gathered, benchmark):
            found = {m: difference(entry, reference, m) for m in ("amca", "final")}
            if not found["final"]:
                continue
            under = f"minus {reference.title}" if reference.title != title_of("tpc", "") else ""
            cells = [Cell(benchmark_title(benchmark)), Cell(entry.title, under), Cell(str(found["final"].n))]
            for metric, d in found.items():
                cells += _difference_cells(d)
                names = {"benchmark": benchmark, "learner": entry.title, "minus": reference.title, "metric": metric}
                records.append(names | _numbers(d))
            rows.append(cells)
    header = ["Benchmark", "Learner (minus TPC)", "Runs"]
    header += [f"{m}{part}" for m in ("AMCA", "Final") for part in ("", " over orders", " bootstrap")]
    caption = (
        "Mean difference on the same class orders and seeds, in points, with two 95 % intervals; bold where one "
        "excludes zero. Over orders: Student's t on the differences per run. Bootstrap: class orders and test "
        "classes drawn anew 4000 times, the same for both; with few orders it understates the spread between them."
    )
    return Table("paired", "Paired differences", caption, header, rows, records)


def _pairs(gathered: Gathered, benchmark: str) -> list[tuple[Entry, Entry]]:
    """What is compared with what: all with TPC, and learners as they are also with the recipe, if it was run."""
    entries = gathered.of(benchmark)
    pairs = [(entry, reference) for entry in entries if (reference := reference_of(gathered, entry)) is not None]
    recipe = gathered.get(benchmark, "anchored")
    if recipe is not None:
        pairs += [(entry, recipe) for entry in entries if entry.compared and entry is not recipe]
    return pairs


def reference_of(gathered: Gathered, entry: Entry) -> Entry | None:
    """What an entry is measured against: TPC as it is, without replay for those without; nothing for TPC itself."""
    is_tpc = entry.learner == "tpc" and not entry.change
    if is_tpc and entry.replay:
        return None
    return gathered.get(entry.benchmark, "tpc", replay=entry.replay or is_tpc)


def _difference_cells(d: Difference | None) -> list[Cell]:
    if d is None:
        return [Cell("–")] * 3
    intervals = [_interval_cell(interval) for interval in (d.over_orders, d.bootstrap)]
    return [Cell(signed(100 * d.mean)), *intervals]


def _interval_cell(interval: Interval | None) -> Cell:
    if interval is None:
        return Cell("–")
    low, high = (100 * end for end in interval)
    return Cell(f"{signed(low)} to {signed(high)}", best=low > 0 or high < 0)


def _numbers(d: Difference | None) -> dict[str, Any]:
    names = ("runs", "mean", "orders_low", "orders_high", "bootstrap_low", "bootstrap_high")
    if d is None:
        return dict.fromkeys(names)
    ends = [100 * end for end in d.bootstrap]
    over = [None, None] if d.over_orders is None else [100 * end for end in d.over_orders]
    return dict(zip(names, (d.n, 100 * d.mean, *over, *ends), strict=True))


def class_records(gathered: Gathered) -> list[dict[str, Any]]:
    """Final accuracy and forgetting of every class in points, mean over runs: for a file, not for a page."""
    records = []
    for entry in gathered.entries:
        by_class: dict[str, list[tuple[float, float]]] = {}
        for run in entry.runs:
            last, lost = run.report.matrix[-1].tolist(), metrics.forgetting(run.report.matrix).tolist()
            for name, *pair in zip(run.report.names, last, lost, strict=False):
                by_class.setdefault(name, []).append((100 * pair[0], 100 * pair[1]))
        for name, pairs in by_class.items():
            final, forgotten = ([v for v in values if not math.isnan(v)] for values in zip(*pairs, strict=True))
            record: dict[str, Any] = {"benchmark": entry.benchmark, "learner": entry.title, "class": name}
            record |= {"final": fmean(final) if final else None}
            records.append(record | {"forgetting": fmean(forgotten) if forgotten else None})
    return records


def what_was_run(gathered: Gathered) -> Table:
    """The settings behind every number."""
    names = ("benchmark", "learner", "orders", "seeds", "lr", "csf_lr", "epochs", "minibatch", "memory", "options")
    records = []
    for benchmark in gathered.benchmarks:
        for entry in gathered.of(benchmark):
            only = entry.learner == "joint"  # all of its data is one experience
            recipe, memory = entry.settings["first" if only else "rest"], entry.settings.get("memory")
            seeds = sorted({run.occasion[1] for run in entry.runs})
            csf_lr = recipe["lr"] if recipe["csf_lr"] is None else recipe["csf_lr"]
            values: list[Any] = [benchmark_title(benchmark), entry.title, _list(entry.orders), _list(seeds)]
            how = [recipe["lr"], csf_lr, recipe["epochs"], f"{recipe['n_mbe']}:{recipe['n_mbr']}"]
            closed = entry.learner in LEARNERS and LEARNERS[entry.learner].lr == "unused"
            values += ["–"] * 4 if closed else how
            values += [memory["capacity"] if memory else 0, _options(entry)]
            records.append(dict(zip(names, values, strict=True)))
    rows = [[Cell(str(record[name])) for name in names] for record in records]
    header = [name.replace("csf_lr", "lr of csf").capitalize() for name in names]
    caption = (
        "The settings behind every number; epochs and minibatches (current:replayed) after the first experience, "
        "of joint training in the one that it has."
    )
    return Table("runs", "What was run", caption, header, rows, records)


def _list(values: Iterable[int]) -> str:
    return ", ".join(map(str, values))


def _options(entry: Entry) -> str:
    """The learner's own options; of TPC's many, those that the paper names and those that were altered."""
    own = {name: value for name, value in entry.settings.items() if name not in NOT_OPTIONS}
    if entry.learner in ("tpc", "anchored"):
        own = {n: v for n, v in own.items() if n in IN_WHAT_WAS_RUN or v != DEFAULTS.get(n)}
    return ", ".join(f"{name} = {value}" for name, value in own.items())
