"""triphase export: write a model as one ONNX file."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from triphase.app.export import Exported
from triphase.app.export import export as export_model
from triphase.app.quantization import QuantizationLoss
from triphase.cli.arguments import JSON, ModelFolder, SkipBad
from triphase.cli.device import Device, open_device
from triphase.cli.live import live, print_line, progress_console
from triphase.cli.printing import print_json, print_skipped, say
from triphase.cli.tables import plain_table
from triphase.printable import count, percent


class ExportView:
    """Shows the stage of an export."""

    def __init__(self, *, quiet: bool) -> None:
        self.console = progress_console(quiet)
        self._stage, self._detail = "Preparing", ""

    def on_event(self, event: dict[str, Any]) -> None:
        """Record an event for the next redraw of the terminal."""
        decoding = event["event"] == "decode"
        stage = "Decoding photos" if decoding else event["name"]
        if stage != self._stage and not self.console.is_terminal:
            print_line(self.console, stage)
        self._stage, self._detail = stage, f"{event['done']} of {event['total']}" if decoding else ""

    def draw(self) -> Text:
        """The stage and how far it is."""
        return Text.assemble((self._stage, "bold"), f" {self._detail}")


def export(
    model: ModelFolder,
    out: Annotated[
        Path, typer.Argument(metavar="FILE.onnx", help="File to write; an .onnx file of this name is replaced.")
    ],
    photos: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Photos on which the file is compared with the model."),
    ] = None,
    quantize: Annotated[
        bool,
        typer.Option(
            "--quantize",
            help="Use 8-bit integers: smaller, faster, less accurate. The loss on --photos is printed.",
        ),
    ] = False,
    skip_bad: SkipBad = False,
    device: Device = None,
    as_json: JSON = False,
) -> None:
    """Write a model as one ONNX file that needs neither triphase nor PyTorch.

    Input: pixels (n, size, size, 3), RGB, uint8. Output: probabilities, class and unknown flag.
    The metadata hold the class names and the preprocessing; examples/onnx_predict.py shows how to use them.
    Nothing is written unless the file answers like the model.

    Examples:
      triphase export my-model model.onnx
      triphase export my-model small.onnx --quantize --photos photos/
    """
    where = open_device(device)
    with live(ExportView(quiet=as_json)) as view:
        done = export_model(
            model, out, photos=photos, quantize=quantize, skip_bad=skip_bad, on_event=view.on_event, device=where
        )
    if as_json:
        print_json({"model": str(model), **asdict(done)})
        return
    size = f"{done.image_size} x {done.image_size} pixels"
    say(f"Wrote {done.file} ({_megabytes(done.bytes)}): {count(len(done.classes), 'class')}, photos of {size}.")
    say(_compared(done))
    if done.quantization is not None:
        _print_loss(done.quantization)
    print_skipped(list(done.skipped))


def _compared(done: Exported) -> str:
    """What was compared, and how far answers differ."""
    where = f"{done.parity.n:,} {done.checked_on}"
    difference = done.parity.difference
    if done.latents is not None:
        where += f" and the stored features of {count(done.latents.n, 'photo')}"
        difference = max(difference, done.latents.difference)
    before = "Before the change to 8 bits, it" if done.quantization is not None else "It"
    return f"{before} answered like the model on {where}; probabilities differ by at most {difference:.1g}."


def _print_loss(loss: QuantizationLoss) -> None:
    table = plain_table("", "float32", "int8")
    table.add_row("size", _megabytes(loss.float_bytes), _megabytes(loss.bytes))
    table.add_row("speed here", "1.0 x", f"{loss.speedup:.1f} x")
    if loss.accuracy is not None:
        name = f"accuracy on {count(loss.labelled, 'photo')}"
        table.add_row(name, percent(loss.float_accuracy), percent(loss.accuracy))
    table.add_row("same class", "", percent(loss.same_class))
    table.add_row("same unknown flag", "", percent(loss.same_unknown))
    Console().print(table, highlight=False)
    others = "others" if loss.other_photos else "the same"
    measured = count(loss.measured, "photo")
    say(f"Calibrated on {count(loss.calibrated, 'photo')}, measured on {measured} ({others}).")


def _megabytes(n_bytes: int) -> str:
    return f"{n_bytes / 1e6:.1f} MB"
