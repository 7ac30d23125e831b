"""The time of training, as the paper measures it: without evaluation, saving and drawing."""

from __future__ import annotations

import time

from triphase.bench.run.results import Report
from triphase.stopwatch import PARTS, Stopwatch


class TrainingTimer:
    """Adds the time between `start` and `stop` to a report: to its phase and to the parts that took it."""

    def __init__(self, stopwatch: Stopwatch) -> None:
        self._stopwatch = stopwatch
        self.start()

    def start(self) -> None:
        """Start to count training time."""
        self._since = time.perf_counter()
        self._parts, self._images = dict(self._stopwatch.seconds), self._stopwatch.images
        self._borrowed = self._stopwatch.borrowed

    def stop(self, report: Report, phase: str) -> None:
        """Add the time since `start` to the report."""
        elapsed = time.perf_counter() - self._since + self._stopwatch.borrowed - self._borrowed
        parts = {part: self._stopwatch.seconds[part] - self._parts[part] for part in PARTS}
        parts["other"] = elapsed - sum(parts.values())
        for part, seconds in parts.items():
            report.part_seconds[part] = report.part_seconds.get(part, 0.0) + seconds
        report.phase_seconds[phase] = report.phase_seconds.get(phase, 0.0) + elapsed
        report.images += self._stopwatch.images - self._images
