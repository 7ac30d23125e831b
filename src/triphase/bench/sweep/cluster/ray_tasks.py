"""Ray tasks: the jobs of a sweep on whatever nodes a Ray cluster has."""

from __future__ import annotations

import json
import os
import socket
import time
import warnings
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

from triphase import state as files
from triphase.bench.benchmarks import find
from triphase.bench.sweep.backend import Ended
from triphase.bench.sweep.cluster import node
from triphase.bench.sweep.cluster.copies import RunCopy, read_index, restore
from triphase.bench.sweep.cluster.inputs import Input, data_input, weights_input
from triphase.bench.sweep.cluster.storage import Storage
from triphase.bench.sweep.cluster.versions import versions
from triphase.bench.sweep.jobs import Job
from triphase.directory_lock import locked
from triphase.errors import InvalidValue, TriphaseWarning, Unreachable

POLL_SECONDS = 5.0  # seconds between two polls of the cluster and of the copies in the storage
CONNECT_TIMEOUT = 5.0  # seconds for the cluster to accept a connection
STOP_TIMEOUT = 30.0  # seconds for runs that are stopped to save themselves


@dataclass(frozen=True)
class Resources:
    """What one job takes of a node."""

    cpus: float = 1.0
    gpus: float = 0.0
    memory_gb: float | None = None

    def for_ray(self) -> dict[str, float]:
        """As Ray names them."""
        named = {"CPU": self.cpus, "GPU": self.gpus, "memory": (self.memory_gb or 0) * 2**30}
        return {name: amount for name, amount in named.items() if amount}


class _Task(NamedTuple):
    """A job that was given to the cluster."""

    job: Job
    attempt: str


class RayTasks:
    """A back end: one Ray task a job, which works on its node and saves copies in the storage.

    What crosses to a task and back is JSON text; files cross through the storage.
    """

    def __init__(
        self,
        address: str,
        out: Path,
        data: Path,
        storage: str,
        *,
        resources: Resources | None = None,
        threads: int | None = None,
        latent_budget: int | None = None,
        device: str = "cpu",
        save_every: float = 60.0,
    ) -> None:
        """`address` is "ray" for the cluster of this computer, or Ray's own ray://HOST:PORT."""
        found, self._place = _find(address)
        self._out, self._data = out, data
        self._resources = resources or Resources()
        self._storage = Storage(storage)
        self._ray = _connect(found, self._place)  # before anything is written
        self._sweep = _sweep_id(out)
        self._storage.write(f"{self._sweep}/{node.MARK}", json.dumps(dict(versions())).encode())
        self._execute = self._ray.remote(node.execute)
        self._common = {
            "storage": storage,
            "sweep": self._sweep,
            "versions": dict(versions()),
            "cpus": self._resources.cpus,
            "threads": threads or max(1, int(self._resources.cpus)),
            "latent_budget": latent_budget,
            "device": device,
            "save_every": save_every,
        }
        self._tasks: dict[Any, _Task] = {}
        self._inputs: dict[object, Input | None] = {}
        self._sent: set[Path] = set()
        self._running: dict[Job, float] = {}
        self._polled_at = time.monotonic()
        self.slots = max(1, room := self._room())
        if room == 0:
            self._warn_of_waiting()

    def submit(self, job: Job) -> bool:
        """Give a job to the cluster, which begins it when a node has room for it."""
        first = job.options.first_from
        for directory in filter(None, (job.directory, first)):
            self._send(directory)
        task = _Task(job, uuid4().hex)
        message = self._common | {
            "arguments": _arguments(job),
            "run": self._run(job.directory),
            "attempt": task.attempt,
            "first": None if first is None else self._run(first),
            "experiences": job.n_experiences,
            **{name: None if i is None else asdict(i) for name, i in self._inputs_of(job).items()},
        }
        amounts = self._resources.for_ray()
        remote = self._execute.options(
            num_cpus=amounts.pop("CPU", 0),
            num_gpus=amounts.pop("GPU", 0),
            memory=amounts.pop("memory", None),
            max_retries=0,  # the scheduler tries again
        )
        self._tasks[remote.remote(json.dumps(message))] = task
        return True

    def collect(self, seconds: float) -> dict[Job, Ended]:
        """The jobs whose tasks ended, their directories fetched from the storage."""
        if not self._tasks:
            time.sleep(seconds)
            return {}
        try:
            self._ray.wait(list(self._tasks), num_returns=1, timeout=seconds)
            ready, _ = self._ray.wait(list(self._tasks), num_returns=len(self._tasks), timeout=0)
        except ConnectionError as error:
            raise self._gone() from error
        found = {}
        for reference in ready:
            job = self._tasks.pop(reference).job
            ended = self._ended(reference, job)
            if ended is not None:
                found[job] = ended
            self._running.pop(job, None)
        return found

    def running(self) -> dict[Job, float]:
        """The jobs that a node has begun, with the share that was done at their last save."""
        if time.monotonic() - self._polled_at >= POLL_SECONDS:
            if not _answers(self._place):  # in less than a minute Ray would end this process because of it
                raise self._gone()
            self.slots = max(1, self._room())
            with suppress(Unreachable):  # progress is optional
                indices = {job: read_index(self._storage, self._stored(job), a) for job, a in self._tasks.values()}
                self._running = {job: index["share"] for job, index in indices.items() if index is not None}
            self._polled_at = time.monotonic()
        return dict(self._running)

    def stop(self) -> None:
        """Have all tasks save themselves and end, and leave the cluster."""
        for reference in self._tasks:
            with suppress(Exception):  # the task or the cluster may have ended already
                self._ray.cancel(reference)
        if self._tasks:
            with suppress(Exception):
                self._ray.wait(list(self._tasks), num_returns=len(self._tasks), timeout=STOP_TIMEOUT)
        self._tasks.clear()
        self._ray.shutdown()

    def clean_up(self) -> None:
        """Remove the copies of runs from the storage; data that were shipped stay for the next sweep."""
        self._storage.remove(self._sweep)

    def _ended(self, reference: Any, job: Job) -> Ended | None:
        """How a task ended; None if it is given to the cluster again, with its data in the storage."""
        try:
            answer = json.loads(self._ray.get(reference))
        except self._ray.exceptions.RayTaskError as error:  # in our own code there, or it could not be imported
            last = str(error).strip().splitlines()[-1]
            if "No module named" in last:
                return Ended(
                    "stop", f"A node of the cluster lacks a package ({last}): install triphase on all nodes."
                )
            return Ended("crashed", last)
        except self._ray.exceptions.RayError as error:
            return Ended("lost", str(error).strip().partition(".")[0])
        if answer is None:
            for found in self._inputs_of(job).values():
                if found is not None:
                    found.ship(self._storage)
            self.submit(job)
            return None
        ended = Ended(**answer)
        if ended.how == "finished":
            with locked(job.directory):
                if not restore(self._storage, self._stored(job), job.directory):
                    return Ended("lost", f"its results are not in {self._storage.url}")
        return ended

    def _send(self, directory: Path) -> None:
        """Store a run that was begun or finished on this computer, for a node to go on with it."""
        begun = (directory / "report.json").exists() or (directory / "state" / "index.json").exists()
        if begun and directory not in self._sent:
            copy = RunCopy(self._storage, f"{self._sweep}/{self._run(directory)}", "here")
            copy.save(directory, 0.0)
        self._sent.add(directory)

    def _inputs_of(self, job: Job) -> Mapping[str, Input | None]:
        key = (find(job.benchmark).dataset, find(job.benchmark).weights, job.options.weights)
        if key not in self._inputs:
            scratch = node.scratch_folder()
            self._inputs[key] = data_input(find(job.benchmark), job.options, self._data, scratch)
            self._inputs[job.options.weights] = weights_input(job.options, scratch)
        return {"data": self._inputs[key], "weights": self._inputs[job.options.weights]}

    def _run(self, directory: Path) -> str:
        return directory.relative_to(self._out).as_posix()

    def _stored(self, job: Job) -> str:
        return f"{self._sweep}/{self._run(job.directory)}"

    def _room(self) -> int:
        """How many jobs fit on the nodes that there are."""
        wanted = self._resources.for_ray()
        alive = [node["Resources"] for node in self._ray.nodes() if node["Alive"]]
        return int(sum(min(has.get(name, 0) // wanted[name] for name in wanted) for has in alive))

    def _warn_of_waiting(self) -> None:
        words = ", ".join(f"{name} {amount:g}" for name, amount in self._resources.for_ray().items())
        warnings.warn(
            f"No node of the cluster has what a run asks for ({words}): runs wait until one joins.",
            TriphaseWarning,
            stacklevel=3,
        )

    def _gone(self) -> Unreachable:
        return Unreachable(
            f"The Ray cluster at {self._place} is gone; what was saved is in {self._storage.url}. Start a cluster, "
            "and run again to continue."
        )


def _arguments(job: Job) -> list[str]:
    """The arguments of `triphase` without folders, which differ from node to node."""
    options = replace(job.options, first_from=None, weights=None)
    return ["bench", "run", job.benchmark, *options.arguments()]


def _sweep_id(out: Path) -> str:
    """The name of a folder's sweep in the storage."""
    path = out / "cluster.json"
    if not path.exists():
        files.write_json(path, {"sweep": uuid4().hex})
    return str(files.read_json(path)["sweep"])


def _find(address: str) -> tuple[str, str]:
    """The address of a cluster that answers, for Ray, and the place HOST:PORT of it."""
    if find_spec("ray") is None:
        raise InvalidValue("--on ray needs Ray: pip install 'triphase[cluster]'.")
    if address == "ray":
        address = os.environ.get("RAY_ADDRESS") or "auto"
    if address == "auto":
        address = _address_here()
    place = address.removeprefix("ray://")
    if not _answers(place):  # Ray itself would try for minutes
        raise Unreachable(f"No Ray cluster answers at {place}; check the address, and that it runs: `ray status`.")
    return address, place


def _connect(address: str, place: str) -> Any:
    """Ray, connected to a cluster."""
    import ray

    try:
        ray.init(address=address, log_to_driver=False, logging_level="ERROR")
    except (Exception, SystemExit) as error:  # ConnectionError, RuntimeError, ValueError, or an end of its own
        words = " ".join(str(error).split()).partition(". ")[0].rstrip(".")
        raise Unreachable(f"The Ray cluster at {place} cannot be used ({words}).") from error
    return ray


def _address_here() -> str:
    """The address of the cluster that was started on this computer last, whether or not it still runs."""
    from ray._private.services import canonicalize_bootstrap_address_or_die

    try:
        return str(canonicalize_bootstrap_address_or_die("auto"))
    except ConnectionError as error:
        raise Unreachable(
            "No Ray cluster runs on this computer; start one by `ray start --head`, or give its address: "
            "--on ray://HOST:10001."
        ) from error


def _answers(place: str) -> bool:
    """Whether something accepts connections at HOST:PORT."""
    host, _, port = place.rpartition(":")
    try:
        with socket.create_connection((host, int(port)), CONNECT_TIMEOUT):
            return True
    except (OSError, ValueError):
        return False
