"""The view of a run: live in a terminal, a line per experience elsewhere."""

from __future__ import annotations

import time
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from triphase.cli.live import bar, print_line, progress_console
from triphase.cli.tables import cell
from triphase.printable import percent, printable


class RunView:
    """Shows the events of a run."""

    def __init__(self, title: str, *, quiet: bool = False) -> None:
        self.console, self.title = progress_console(quiet), title
        self._event: dict[str, Any] = {}
        self._begin: dict[str, Any] = {"experience": 1, "of": 1, "classes": [], "images": 0}
        self._accuracy: dict[str, float | None] = {}
        self._since = time.monotonic()

    def on_event(self, event: dict[str, Any]) -> None:
        """Record an event for the next redraw of the terminal."""
        kind = event["event"]
        if kind == "begin":
            self._begin, self._event = event, {}
        elif kind in ("step", "epoch", "encode"):
            self._event = event
        elif kind == "evaluated":
            self._accuracy = event["classes"]
            where = f"experience {event['experience']}/{self._begin['of']}"
            seconds = time.monotonic() - self._since
            line = f"{self.title}  {where}  accuracy {percent(event['accuracy'])}  {seconds:.0f} s"
            print_line(self.console, line)
        elif kind == "resumed":
            print_line(self.console, f"{self.title}  continuing at experience {event['experience']}")

    def draw(self) -> RenderableType:
        """Experience, phase, loss, speed and the accuracy of each class."""
        begin, event = self._begin, self._event
        head = Text.assemble(
            (self.title, "bold"),
            f"  experience {begin['experience']}/{begin['of']}, {begin['images']} images: ",
            (", ".join(map(printable, begin["classes"][:8])) + (" …" if len(begin["classes"]) > 8 else ""), "cyan"),
        )
        if not event:
            return Group(head, Text("  preparing", style="dim"))
        if event["event"] == "encode":
            share, images = event["done"] / max(event["total"], 1), f"{event['done']} of {event['total']} images"
            return Group(head, Text(f"  {'latents':<10}{bar(share)} {images}"), self._classes())
        done = (event["epoch"] - 1 + event["step"] / event["steps"]) / event["epochs"]
        name = f"Phase {event['phase']}" if event["phase"] in ("I", "II", "III") else event["phase"]
        loss = "not finite" if event["loss"] is None else f"{event['loss']:.3f}"
        line = Text(f"  {name:<10}{bar(done)} epoch {event['epoch']}/{event['epochs']}  loss {loss}")
        shares = "  ".join(f"{part} {100 * share:.0f} %" for part, share in event["shares"].items())
        speed = Text(f"  {event['images_per_second']:,.0f} images/s   {shares}", style="dim")
        return Group(head, line, speed, self._classes())

    def _classes(self) -> RenderableType:
        """Accuracy per class after the last experience, as bars."""
        table = Table.grid(padding=(0, 1))
        for name, value in list(self._accuracy.items())[-20:]:
            if value is not None:
                colour = "green" if value > 0.8 else "yellow" if value > 0.5 else "red"
                table.add_row(cell(f"  {name[:18]:<10}"), Text(bar(value), style=colour), percent(value))
        return table
