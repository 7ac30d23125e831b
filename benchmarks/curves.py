"""Accuracy after each experience, drawn from a file that `collect.py` has written; it needs no run directories.

python benchmarks/curves.py benchmarks/results/comparison/stream1_quarter.json curves.png
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from triphase.bench.report.figure_style import MARKERS, colour_of, png, styled
from triphase.bench.report.titles import LEARNER_TITLES, rank


def curves(lines: Sequence[dict[str, Any]]) -> Figure:
    """One curve for each run, joint training as a dashed line."""
    figure = Figure(figsize=(7.2, 3.9), layout="constrained")
    axes = figure.subplots()
    for line in sorted(lines, key=lambda line: rank(line["learner"])):
        learner, accuracy = line["learner"], line["accuracy"]
        title, colour, main = LEARNER_TITLES[learner], colour_of(learner), learner == "tpc"
        if learner == "joint":
            label = f"{title} (final: {accuracy[-1]:.1f})"
            axes.axhline(accuracy[-1], color=colour, linestyle="--", linewidth=1.4, label=label)
            continue
        axes.plot(
            line["evaluated_after"],
            accuracy,
            color=colour,
            marker=MARKERS[learner],
            markersize=3.5,
            linewidth=2.2 if main else 1.4,
            zorder=4 if main else 3,
            label=f"{title} ({fmean(accuracy):.1f})",
        )
    axes.set(xlabel="experience", ylabel="accuracy on the classes seen so far (%)", ylim=(0, 80))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(axis="y", alpha=0.25)
    figure.legend(loc="outside right center", title="AMCA in brackets", alignment="left")
    return figure


def main() -> None:
    """Draw the runs of one file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path)
    parser.add_argument("out", type=Path)
    arguments = parser.parse_args()
    with styled():
        picture = png(curves(json.loads(arguments.runs.read_text(encoding="utf-8"))))
    arguments.out.write_bytes(picture)


if __name__ == "__main__":
    main()
