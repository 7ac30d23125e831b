"""The page of the demo: one table, the accuracy curves, and the accuracy of every class."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from triphase import state as files
from triphase.bench.learners import is_joint
from triphase.bench.report.figure_style import colour_of, png
from triphase.bench.report.html import render
from triphase.bench.report.titles import learner_title
from triphase.bench.run.results import Report


def rows(reports: Mapping[str, Report]) -> list[dict[str, Any]]:
    """The rows of the table, one per learner."""
    return [
        {
            "learner": learner_title(name),
            "amca": report.amca if not is_joint(name) else None,  # joint training has one evaluation, not a curve
            "final": report.final_accuracy,
            "seconds": report.train_seconds,
            "memory_bytes": report.memory_bytes,
        }
        for name, report in reports.items()
    ]


def curves(reports: Mapping[str, Report], title: str) -> Figure:
    """Accuracy after each experience; joint training, which has one accuracy only, as a dashed line."""
    with matplotlib.rc_context({"font.size": 10, "axes.spines.top": False, "axes.spines.right": False}):
        figure = Figure(figsize=(7, 4.2), layout="constrained")
        axes = figure.subplots()
        for name, report in reports.items():
            colour, label = colour_of(name), learner_title(name)
            accuracy = [100 * value for value in report.curve]
            if is_joint(name):
                axes.axhline(accuracy[-1], color=colour, linestyle="--", linewidth=1.2, label=label)
            else:
                label += f" ({100 * report.amca:.1f} AMCA)"
                axes.plot(report.evaluated_after, accuracy, "o-", color=colour, label=label, markersize=4)
        axes.set(xlabel="experience", ylabel="accuracy on the classes seen so far (%)", ylim=(0, 102), title=title)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.grid(axis="y", alpha=0.3)
        axes.legend(frameon=False, loc="lower left")
    return figure


def class_map(report: Report, title: str) -> Figure:
    """Accuracy of every class after every experience: forgetting is a column that fades on its way down."""
    figure = Figure(figsize=(7, 3.2), layout="constrained")
    axes = figure.subplots()
    picture = axes.imshow(report.matrix * 100, vmin=0, vmax=100, cmap="viridis", aspect="auto")
    axes.set(xlabel="class, in order of arrival", ylabel="after experience", title=title)
    axes.set_xticks(range(len(report.names)), report.names)
    axes.set_yticks(range(len(report.evaluated_after)), [str(i) for i in report.evaluated_after])
    figure.colorbar(picture, ax=axes, label="accuracy (%)")
    return figure


def write_page(out: Path, title: str, command: str, reports: Mapping[str, Report]) -> Path:
    """`report.html` and `accuracy.png` in a folder; returns the page."""
    figures = {"Accuracy": curves(reports, title)}
    for name, report in reports.items():
        if not is_joint(name):
            figures[learner_title(name)] = class_map(report, f"{learner_title(name)}: accuracy of each class")
    pictures = {name: png(figure, dpi=130) for name, figure in figures.items()}
    page = render(
        "demo.html",
        title=title,
        command=command,
        rows=rows(reports),
        pictures={name: base64.b64encode(picture).decode() for name, picture in pictures.items()},
        versions=next(iter(reports.values())).versions,
    )
    files.write(out / "accuracy.png", pictures["Accuracy"])
    files.write(out / "report.html", page.encode())
    return out / "report.html"
