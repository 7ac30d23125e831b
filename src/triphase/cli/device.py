"""--device: where networks compute."""

from __future__ import annotations

import sys
from typing import Annotated

import torch
import typer

from triphase.device import choose, make_deterministic, record_name

Device = Annotated[
    str | None,
    typer.Option(
        help="Where the network computes: auto, cpu, cuda, cuda:1 ..., mps.", show_default="auto", metavar="NAME"
    ),
]


def open_device(name: str | None) -> torch.device:
    """The device of that name; what "auto" has found is said, unless nobody asked and it is the CPU."""
    device = choose(name or "auto")
    if name == "auto" or (name is None and device.type != "cpu"):
        print(f"Computing on {record_name(device)}.", file=sys.stderr)
    if device.type == "cuda":
        make_deterministic()
    return device


def device_word(name: str | None) -> str:
    """The device of that name as a word of the command line."""
    return str(open_device(name))
