"""Loads finished runs from disk: single ones, folders of them, or those that the summary of a sweep names."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from triphase import state as files
from triphase.bench.run.directory import why_diverged
from triphase.bench.run.options import upgraded
from triphase.bench.run.results import Report
from triphase.errors import BadData, CorruptState

SUMMARIES = ("sweep.json", "ablation.json")


@dataclass(frozen=True)
class FinishedRun:
    """One finished run and where it is."""

    path: Path
    report: Report
    tuned_here: bool = False  # its hyper-parameters were chosen by its own result

    @property
    def settings(self) -> dict[str, Any]:
        """As recorded; a first experience that another run learned counts as learned here, with its epochs."""
        settings = upgraded(self.report.settings)
        before = settings.pop("first_from", None)
        return settings | {"first": settings["first"] | {"epochs": before["epochs"]}} if before else settings

    @property
    def learner(self) -> str:
        """The learner's name."""
        return str(self.report.settings.get("learner", "a learner without name"))

    @property
    def benchmark(self) -> str:
        """The benchmark's name; a stream that is no benchmark goes by its fingerprint."""
        return str(self.settings.get("benchmark") or f"stream {self.settings['stream'][:8]}")

    @property
    def order_and_seed(self) -> tuple[int, int]:
        """Runs of two learners with the same class order and seed are paired: they saw the same minibatches."""
        return self.report.settings.get("order", 0), self.report.settings.get("seed", 0)


def load_runs(paths: Sequence[Path]) -> tuple[list[FinishedRun], list[Path]]:
    """The finished runs in these folders, each once, and the directories of others."""
    finished: dict[Path, FinishedRun] = {}
    unfinished: list[Path] = []
    for path in paths:
        if not path.is_dir():
            raise BadData(f"There is no folder {path}; give folders that `triphase bench run` or `sweep` wrote.")
        for directory, tuned_here in _runs_in(path):
            if not (directory / "report.json").exists():
                unfinished.append(directory)
                continue
            run = FinishedRun(directory, read_report(directory), tuned_here)
            if run.settings.get("experiences") != 1:  # a first experience that other runs share is no result
                finished.setdefault(directory.resolve(), run)
    if not finished:
        where = ", ".join(map(str, paths))
        diverged = len(diverged_among(unfinished))
        counts = {"unfinished": len(unfinished) - diverged, "diverged": diverged}
        words = [f"{n} {what}" for what, n in counts.items() if n]
        count = f" ({', '.join(words)})" if words else ""
        raise BadData(f"There is no finished run in {where}{count}; `triphase bench run ... --out RUN` makes one.")
    return list(finished.values()), unfinished


def diverged_among(unfinished: Sequence[Path]) -> list[Path]:
    """Those that have no result because the network diverged."""
    return [directory for directory in unfinished if why_diverged(directory) is not None]


def read_report(directory: Path) -> Report:
    """The report of a finished run."""
    path = directory / "report.json"
    document = files.read_json(path)
    try:
        report = Report.from_json(document)
        for needed in ("first", "rest", "stream"):
            report.settings[needed]
        if not math.isfinite(report.amca + report.final_accuracy):
            raise ValueError("its accuracy is no number")
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise CorruptState(
            f"{path} is not a report that this version can read ({error!r}); run {directory} again."
        ) from error
    return report


def _runs_in(path: Path) -> Iterator[tuple[Path, bool]]:
    """The runs in a folder, each with whether its own result chose its hyper-parameters."""
    summaries = [path / name for name in SUMMARIES if (path / name).exists()]
    if (path / "report.json").exists() or (path / "settings.json").exists():
        yield path, False
    elif summaries:
        for summary in summaries:
            yield from _runs_of_sweep(summary)
    else:
        for below in sorted(child for child in path.iterdir() if child.is_dir()):
            yield from _runs_in(below)


def _runs_of_sweep(summary: Path) -> Iterator[tuple[Path, bool]]:
    """The test runs of each learner or ablation; the best of a grid where the tuning order is all that was run.

    Settings that diverged are among them, for the caveats.
    """
    try:
        document = files.read_json(summary)
        for parts in document["benchmarks"].values():
            for part in parts.values():
                tried = part.get("grid", ())
                tests = [test for column in part.get("columns", {"": part}).values() for test in column["tests"]]
                for test in tests:
                    yield summary.parent / test["run"], len(tried) > 1 and test["order"] == document["orders"][0]
                yield from ((summary.parent / each["run"], False) for each in tried if "diverged" in each)
                if not tests:
                    chosen = [each for each in tried if each["setting"] == part.get("chosen")]
                    yield from ((summary.parent / each["run"], len(tried) > 1) for each in chosen)
    except (KeyError, TypeError, AttributeError) as error:
        raise CorruptState(f"{summary} is not the summary of a sweep ({error!r}); run the sweep again.") from error
