"""The view of a lesson: live in a terminal, a line for each stage elsewhere."""

from __future__ import annotations

from typing import Any

from rich.text import Text

from triphase.cli.live import bar, print_line, progress_console
from triphase.printable import count

SCANS = {
    "scan": "Scanning photos",
    "decode": "Decoding new photos",
    "encode": "Computing features",
    "answer": "Classifying photos",
}
UNLABELLED_SCANS = {"scan": "Scanning photos without labels", "decode": "Decoding photos without labels"}
PHASES = {
    "I": "Phase I: learning the new classes",
    "II": "Phase II: learning all classes",
    "III": "Phase III: consolidating",
    "consolidate": "Training on everything stored",
}


class LessonView:
    """Shows the scan of the photos and the phases of a lesson."""

    def __init__(self, *, quiet: bool = False) -> None:
        self.console = progress_console(quiet)
        self._stage, self._share, self._detail = "", 0.0, ""

    def on_event(self, event: dict[str, Any]) -> None:
        """Record an event for the next redraw of the terminal."""
        kind = event["event"]
        if kind in SCANS:
            stage = UNLABELLED_SCANS[kind] if event.get("unlabelled") else SCANS[kind]
            photos = f"{event['done']} of {event['total']} photos"
            self._enter(stage, event["done"] / max(event["total"], 1), photos)
        elif kind == "begin":
            self._enter(f"Learning {count(event['images'], 'photo')}", 0.0, "")
        elif kind == "step":
            share = (event["epoch"] - 1 + event["step"] / event["steps"]) / event["epochs"]
            epoch = f"epoch {event['epoch']} of {event['epochs']}"
            self._enter(PHASES.get(event["phase"], event["phase"]), share, epoch)
        elif kind == "corrected":
            print_line(self.console, f"{count(event['images'], 'photo')} moved to another class.")
        elif kind == "resumed":
            print_line(self.console, "Continuing the lesson that was interrupted.")
        elif kind == "taught_quick":
            print_line(self.console, f"Version {event['version']} is already in use; the whole lesson follows.")

    def _enter(self, stage: str, share: float, detail: str) -> None:
        if stage != self._stage and not self.console.is_terminal:
            print_line(self.console, stage)
        self._stage, self._share, self._detail = stage, share, detail

    def draw(self) -> Text:
        """The stage and how much of it is done."""
        if not self._stage:
            return Text("Preparing", style="dim")
        return Text.assemble((f"{self._stage:<34}", "bold"), f" {bar(self._share)} ", (self._detail, "dim"))
