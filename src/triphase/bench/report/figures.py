"""The figures of a report."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import PowerNorm
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from triphase.bench import metrics
from triphase.bench.benchmarks import file_name
from triphase.bench.report.figure_style import MARKERS, PARTS, PHASES, colour_of, new_colour, styled
from triphase.bench.report.group import Group, GroupedRuns, reference_of
from triphase.bench.report.intervals import difference
from triphase.bench.report.titles import benchmark_title

Draw = Callable[[list[Group]], Figure]


def all_figures(grouped: GroupedRuns) -> Iterator[tuple[str, str, Figure]]:
    """Every figure of a report: the name of its files, its title and the figure."""
    for benchmark in grouped.benchmarks:
        for name, title, draw, shown in _figures(grouped, benchmark):
            if shown:
                with styled():
                    figure = draw(shown)
                yield f"{file_name(benchmark)}-{name}", f"{benchmark_title(benchmark)}: {title}", figure


def _figures(grouped: GroupedRuns, benchmark: str) -> list[tuple[str, str, Draw, list[Group]]]:
    """Name, title and function of each figure of a benchmark, and the groups that it shows."""
    found = grouped.of(benchmark)
    main = [group for group in found if group.in_main_tables]
    in_steps = [group for group in main if not group.is_joint]
    without_replay = [group for group in found if not group.replay and not group.change]
    with_and_without = [group for group in in_steps if group.learner == "tpc"] + without_replay
    return [
        ("accuracy", "accuracy after each experience", curves, main),
        ("no-replay", "without replay", curves, with_and_without if without_replay else []),
        (
            "paired",
            "paired differences to TPC",
            lambda shown: forest(grouped, shown),
            [group for group in main if reference_of(grouped, group)],
        ),
        ("forgetting", "forgetting of each class", forgetting, [g for g in in_steps if _has_forgetting(g)]),
        ("confusion", "confusion after the last experience", confusion, main),
        ("phases", "time per phase", lambda shown: stacked(shown, "phase_seconds", PHASES), main),
        ("parts", "time per part", lambda shown: stacked(shown, "part_seconds", PARTS), main),
    ]


def curves(groups: Sequence[Group]) -> Figure:
    """Accuracy after each experience, mean and standard deviation over runs; joint training as a dashed line."""
    figure = Figure(figsize=(7.2, 3.9), layout="constrained")
    axes = figure.subplots()
    for group in groups:
        accuracies = 100 * np.array([run.report.curve for run in group.runs])  # (runs, evaluations)
        if group.is_joint:
            final, colour = accuracies.mean(0)[-1], colour_of(group.learner)
            label = f"{group.title} (final: {final:.1f})"
            axes.axhline(final, color=colour, linestyle="--", linewidth=1.4, label=label)
        else:
            _draw_curve(axes, group, accuracies)
    seen = groups[0].runs[0].report.evaluation == "seen"
    where = "the classes seen so far" if seen else "all classes"
    axes.set(xlabel="experience", ylabel=f"accuracy on {where} (%)", ylim=(0, 101))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(axis="y", alpha=0.25)
    figure.legend(loc="outside right center", title="AMCA in brackets", alignment="left")
    return figure


def _draw_curve(axes: Axes, group: Group, accuracies: Any) -> None:
    x, mean, colour = group.runs[0].report.evaluated_after, accuracies.mean(0), colour_of(group.learner)
    main = group.learner == "tpc" and group.replay
    axes.plot(
        x,
        mean,
        color=colour,
        marker=MARKERS.get(group.learner, "o") if len(x) <= 50 else "",
        markersize=3.5,
        markevery=max(1, len(x) // 12),
        linewidth=2.2 if main else 1.4,
        linestyle="-" if group.replay else (0, (4, 1.5)),
        zorder=4 if main else 3,
        label=f"{group.title} ({mean.mean():.1f})",
    )
    if len(accuracies) > 1:
        std = accuracies.std(0, ddof=1)
        axes.fill_between(x, mean - std, mean + std, color=colour, alpha=0.16, linewidth=0)


def forest(grouped: GroupedRuns, shown: Sequence[Group]) -> Figure:
    """Differences to TPC with their 95 % intervals: thin over orders, thick by bootstrap."""
    panels = (("amca", "AMCA"), ("final", "final accuracy"))
    figure = Figure(figsize=(7.2, 0.8 + 0.3 * len(shown)), layout="constrained")
    for axes, (metric, title) in zip(figure.subplots(1, 2, sharey=True), panels, strict=True):
        for place, group in enumerate(shown):
            reference = reference_of(grouped, group)
            found = difference(group, reference, metric) if reference else None
            if found is None:
                continue
            colour = colour_of(group.learner)
            for interval, width in ((found.over_orders, 1.2), (found.bootstrap, 3.2)):
                if interval is not None:
                    ends = [100 * end for end in interval]
                    axes.plot(ends, [place, place], color=colour, linewidth=width, solid_capstyle="butt")
            axes.plot(100 * found.mean, place, "o", color=colour, markeredgecolor="white", markersize=6, zorder=4)
        axes.axvline(0, color=colour_of("tpc"), linewidth=1.4)
        axes.set(xlabel=f"{title}, minus TPC's (points)", ylim=(len(shown) - 0.4, -0.6))
        axes.set_yticks(range(len(shown)), [group.title for group in shown])
        axes.grid(axis="x", alpha=0.25)
    return figure


def forgetting(groups: Sequence[Group]) -> Figure:
    """Forgetting of each class, in order of arrival, mean over runs; blue is a gain."""
    found = [_forgotten(group) for group in groups]
    rows = np.full((len(found), max(map(len, found))), np.nan)  # with fewer classes, the row is shorter
    for row, values in zip(rows, found, strict=True):
        row[: len(values)] = values
    limit = max(1.0, float(np.nanmax(np.abs(rows))))
    figure = Figure(figsize=(7.2, 0.9 + 0.3 * len(rows)), layout="constrained")
    axes = figure.subplots()
    picture = axes.imshow(rows, vmin=-limit, vmax=limit, cmap="RdBu_r", aspect="auto", interpolation="nearest")
    labels = [f"{group.title}  {np.nanmean(row):.1f}" for group, row in zip(groups, rows, strict=True)]
    axes.set_yticks(range(len(rows)), labels)
    axes.set(xlabel="class, in order of arrival (mean beside the name)")
    _class_ticks(axes, rows.shape[1])
    axes.spines[:].set_visible(False)
    figure.colorbar(picture, ax=axes, label="forgetting (points)", pad=0.01)
    return figure


def confusion(groups: Sequence[Group]) -> Figure:
    """What each class was taken for, in order of arrival, summed over runs: a bias shows as a vertical band."""
    columns = min(4, len(groups))
    lines = -(-len(groups) // columns)
    size = 6.4 / max(columns, 3)
    figure = Figure(figsize=(size * columns + 0.8, (size + 0.12) * lines + 0.35), layout="constrained")
    grid = figure.subplots(lines, columns, squeeze=False, sharex=True, sharey=True)
    picture: Any = None
    for axes, group in zip(grid.flat, groups, strict=False):
        counts = np.sum([np.array(run.report.confusion) for run in group.runs], axis=0)
        shares = 100 * counts / np.maximum(counts.sum(1, keepdims=True), 1)
        norm = PowerNorm(0.5, vmin=0, vmax=100)  # a square root: rare confusions show, too
        picture = axes.imshow(shares, norm=norm, cmap="magma", interpolation="nearest")
        axes.set_title(group.title)
        _class_ticks(axes, len(shares), parts=2)
        axes.set_yticks(axes.get_xticks(), axes.get_xticklabels())
        axes.spines[:].set_visible(False)
    for axes in grid.flat[len(groups) :]:
        axes.set_visible(False)
    for axes in grid[:, 0]:
        axes.set_ylabel("class")
    for axes in grid[-1]:
        axes.set_xlabel("taken for")
    figure.colorbar(picture, ax=grid, label="% of the class", shrink=0.8, pad=0.01, ticks=[0, 5, 25, 50, 100])
    return figure


def stacked(groups: Sequence[Group], which: str, colours: dict[str, str]) -> Figure:
    """Seconds of training per learner, mean over runs, as stacked bars."""
    seconds = [[getattr(run.report, which) for run in group.runs] for group in groups]
    names = dict.fromkeys(name for runs in seconds for run in runs for name in run)
    ordered = [name for name in colours if name in names] + [name for name in names if name not in colours]
    figure = Figure(figsize=(7.2, 0.8 + 0.28 * len(groups)), layout="constrained")
    axes = figure.subplots()
    left = np.zeros(len(groups))
    for name in ordered:
        width = np.array([np.mean([run.get(name, 0.0) for run in runs]) for runs in seconds])
        label = f"Phase {name}" if name in ("I", "II", "III") else name
        axes.barh(range(len(groups)), width, left=left, label=label, color=colours.get(name) or new_colour(name))
        left += width
    for place, total in enumerate(left):
        axes.text(total, place, f" {total:.{0 if total >= 100 else 1}f}", va="center", fontsize=8)
    axes.set_yticks(range(len(groups)), [group.title for group in groups])
    axes.invert_yaxis()
    axes.margins(x=0.1)
    axes.set_xlabel("seconds of training")
    axes.grid(axis="x", alpha=0.25)
    figure.legend(loc="outside right center")
    return figure


def _forgotten(group: Group) -> Any:
    rows = [metrics.forgetting(run.report.matrix).numpy() for run in group.runs]
    return 100 * np.mean(rows, axis=0)


def _has_forgetting(group: Group) -> bool:
    return bool(np.isfinite(_forgotten(group)).any())


def _class_ticks(axes: Axes, n_classes: int, parts: int = 10) -> None:
    """Classes counted from 1, at round numbers."""
    step = max(1, round(n_classes / parts))
    numbers = sorted({1, *range(step, n_classes + 1, step)})
    axes.set_xticks([number - 1 for number in numbers], [str(number) for number in numbers])
