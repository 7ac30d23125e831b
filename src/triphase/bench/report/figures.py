"""The figures of a report, fit for a paper: one colour per learner, TPC violet, legible on light and dark."""

from __future__ import annotations

import io
import re
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import PowerNorm
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from triphase.bench import metrics
from triphase.bench.benchmarks import file_name
from triphase.bench.report.group import Entry, Gathered
from triphase.bench.report.intervals import difference
from triphase.bench.report.side_tables import reference_of
from triphase.bench.report.titles import benchmark_title

INK = "#24292f"  # of text and axes; a page puts its own colour in its place
COLOURS = {
    "tpc": "#8b4fd9",
    "anchored": "#4b1a8f",
    "ar1": "#e0861a",
    "bic": "#1f9d61",
    "derpp": "#2f80d8",
    "replay": "#18a3b5",
    "finetune": "#d9483b",
    "ncm": "#a07a54",
    "slda": "#d0589f",
    "slda_depths": "#8c2f66",
    "ranpac": "#8f9a1e",
    "joint": "#808890",
}
NEW_COLOURS = ("#5a5fe0", "#c0407a", "#3f8f8a", "#b5651d")  # of learners that come later
MARKERS = {"tpc": "o", "anchored": "p", "ar1": "s", "bic": "^", "derpp": "D", "replay": "v", "finetune": "x"}
MARKERS |= {"ncm": "P", "slda": "*", "slda_depths": "X", "ranpac": "h"}
PHASES = {
    "start": "#9aa3ad",
    "I": "#c9a9f2",
    "II": "#8b4fd9",
    "III": "#5b2a9d",
    "train": "#2f80d8",
    "E_1": "#e0b13a",
}
PARTS = {"data": "#e0861a", "llf": "#1f9d61", "csf": "#2f80d8", "head": "#8b4fd9", "other": "#9aa3ad"}
STYLE: dict[Any, Any] = {
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "legend.frameon": False,
    "text.parse_math": False,  # a $ in somebody's name is a $
    "svg.hashsalt": "triphase",  # the same runs give the same file
    **dict.fromkeys(("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color"), INK),
}


def all_figures(gathered: Gathered) -> Iterator[tuple[str, str, Figure]]:
    """Every figure of a report: the name of its files, its title and itself."""
    for benchmark in gathered.benchmarks:
        entries, title = gathered.of(benchmark), benchmark_title(benchmark)
        compared = [entry for entry in entries if entry.compared]
        learning = [entry for entry in compared if entry.learner != "joint"]
        bare = [entry for entry in entries if not entry.replay and not entry.change]
        differing = [entry for entry in entries if entry.compared and reference_of(gathered, entry)]
        drawn: list[tuple[str, str, Callable[[list[Entry]], Figure], list[Entry]]] = [
            ("accuracy", "accuracy after each experience", curves, compared),
            (
                "no-replay",
                "without replay",
                curves,
                [e for e in learning if e.learner == "tpc"] + bare if bare else [],
            ),
            ("paired", "paired differences to TPC", lambda some: forest(gathered, some), differing),
            ("forgetting", "forgetting of each class", forgetting, [e for e in learning if _forgot(e)]),
            ("confusion", "confusion after the last experience", confusion, compared),
            ("phases", "time per phase", lambda some: stacked(some, "phase_seconds", PHASES), compared),
            ("parts", "time per part", lambda some: stacked(some, "part_seconds", PARTS), compared),
        ]
        for name, what, draw, some in drawn:
            if some:
                with _style():
                    figure = draw(some)
                yield f"{file_name(benchmark)}-{name}", f"{title}: {what}", figure


def curves(entries: Sequence[Entry]) -> Figure:
    """Accuracy after each experience, mean and standard deviation over runs; joint training as a dashed line."""
    figure = Figure(figsize=(7.2, 3.9), layout="constrained")
    axes = figure.subplots()
    for entry in entries:
        values = 100 * np.array([run.report.curve for run in entry.runs])
        mean, colour = values.mean(0), colour_of(entry.learner)
        if entry.learner == "joint":
            axes.axhline(
                mean[-1],
                color=colour,
                linestyle="--",
                linewidth=1.4,
                label=f"{entry.title} (final: {mean[-1]:.1f})",
            )
            continue
        x = entry.runs[0].report.evaluated_after
        marker = MARKERS.get(entry.learner, "o") if len(x) <= 50 else ""
        main = entry.learner == "tpc" and entry.replay
        axes.plot(
            x,
            mean,
            color=colour,
            marker=marker,
            markersize=3.5,
            markevery=max(1, len(x) // 12),
            linewidth=2.2 if main else 1.4,
            linestyle="-" if entry.replay else (0, (4, 1.5)),
            zorder=4 if main else 3,
            label=f"{entry.title} ({mean.mean():.1f})",
        )
        if len(values) > 1:
            std = values.std(0, ddof=1)
            axes.fill_between(x, mean - std, mean + std, color=colour, alpha=0.16, linewidth=0)
    seen = entries[0].runs[0].report.evaluation == "seen"
    where = "the classes seen so far" if seen else "all classes"
    axes.set(xlabel="experience", ylabel=f"accuracy on {where} (%)", ylim=(0, 101))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(axis="y", alpha=0.25)
    figure.legend(loc="outside right center", title="AMCA in brackets", alignment="left")
    return figure


def forest(gathered: Gathered, entries: Sequence[Entry]) -> Figure:
    """Differences to TPC with their 95 % intervals: thin over orders, thick by bootstrap."""
    panels = (("amca", "AMCA"), ("final", "final accuracy"))
    figure = Figure(figsize=(7.2, 0.8 + 0.3 * len(entries)), layout="constrained")
    for axes, (metric, title) in zip(figure.subplots(1, 2, sharey=True), panels, strict=True):
        for place, entry in enumerate(entries):
            reference = reference_of(gathered, entry)
            found = difference(entry, reference, metric) if reference else None
            if found is None:
                continue
            colour = colour_of(entry.learner)
            for interval, width in ((found.over_orders, 1.2), (found.bootstrap, 3.2)):
                if interval is not None:
                    ends = [100 * end for end in interval]
                    axes.plot(ends, [place, place], color=colour, linewidth=width, solid_capstyle="butt")
            axes.plot(100 * found.mean, place, "o", color=colour, markeredgecolor="white", markersize=6, zorder=4)
        axes.axvline(0, color=colour_of("tpc"), linewidth=1.4)
        axes.set(xlabel=f"{title}, minus TPC's (points)", ylim=(len(entries) - 0.4, -0.6))
        axes.set_yticks(range(len(entries)), [entry.title for entry in entries])
        axes.grid(axis="x", alpha=0.25)
    return figure


def forgetting(entries: Sequence[Entry]) -> Figure:
    """How much of each class was lost, in order of arrival, mean over runs; blue is a gain."""
    found = [_forgotten(entry) for entry in entries]
    rows = np.full((len(found), max(map(len, found))), np.nan)  # who learned fewer classes has a shorter row
    for row, values in zip(rows, found, strict=True):
        row[: len(values)] = values
    limit = max(1.0, float(np.nanmax(np.abs(rows))))
    figure = Figure(figsize=(7.2, 0.9 + 0.3 * len(rows)), layout="constrained")
    axes = figure.subplots()
    picture = axes.imshow(rows, vmin=-limit, vmax=limit, cmap="RdBu_r", aspect="auto", interpolation="nearest")
    labels = [f"{e.title}  {np.nanmean(row):.1f}" for e, row in zip(entries, rows, strict=True)]
    axes.set_yticks(range(len(rows)), labels)
    axes.set(xlabel="class, in order of arrival (mean beside the name)")
    _class_ticks(axes, rows.shape[1])
    axes.spines[:].set_visible(False)
    figure.colorbar(picture, ax=axes, label="forgetting (points)", pad=0.01)
    return figure


def confusion(entries: Sequence[Entry]) -> Figure:
    """What each class was taken for, in order of arrival, summed over runs: a bias shows as a vertical band."""
    columns = min(4, len(entries))
    lines = -(-len(entries) // columns)
    size = 6.4 / max(columns, 3)
    figure = Figure(figsize=(size * columns + 0.8, (size + 0.12) * lines + 0.35), layout="constrained")
    grid = figure.subplots(lines, columns, squeeze=False, sharex=True, sharey=True)
    picture: Any = None
    for axes, entry in zip(grid.flat, entries, strict=False):
        counts = np.sum([np.array(run.report.confusion) for run in entry.runs], axis=0)
        shares = 100 * counts / np.maximum(counts.sum(1, keepdims=True), 1)
        norm = PowerNorm(0.5, vmin=0, vmax=100)  # a square root: rare confusions show, too
        picture = axes.imshow(shares, norm=norm, cmap="magma", interpolation="nearest")
        axes.set_title(entry.title)
        _class_ticks(axes, len(shares), parts=2)
        axes.set_yticks(axes.get_xticks(), axes.get_xticklabels())
        axes.spines[:].set_visible(False)
    for axes in grid.flat[len(entries) :]:
        axes.set_visible(False)
    for axes in grid[:, 0]:
        axes.set_ylabel("class")
    for axes in grid[-1]:
        axes.set_xlabel("taken for")
    figure.colorbar(picture, ax=grid, label="% of the class", shrink=0.8, pad=0.01, ticks=[0, 5, 25, 50, 100])
    return figure


def stacked(entries: Sequence[Entry], which: str, colours: dict[str, str]) -> Figure:
    """Seconds of training per learner, mean over runs, as stacked bars."""
    seconds = [[getattr(run.report, which) for run in entry.runs] for entry in entries]
    names = dict.fromkeys(name for runs in seconds for run in runs for name in run)
    ordered = [name for name in colours if name in names] + [name for name in names if name not in colours]
    figure = Figure(figsize=(7.2, 0.8 + 0.28 * len(entries)), layout="constrained")
    axes = figure.subplots()
    left = np.zeros(len(entries))
    for name in ordered:
        width = np.array([np.mean([run.get(name, 0.0) for run in runs]) for runs in seconds])
        label = f"Phase {name}" if name in ("I", "II", "III") else name
        axes.barh(range(len(entries)), width, left=left, label=label, color=colours.get(name) or _new_colour(name))
        left += width
    for place, total in enumerate(left):
        axes.text(total, place, f" {total:.{0 if total >= 100 else 1}f}", va="center", fontsize=8)
    axes.set_yticks(range(len(entries)), [entry.title for entry in entries])
    axes.invert_yaxis()
    axes.margins(x=0.1)
    axes.set_xlabel("seconds of training")
    axes.grid(axis="x", alpha=0.25)
    figure.legend(loc="outside right center")
    return figure


def colour_of(learner: str) -> str:
    """Its own; a learner that nobody knew gets one that stays the same."""
    return COLOURS.get(learner) or _new_colour(learner)


def _new_colour(name: str) -> str:
    return NEW_COLOURS[zlib.crc32(name.encode()) % len(NEW_COLOURS)]


def _forgotten(entry: Entry) -> Any:
    rows = [metrics.forgetting(run.report.matrix).numpy() for run in entry.runs]
    return 100 * np.mean(rows, axis=0)


def _forgot(entry: Entry) -> bool:
    return bool(np.isfinite(_forgotten(entry)).any())


def _class_ticks(axes: Axes, n_classes: int, parts: int = 10) -> None:
    """Classes counted from 1, at round numbers."""
    step = max(1, round(n_classes / parts))
    numbers = sorted({1, *range(step, n_classes + 1, step)})
    axes.set_xticks([number - 1 for number in numbers], [str(number) for number in numbers])


@contextmanager
def _style() -> Iterator[None]:
    with matplotlib.rc_context(STYLE):
        yield


def png(figure: Figure, dpi: int = 200) -> bytes:
    """A figure as the bytes of a PNG file, on white."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=dpi, facecolor="white", metadata={"Software": None})
    return buffer.getvalue()


def svg(figure: Figure) -> str:
    """A figure as SVG on no ground at all."""
    buffer = io.StringIO()
    with _style():
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
    return buffer.getvalue()


def inline(picture: str) -> str:
    """An SVG to put into a page: in the page's own ink, and without a word about other places."""
    body = picture[picture.index("<svg") :]
    body = re.sub(r"<metadata>.*?</metadata>", "", body, flags=re.DOTALL)
    body = re.sub(r'\sxmlns(:\w+)?="[^"]*"', "", body)
    return body.replace(INK, "currentColor")
