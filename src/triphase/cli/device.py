"""--device: where networks compute."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from triphase.errors import InvalidValue

if TYPE_CHECKING:
    import torch

    from triphase.processes import Processes

Device = Annotated[
    str | None,
    typer.Option(help="Device of the network: auto, cpu, cuda, cuda:1, mps.", show_default="auto", metavar="NAME"),
]


def open_device(name: str | None) -> torch.device:
    """The device of that name, reported as by `report_device`."""
    return report_device(name, name or "auto")


def report_device(name: str | None, used: str) -> torch.device:
    """The device `used`, made deterministic; what "auto" has chosen is printed, unless it is the CPU by default."""
    from triphase.device import choose, make_deterministic, record_name  # which imports torch

    device = choose(used)
    if name == "auto" or (name is None and device.type != "cpu"):
        print(f"Computing on {record_name(device)}.", file=sys.stderr)
    if device.type == "cuda":
        make_deterministic()
    return device


def device_of(processes: Processes, name: str | None) -> str | None:
    """The name of the device of one of several processes: where there are GPUs, each has its own."""
    from triphase.device import choose

    device = choose(name or "auto")
    if processes.size == 1 or device.type == "cpu":
        return name
    if device.type != "cuda":
        raise InvalidValue(f"Several processes cannot share the device {device}: run in one, or with --device cpu.")
    return f"cuda:{processes.local_rank}"


def device_name(name: str | None) -> str:
    """The chosen device as a name for --device."""
    return str(open_device(name))
