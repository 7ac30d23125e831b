"""Where the runs of `bench sweep` and `bench ablate` are executed: on this computer, or on a Ray cluster."""

from __future__ import annotations

import inspect
import math
from dataclasses import dataclass, fields
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from triphase.bench.sweep.backend import BackEnd
from triphase.bench.sweep.processes import LocalProcesses
from triphase.cli.device import Device, device_name
from triphase.cli.run_options import Command, LatentBudget
from triphase.errors import InvalidValue

ONLY_LOCAL = ("workers",)
ONLY_RAY = ("cpus", "gpus", "memory_gb", "storage", "save_every")


@dataclass(frozen=True)
class ExecutionOptions:
    """Where runs are executed, and the resources of each run; the fields are options of the command line."""

    on: Annotated[str, typer.Option(help="local, ray (the cluster of this computer) or ray://HOST:PORT.")] = "local"
    workers: Annotated[int, typer.Option(min=1, help="Parallel runs; they share the threads.")] = 1
    threads: Annotated[int | None, typer.Option(min=1, help="CPU threads of each run.")] = None
    device: Device = None
    latent_budget: LatentBudget = None
    cpus: Annotated[float, typer.Option(min=0.1, help="With ray: CPUs of each run.")] = 1.0
    gpus: Annotated[float, typer.Option(min=0, help="With ray: GPUs of each run.")] = 0.0
    memory_gb: Annotated[float | None, typer.Option(min=0, help="With ray: memory of each run in GB.")] = None
    storage: Annotated[
        str | None,
        typer.Option(help="With ray: shared folder or URL; default: OUT/storage."),
    ] = None
    save_every: Annotated[float, typer.Option(min=0.1, help="With ray: seconds between saves to the storage.")] = (
        60.0
    )

    def __post_init__(self) -> None:
        if self.on not in ("local", "ray") and not self.on.startswith("ray://"):
            raise InvalidValue(f"--on is local, ray or ray://HOST:PORT, got {self.on!r}.")
        foreign, other = (ONLY_RAY, "ray") if self.on == "local" else (ONLY_LOCAL, "local")
        for field in fields(self):
            if field.name in foreign and getattr(self, field.name) != field.default:
                raise InvalidValue(
                    f"--{field.name.replace('_', '-')} is for --on {other}, and this is --on {self.on}."
                )
        for name in ("cpus", "gpus", "memory_gb", "save_every"):
            if not math.isfinite(getattr(self, name) or 0):
                raise InvalidValue(f"--{name.replace('_', '-')} must be finite, got {getattr(self, name)}.")
        if self.gpus > 1 and self.gpus % 1:
            raise InvalidValue(f"--gpus above 1 must be whole, got {self.gpus:g}: only a single GPU is shared.")

    def back_end(self, out: Path, data: Path) -> BackEnd:
        """The back end that executes the runs of a sweep."""
        limits = {"threads": self.threads, "latent_budget": self.latent_budget}
        if self.on == "local":
            return LocalProcesses(out, data, workers=self.workers, device=device_name(self.device), **limits)
        from triphase.bench.sweep.cluster.ray_tasks import RayTasks, Resources
        from triphase.bench.sweep.cluster.storage import as_url

        storage = as_url(self.storage or str(out / "storage"))
        resources = Resources(self.cpus, self.gpus, self.memory_gb)
        device = self.device or ("cuda" if self.gpus else "cpu")  # the nodes have the devices, not this computer
        return RayTasks(
            self.on, out, data, storage, resources=resources, device=device, save_every=self.save_every, **limits
        )


def execution_options(command: Command) -> Command:
    """Replace a command's parameter `execution` by the fields of ExecutionOptions."""
    hints = get_type_hints(ExecutionOptions, include_extras=True)
    own = inspect.signature(command, eval_str=True).parameters.values()
    keyword_only = inspect.Parameter.KEYWORD_ONLY
    parameters = [p.replace(kind=keyword_only) for p in own if p.name != "execution"]
    parameters += [
        inspect.Parameter(f.name, keyword_only, default=f.default, annotation=hints[f.name])
        for f in fields(ExecutionOptions)
    ]

    @wraps(command)
    def call(**values: Any) -> None:
        given = {f.name: values.pop(f.name) for f in fields(ExecutionOptions)}
        command(execution=ExecutionOptions(**given), **values)

    call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    call.__annotations__ = {p.name: p.annotation for p in parameters}
    return call
